"""Show the last steps of a quarantined world: replay, curves, images.

usage: robot-rl inspect <file.npz> [key=value ...]

{Options}

A run keeps such files in runs/<task>/<run id>/quarantine/, 20 at most. The table shows fault, time and place;
the world is stepped again by plain MuJoCo with the recorded controls; the page plots all of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from robot_rl.cli.options import option, read_all, split_bare
from robot_rl.errors import UserError
from robot_rl.runs.outputs import IMAGE, PAGE, check_output, save_image

if TYPE_CHECKING:
    from robot_rl.view.inspect.record import Record
    from robot_rl.view.inspect.replay import Growth, Replay


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl inspect."""

    out: str = option("", "the .html; next to the file by default, with a .png of its frames if OpenGL is available")


def run(arguments: Sequence[str]) -> int:
    """Print the table and write the page."""
    from PIL import Image

    from robot_rl.files import write_atomic
    from robot_rl.view.inspect.film import film, strip
    from robot_rl.view.inspect.page import render_page
    from robot_rl.view.inspect.record import read_record
    from robot_rl.view.inspect.replay import fastest, replay

    files, rest = split_bare(arguments)
    if len(files) != 1:
        path = "runs/<task>/<run id>/quarantine/<file>.npz"
        raise UserError(f"inspect: takes one file, got {len(files)}; write robot-rl inspect {path}")
    options = read_all(Options, rest)
    record = read_record(files[0])
    page = check_output("out", options.out or str(record.path.with_suffix(".html")), PAGE)
    image = check_output("out", str(page.with_suffix(".png")), IMAGE)
    result, growths = replay(record), fastest(record)
    frames = film(record, result.bad_name)
    show(record, result, growths)
    write_atomic(page, render_page(record, result, growths, frames))
    print(f"\n{page}")
    if frames:
        save_image(Image.fromarray(strip(frames)), image)
        print(image)
    return 0


def show(record: "Record", result: "Replay", growths: "list[Growth]") -> None:
    """Print fault, time and cause, the replay's verdict, and the last steps of the fastest growing values."""
    from robot_rl.view.chart import short

    about = record.about
    rows = [
        (
            "what",
            f"world {about['world']} of {about['task']} ({about['robot']}, {about['engine']}, seed {about['seed']})",
        ),
        ("when", f"{about['time_s']:.2f} s into the episode, control step {about['counter']} of the run"),
        *(("why", line) for line in about["why"]),
        ("replay", result.verdict),
        *(("", note) for note in result.notes),
    ]
    for name, text in rows:
        print(f"{name:<8}{text}")
    if growths:
        width = max(len(growth.name) for growth in growths)
        print("\nfastest growing, last control steps:")
        for growth in growths:
            print(f"  {growth.name:<{width}}" + "".join(f"{short(value):>10}" for value in growth.values))

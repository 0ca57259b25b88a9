"""robot-rl latency: how long a robot waited for its commands, as a picture and as a file that training reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from robot_rl.cli.options import describe, option, read_all
from robot_rl.errors import UserError
from robot_rl.experiment.outputs import LATENCY, PICTURE, check_output, save_picture


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl latency."""

    source: str = option("", "a log (*.mcap) or a report (*.json) of robot-rl-infer")
    out: str = option(
        "", "the picture (*.png) or the file (*.json), the other is put beside it; by default beside the source"
    )
    extra_s: float = option(0.0, "constant time on the wire that the source cannot know [s]; half a ping's time, say")


HELP = f"""\
robot-rl latency: percentiles and histograms of every stage from a robot's state to its command

usage: robot-rl latency LOG_OR_REPORT [key=value ...]

{describe(Options)}

The file is what training reads: robot-rl train task=<name> randomize.latency_from=<file>.json
"""


def run(arguments: Sequence[str]) -> int:
    """Prints the percentiles, writes picture and file."""
    options = read_all(Options, arguments, first="source")
    if not options.source:
        raise UserError("source: which log or report? Write robot-rl latency <file>")
    import json

    from robot_rl.files import write_atomic
    from robot_rl.latency.chart import draw_latency
    from robot_rl.latency.measure import STAGES, measure
    from robot_rl.report.plot import microseconds

    source = Path(options.source)
    picture, file = paths(source, options.out)
    data = measure(source, options.extra_s)
    print(f"{'':36} {'p50':>9} {'p99':>9} {'p99.9':>9} {'most':>9}")
    for name, stage in data["stages"].items():
        figures = " ".join(f"{microseconds(stage[key]):>9}" for key in ("p50", "p99", "p99.9", "max"))
        print(f"{STAGES.get(name, name):36} {figures}")
    write_atomic(file, json.dumps(data, indent=1) + "\n")
    save_picture(draw_latency(data), picture)
    print(f"{picture}\n{file}")
    return 0


def paths(source: Path, out: str) -> tuple[Path, Path]:
    """Where picture and file go.

    Raises:
        UserError: `out` is neither, or cannot be written, or the file would overwrite the source.
    """
    base = Path(out) if out else source.with_name(f"{source.stem}.latency.json")
    if base.suffix not in (".png", ".json"):
        raise UserError(f"out={out}: must end in .png or .json")
    picture, file = base.with_suffix(".png"), base.with_suffix(".json")
    if file.resolve() == source.resolve():
        raise UserError(f"out={out}: {file} is the source; name another")
    for path, kind in ((picture, PICTURE), (file, LATENCY)):
        check_output("out", out if out and path == base else str(path), kind, makes_folder=False)
    return picture, file

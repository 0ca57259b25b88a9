"""Measure how long a robot waited for its commands: a plot, and a file for training.

usage: robot-rl latency LOG_OR_REPORT [key=value ...]

{Options}

Training reads the file: robot-rl train task=<name> randomize.latency_from=<file>.json
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from robot_rl.cli.options import option, read_all
from robot_rl.errors import UserError
from robot_rl.runs.outputs import IMAGE, LATENCY, check_output, save_image


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl latency."""

    source: str = option("", "a log (*.mcap) or a report (*.json) of robot-rl-infer")
    out: str = option(
        "", "the plot (*.png) or the file (*.json), the other has the same name; by default next to source"
    )
    extra_s: float = option(0.0, "constant time on the wire, unknown to the source [s], such as half a ping's")


def run(arguments: Sequence[str]) -> int:
    """Print the percentiles; write the plot and the file."""
    options = read_all(Options, arguments, first="source")
    if not options.source:
        raise UserError("source: is missing; write robot-rl latency <file>")
    import json

    from robot_rl.files import write_atomic
    from robot_rl.sim2sim.latency.measure import STAGES, draw_latency, measure
    from robot_rl.view.chart import microseconds

    source = Path(options.source)
    plot, file = paths(source, options.out)
    data = measure(source, options.extra_s)
    print(f"{'':36} {'p50':>9} {'p99':>9} {'p99.9':>9} {'most':>9}")
    for name, stage in data["stages"].items():
        figures = " ".join(f"{microseconds(stage[key]):>9}" for key in ("p50", "p99", "p99.9", "max"))
        print(f"{STAGES.get(name, name):36} {figures}")
    write_atomic(file, json.dumps(data, indent=1) + "\n")
    save_image(draw_latency(data), plot)
    print(f"{plot}\n{file}")
    return 0


def paths(source: Path, out: str) -> tuple[Path, Path]:
    """Return the files of the plot and of the data."""
    base = Path(out) if out else source.with_name(f"{source.stem}.latency.json")
    if base.suffix not in (".png", ".json"):
        raise UserError("out", out, "must end in .png or .json")
    plot, file = base.with_suffix(".png"), base.with_suffix(".json")
    if file.resolve() == source.resolve():
        raise UserError("out", out, f"{file} is the source", "name another")
    for path, kind in ((plot, IMAGE), (file, LATENCY)):
        check_output("out", out if out and path == base else str(path), kind, makes_folder=False)
    return plot, file

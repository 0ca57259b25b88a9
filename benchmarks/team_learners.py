"""How several learners of a team learn one task: the curves of their seeds, as one file and a plot.

    for seed in 1 2 3; do robot-rl train task=go2_pair_carry view=own seed=$seed root=compare/own; done
    python benchmarks/team_learners.py runs=compare task=go2_pair_carry out=benchmarks/team_learners.json

Every folder in `runs=` is a root of runs, its name the name of the curve. A curve is the task's first metric, the mean
over all worlds and steps of an iteration, by the iteration, of as many worlds for all; the line is the median of the
seeds, the band their least and greatest. `level=` is the value whose first crossing is reported. `note=` goes into the
file.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import yaml
from plot import Plot, svg, ticks
from words import read_words, run_script

from robot_rl.errors import UserError
from robot_rl.files import write_json

KNOWN = {"runs": "", "task": "", "level": "0.5", "out": "", "note": ""}
POINTS = 60
"""Rows of a curve that are kept, evenly spaced."""
COLORS = ("#0b6fb8", "#e07b00", "#2a8a3e", "#a33b8f", "#666666")


def read_seed(directory: Path) -> dict[str, Any]:
    """Return the curve of one run, (iterations,) each: minutes and the metric.

    Raises:
        UserError: the run did not get to its end, or has no metric.
    """
    run = yaml.safe_load((directory / "run.yaml").read_text())
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    if not run.get("metrics"):
        raise UserError(f"runs={directory}: its task has no metric")
    name = next(iter(run["metrics"]))
    values = [row.get(f"tracking/{name}", 0.0) for row in rows]
    facts = {key: run.get(key) for key in ("machine", "versions")}
    return {"metric": name, "values": values, "minutes": [row["time_s"] / 60 for row in rows], "facts": facts}


def combine(seeds: list[dict[str, Any]], level: float) -> dict[str, Any]:
    """Return the median and the range over seeds of the same length; raise UserError for others."""
    lengths = {len(seed["values"]) for seed in seeds}
    if len(lengths) != 1:
        raise UserError(f"runs=: seeds of {sorted(lengths)} iterations cannot be compared")
    crossed = [next((k for k, value in enumerate(seed["values"]) if value >= level), None) for seed in seeds]
    count = lengths.pop()
    every = max(1, count // POINTS)
    kept = [k for k in range(count) if k % every == 0 or k == count - 1]
    columns = [[seed["values"][k] for seed in seeds] for k in kept]
    return {
        "seeds": len(seeds),
        "iterations_to_level": [None if k is None else k + 1 for k in crossed],
        "last": [round(seed["values"][-1], 4) for seed in seeds],
        "minutes": [round(seed["minutes"][-1], 2) for seed in seeds],
        "iteration": [k + 1 for k in kept],
        "median": [round(statistics.median(column), 4) for column in columns],
        "least": [round(min(column), 4) for column in columns],
        "greatest": [round(max(column), 4) for column in columns],
    }


def plot(result: dict[str, Any]) -> str:
    """Return all curves over iterations as an SVG."""
    high = max(max(curve["greatest"]) for curve in result["curves"].values())
    most = max(curve["iteration"][-1] for curve in result["curves"].values())
    plot = Plot((520, 280), x=(0.0, most), y=(0.0, high))
    title = f"{result['task']}: {result['metric']}"
    plot.axes(ticks(0.0, most)[:-1], ticks(0.0, high)[:-1], "iterations", title)
    for k, (name, curve) in enumerate(result["curves"].items()):
        xs, color = curve["iteration"], COLORS[k % len(COLORS)]
        plot.band(xs, curve["least"], curve["greatest"], color)
        plot.line(xs, curve["median"], color)
        plot.text(54, 40 + 15 * k, name, font_size=12, fill=color)
    return svg([plot])


def main(arguments: list[str]) -> None:
    """Read the runs, print the table, write the file and its plot."""
    words = read_words(arguments, KNOWN)
    try:
        level, root = float(words["level"]), Path(words["runs"])
    except ValueError:
        raise UserError(f"level={words['level']}: must be a number") from None
    curves, found = {}, []
    for folder in sorted(entry for entry in root.iterdir() if entry.is_dir()):
        seeds = [read_seed(file.parent) for file in sorted(folder.glob(f"{words['task']}/*/metrics.jsonl"))]
        if not seeds:
            raise UserError(f"runs={folder}: has no run of {words['task']}")
        curves[folder.name], found = combine(seeds, level), [*found, *seeds]
    first = found[0]
    result = {"task": words["task"], "metric": first["metric"], "level": level, "curves": curves, "note": words["note"]}
    result |= first["facts"]
    for name, curve in curves.items():
        print(f"{name:12} last {curve['last']}  iterations to {level:g}: {curve['iterations_to_level']}")
    if words["out"]:
        out = Path(words["out"])
        write_json(out, result)
        out.with_suffix(".svg").write_text(plot(result))


if __name__ == "__main__":
    run_script(main)

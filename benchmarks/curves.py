"""What a training run logged and how its policy was evaluated, as one small file and a plot.

    robot-rl train task=panda_reach && robot-rl export run=latest && robot-rl eval run=latest
    python benchmarks/curves.py run=runs/panda_reach/<run id> out=benchmarks/curves/panda_reach.json

The curve is the mean over all worlds and steps of an iteration of the task's first metric, and the return of episodes
that ended; the time is the training's own wall-clock time. The evaluation is that of `robot-rl eval`: 100 new worlds,
randomization and pushes on. `note=` goes into the file: what else the machine did.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from plot import Plot, svg, ticks
from words import read_words, run_script

from robot_rl.errors import UserError
from robot_rl.files import write_json
from robot_rl.view.chart import BLUE, ORANGE

KNOWN = {"run": "", "out": "", "note": ""}
POINTS = 60
"""Rows of a curve that are kept, evenly spaced."""


def read_run(directory: Path) -> dict[str, Any]:
    """Return the curve of a run and its evaluation.

    Raises:
        UserError: the directory is no run, or it was not evaluated.
    """
    files = {name: directory / name for name in ("run.yaml", "metrics.jsonl", "eval.json")}
    for name, file in files.items():
        if not file.is_file():
            raise UserError(f"run={directory}: has no {name}; train, export and evaluate first")
    run = yaml.safe_load(files["run.yaml"].read_text())
    rows = [json.loads(line) for line in files["metrics.jsonl"].read_text().splitlines()]
    metric = next(iter(run["metrics"]), "") if run.get("metrics") else ""
    keys = {"iteration": "iteration", "env_steps": "env_steps", "time_s": "time_s", "return": "episode/return"}
    keys |= {metric: f"tracking/{metric}"} if metric else {}
    every = max(1, len(rows) // POINTS)
    kept = [row for k, row in enumerate(rows) if k % every == 0 or k == len(rows) - 1]
    curve = [{short: row[name] for short, name in keys.items() if name in row} for row in kept]
    evaluation = json.loads(files["eval.json"].read_text())
    facts = {name: run.get(name) for name in ("machine", "versions")}
    return {"task": directory.parent.name, "metric": metric, "curve": curve, "evaluation": evaluation, **facts}


def plot(result: dict[str, Any]) -> str:
    """Return the metric, or without one the return, over the minutes of training as an SVG."""
    name = result["metric"] or "return"
    points = [(row["time_s"] / 60, row[name]) for row in result["curve"] if name in row]
    low, high = min(0.0, *(y for _, y in points)), max(y for _, y in points)
    plot = Plot((520, 260), x=(0.0, points[-1][0]), y=(low, high))
    plot.axes(ticks(0.0, points[-1][0])[:-1], ticks(low, high)[:-1], "minutes", f"{result['task']}: {name}")
    plot.line(*zip(*points, strict=True), BLUE if result["metric"] else ORANGE)
    return svg([plot])


def main(arguments: list[str]) -> None:
    """Read the run, write the file and its plot."""
    words = read_words(arguments, KNOWN)
    result = read_run(Path(words["run"])) | {"note": words["note"]}
    if words["out"]:
        out = Path(words["out"])
        write_json(out, result)
        out.with_suffix(".svg").write_text(plot(result))
    print(json.dumps({name: value for name, value in result["evaluation"].items() if name == "torch"}, indent=1))


if __name__ == "__main__":
    run_script(main)

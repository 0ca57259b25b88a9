"""Read evaluations, each of one policy in one engine, and merge them into a table.

Engines do not fit into one process, or one environment: each evaluation is a separate file, and this needs no engine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from robot_rl.errors import UserError
from robot_rl.files import read_json
from robot_rl.metrics.description import judged, shown_unit
from robot_rl.sources.registry import source_of
from robot_rl.view.chart import BLUE, FAINT, GRID, INK, LIGHT_BLUE, ORANGE, Canvas

METRIC_LOSS, SURVIVAL_LOSS = 0.15, 0.03
"""The most that a policy may lose in another engine than its own: a share of its metric, points of survival."""
MAX_BYTES = 2**26
"""Bytes that an evaluation's file may have."""
KINDS = ("onnx", "torch")
"""The forms of a policy; the first that was evaluated counts."""
WIDTH, HEAD, ROW, GAP, FOOT = 1100, 76, 34, 42, 26
NAMES, LEFT, MIDDLE, FIGURES, RIGHT = 20, 190, 560, 572, 720
"""Where names, the panel of the metric, its figures and the panel of failures begin; the first one ends at MIDDLE."""


@dataclass(kw_only=True, slots=True)
class Cell:
    """A policy in an engine.

    Attributes:
        policy: The run's id, or the bundle's folder.
        trained_on: The training engine; empty if the file does not specify it.
        engine: The engine of the evaluation.
        kind: The evaluated form, "onnx" or "torch".
        seconds: Length of each episode at most [s].
        metric: The compared metric: the task's first one that has better values, else the return.
        unit: Its unit.
        better: "smaller" or "larger".
        mean, std: Its mean and standard deviation over episodes; None if no episode has it.
        failure_rate: Share of episodes that ended by a termination other than a time-out.
        file: The file of the evaluation.
    """

    policy: str
    task: str
    trained_on: str
    engine: str
    kind: str
    episodes: int
    seconds: float
    metric: str
    unit: str
    better: str
    mean: float | None
    std: float | None
    failure_rate: float
    file: str

    @property
    def standard_error(self) -> float:
        """Return the standard error of the metric's mean."""
        return (self.std or 0.0) / math.sqrt(self.episodes)


@dataclass(kw_only=True, slots=True)
class Table:
    """All evaluations of some policies: rows and columns in order of appearance, cells by policy and engine."""

    policies: list[str]
    engines: list[str]
    cells: dict[tuple[str, str], Cell]

    def home(self, policy: str) -> Cell | None:
        """Return the evaluation of a policy in its training engine; None if it is missing."""
        cells = (cell for cell in self.cells.values() if cell.policy == policy)
        return next((cell for cell in cells if cell.engine == cell.trained_on), None)

    def losses(self, cell: Cell) -> dict[str, Any] | None:
        """Return the losses of a policy compared with its training engine.

        Returns:
            "metric", by how much of its value at home the metric is worse; "survival", the increase of the failure
            rate; "within", whether both are within METRIC_LOSS and SURVIVAL_LOSS. None at home, or without a home.
        """
        home = self.home(cell.policy)
        if home is None or home is cell:
            return None
        worse = None
        if cell.mean is not None and home.mean:
            worse = (cell.mean - home.mean) / abs(home.mean)
            worse = worse if cell.better == "smaller" else -worse
        survival = cell.failure_rate - home.failure_rate
        within = (worse is None or worse <= METRIC_LOSS) and survival <= SURVIVAL_LOSS + 1e-9
        return {"metric": worse, "survival": survival, "within": within}


def read_cell(path: Path, home: str = "") -> Cell:
    """Read a file of robot-rl eval.

    Args:
        path: The file.
        home: The training engine, if the file does not specify it.

    Raises:
        UserError: The file does not exist, is not an evaluation, or does not specify its engine.
    """
    data = read_json(path, MAX_BYTES)
    kind = next((kind for kind in KINDS if isinstance(data, Mapping) and kind in data), None)
    if kind is None:
        raise UserError(f"{path}: is no evaluation; robot-rl eval writes them")
    if why := source_of(data.get("task", "")).unsupported.get("cross"):
        raise UserError(f"{path}: {data['task']} {why}")
    if data.get("engine") is None:
        raise UserError(f"{path}: does not say its engine, an older version wrote it; evaluate again")
    figures = data[kind]
    if not isinstance(figures, Mapping):
        raise UserError(f"{path}: damaged, '{kind}' holds no figures")
    if "metrics" not in data:
        raise UserError(f"{path}: does not say what its metrics are, an older version wrote it; evaluate again")
    if figures.get("failure_rate", 0) is None:
        raise UserError(f"{path}: all its episodes were quarantined; see docs/quarantine.md")
    for key in ("policy", "task", "engine", "trained_on"):
        if not isinstance(data.get(key) or "", str):
            raise UserError(f"{path}: damaged, {key}={data[key]} is no word")
    try:
        metric = next(iter(judged(data["metrics"])), "return")
        row = data["metrics"][metric]
        return Cell(
            policy=str(data["policy"]),
            task=str(data["task"]),
            trained_on=str(data.get("trained_on") or home),
            engine=data["engine"],
            kind=kind,
            episodes=int(data["episodes"]),
            seconds=_finite(float(data["seconds"])),
            metric=metric,
            unit=str(row["unit"]),
            better=str(row["better"]),
            mean=_figure(figures, metric, "mean"),
            std=_figure(figures, metric, "std"),
            failure_rate=_finite(float(figures["failure_rate"]["mean"])),
            file=str(path),
        )
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{path}: damaged, {error} is missing or of the wrong kind") from None


def metric_title(cell: Cell) -> str:
    """Return the name of a cell's metric in words, with its unit."""
    name, unit = cell.metric.replace("_", " "), shown_unit(cell.unit)
    return f"{name} [{unit}]" if unit else name


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"a figure of {value}")
    return value


def merge(cells: Sequence[Cell]) -> Table:
    """Merge evaluations into a table."""
    if not cells:
        raise UserError("nothing to merge: name the files that robot-rl eval wrote, or runs that have some")
    table = Table(policies=[], engines=[], cells={})
    for cell in cells:
        if cell.task != cells[0].task:
            raise UserError(f"{cell.file}: is of task {cell.task}, {cells[0].file} of {cells[0].task}; merge one task")
        if cell.metric != cells[0].metric:
            other = f"{cells[0].file} of {cells[0].metric}"
            raise UserError(f"{cell.file}: is of the metric {cell.metric}, {other}; evaluate both again")
        key = (cell.policy, cell.engine)
        if key in table.cells:
            other = table.cells[key].file
            raise UserError(f"{cell.file} and {other}: both are {cell.policy} in {cell.engine}; leave one out")
        table.cells[key] = cell
        table.policies += [cell.policy] if cell.policy not in table.policies else []
        table.engines += [cell.engine] if cell.engine not in table.engines else []
    # An engine that a policy learned in comes before those that none did.
    homes = [cell.trained_on for cell in cells]
    table.engines.sort(key=lambda engine: engine not in homes)
    return table


def to_json(table: Table) -> dict[str, Any]:
    """Return the table as plain values: "policies", "engines", and "cells", each with its "losses"."""
    cells = [asdict(cell) | {"losses": table.losses(cell)} for cell in table.cells.values()]
    bounds = {"metric": METRIC_LOSS, "survival": SURVIVAL_LOSS}
    return {"policies": table.policies, "engines": table.engines, "bounds": bounds, "cells": cells}


def in_percent(share: float) -> str:
    """Return a change as whole percent with its sign; no minus before a zero."""
    return f"{round(100 * share) + 0:+d}%"


def _figure(figures: Mapping[str, Any], name: str, part: str) -> float | None:
    value = figures.get(name)
    return None if value is None or value.get(part) is None else float(value[part])


def draw_table(table: Table) -> Any:
    """Return the table as a `PIL.Image.Image`."""
    rows = {policy: [cell for cell in table.cells.values() if cell.policy == policy] for policy in table.policies}
    height = HEAD + sum(GAP + ROW * len(cells) for cells in rows.values()) + FOOT
    canvas = Canvas(WIDTH, height)
    first = next(iter(table.cells.values()))
    canvas.text((NAMES, 14), f"{first.task}: one policy in several engines", 20, INK)
    canvas.text((RIGHT, 48), "episodes that failed", 13, FAINT)
    what = f"{metric_title(first)}, mean and two standard errors; {first.better} is better"
    canvas.text((LEFT, 48), what, 13, FAINT)
    most = max([abs(cell.mean or 0.0) for cell in table.cells.values()] + [1e-9])
    top = HEAD
    for policy, cells in rows.items():
        home = table.home(policy)
        trained = f", trained in {home.trained_on}" if home else ""
        canvas.text((NAMES, top + 12), f"{policy}{trained}", 14, INK)
        top += GAP
        bottom = top + ROW * len(cells)
        if home is not None and home.mean and home.better == "smaller":
            x = LEFT + (1 + METRIC_LOSS) * home.mean / (1.25 * most) * (MIDDLE - LEFT)
            canvas.line((x, top - 4, x, bottom - 4), FAINT)
            canvas.text((x, top - 18), f"+{METRIC_LOSS:.0%}", 11, FAINT, "ma")
        for cell in sorted(cells, key=lambda cell: table.engines.index(cell.engine)):
            _draw_row(canvas, top, table, cell, most)
            top += ROW
    return canvas.image()


def _draw_row(canvas: Canvas, top: float, table: Table, cell: Cell, most: float) -> None:
    losses = table.losses(cell)
    color = BLUE if losses is None else LIGHT_BLUE if losses["within"] else ORANGE
    canvas.text((NAMES + 20, top + 5), cell.engine, 14, INK)
    value = cell.mean
    if value is not None:
        scale = (MIDDLE - LEFT) / (1.25 * most)
        end, spread = LEFT + max(0.0, value) * scale, 2 * cell.standard_error * scale
        canvas.box((LEFT, top + 3, end, top + ROW - 9), color)
        canvas.line((end - spread, top + ROW / 2 - 3, end + spread, top + ROW / 2 - 3), INK)
        change = "" if losses is None or losses["metric"] is None else f"  {in_percent(losses['metric'])}"
        figure = f"{value:.3f}" if abs(value) < 1.0 else f"{value:.3g}"
        canvas.text((FIGURES, top + 5), f"{figure}{change}", 13, INK)
    room = WIDTH - RIGHT - 150
    canvas.box((RIGHT, top + 3, RIGHT + room, top + ROW - 9), GRID)
    canvas.box((RIGHT, top + 3, RIGHT + max(1.0, room * cell.failure_rate), top + ROW - 9), color)
    canvas.text((RIGHT + room + 8, top + 5), f"{cell.failure_rate:.1%} of {cell.episodes}", 13, INK)

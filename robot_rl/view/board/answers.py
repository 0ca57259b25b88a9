"""What the board's page asks for, as plain values: the table, groups, curves, one run, the differences of two."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robot_rl.errors import UserError
from robot_rl.files import finite, read_json
from robot_rl.metrics.intervals import interquartile_mean, interval
from robot_rl.runs.labels import Labels, move_to_trash, restore, write_labels
from robot_rl.runs.run_dir import RunDir
from robot_rl.runs.run_index import differences
from robot_rl.view.board.curves import Curve, MetricsReader, make_curve
from robot_rl.view.board.table import ListedRun, RunTable, created
from robot_rl.view.chart import numbers
from robot_rl.view.report.data import X_KEYS

GOAL = "goal"
"""Stands for the metric that the run's task is solved by, else the return."""
MOST_CURVES, MOST_METRICS, MOST_GROUPS = 40, 12, 20_000
MAX_EVALUATION = 4 * 2**20
"""Most bytes of an eval.json."""


class Board:
    """Answers the page's questions about the runs of a table."""

    def __init__(self, table: RunTable) -> None:
        self.table, self._reader = table, MetricsReader()

    def runs(self, since: int, bases: int, metrics: Sequence[str]) -> dict[str, Any]:
        """Return the runs that have changed since a version of the table, 0 for all of them.

        Args:
            since: The version that the page has.
            bases: How many of the table's bases the page has.
            metrics: Metrics whose newest values are returned with each run.
        """
        version, changed, gone = self.table.since(since)
        return {
            "id": self.table.id,
            "root": str(self.table.root),
            "now": time.time(),
            "version": version,
            "runs": [_run(name, run, metrics) for name, run in changed],
            "gone": gone,
            "bases": dict(list(self.table.bases.items())[bases:]),
            "metrics": list(self.table.metrics),
            "reading": sum(run.is_pending for run in list(self.table.runs.values())),
        }

    def groups(self, asked: Any) -> list[dict[str, Any]]:
        """Return the figures of groups of runs: {"metric": name, "groups": [[run, ...], ...]}."""
        groups = _names_of(asked, "groups", MOST_GROUPS)
        metric = _metric(asked.get("metric"))
        found = []
        for names in groups:
            rows = [self.table.get(name).row for name in names]
            values = [row.goal[1] if metric == GOAL else row.last.get(metric) for row in rows]
            found.append(_figures([float(value) for value in values if isinstance(value, int | float)]))
        return found

    def curves(self, asked: Any) -> dict[str, Any]:
        """Return curves: {"metrics": [name, ...], "axis": one of X_KEYS, "curves": [[run, ...], ...]}.

        Returns:
            "curves": for each metric a curve for each list of runs; "bounds": for each metric the value that counts as
            solved, else None.
        """
        groups = _names_of(asked, "curves", MOST_CURVES)
        metrics = [_metric(name) for name in _list(asked.get("metrics"), "metrics", MOST_METRICS)]
        axis = asked.get("axis")
        if axis not in X_KEYS:
            raise UserError("axis", axis, f"must be one of {', '.join(X_KEYS)}")
        runs = [[self.table.get(name) for name in names] for names in groups]
        return {
            "curves": [
                [_points(make_curve([self._xy(run, axis, m) for run in some])) for some in runs] for m in metrics
            ],
            "bounds": [_bound([run for some in runs for run in some], metric) for metric in metrics],
        }

    def _xy(self, run: ListedRun, axis: str, metric: str) -> tuple[np.ndarray, np.ndarray]:
        name = run.row.goal[0] if metric == GOAL else metric
        columns = self._reader.read(run.row.path / "metrics.jsonl", (axis, name))
        return columns[axis], columns[name]

    def run(self, name: str) -> dict[str, Any]:
        """Return everything about a run that the page shows beside the table."""
        run = self.table.get(name)
        row = run.row
        found: dict[str, Any] = {"settings": row.settings, "record": row.record, "words": RunDir(row.path).words}
        found["note"] = row.labels.note
        found["last"] = {key: value for key, value in row.last.items() if isinstance(value, int | float)}
        found["evaluation"] = _evaluation(run) if "eval.json" in run.files else {}
        return found

    def diff(self, one: str, other: str) -> dict[str, Any]:
        """Return the differences between two runs, see `robot_rl.runs.run_index.differences`."""
        return dict(differences(self.table.get(one).row, self.table.get(other).row))

    def label(self, asked: Any) -> dict[str, Any]:
        """Give a run its name, tags and note: {"run": name, "name": text, "tags": [word, ...], "note": text}."""
        path = self.table.get(str(_entry(asked, "run"))).row.path
        labels = Labels.of(asked)
        with self.table.writing(path):
            write_labels(path, labels)
        return {}

    def delete(self, asked: Any) -> dict[str, Any]:
        """Move a run, {"run": name}, into the trash, and return "trash", which `restore` takes."""
        path = self.table.get(str(_entry(asked, "run"))).row.path
        with self.table.writing(path):
            return {"trash": move_to_trash(self.table.root, ["/".join(path.parts[-2:])])}

    def restore(self, asked: Any) -> dict[str, Any]:
        """Move deleted runs, {"trash": name}, back into their places."""
        with self.table.writing():
            return {"runs": restore(self.table.root, str(_entry(asked, "trash")))}


def _run(name: str, run: ListedRun, metrics: Sequence[str]) -> dict[str, Any]:
    row = run.row
    return {
        "name": name,
        "task": row.task,
        "state": row.state,
        "iterations": row.iterations,
        "goal": row.goal if row.settings else ("", None),  # Which metric it is, run.yaml says.
        "created": created(row),
        "changed": row.changed_s,
        "set": run.changed if row.settings else None,
        "gone": run.gone,
        "files": run.files,
        "reading": run.is_pending,
        "label": row.labels.name,
        "tags": row.labels.tags,
        "metrics": [row.last.get(metric) for metric in metrics],
    }


def _figures(values: Sequence[float]) -> dict[str, Any]:
    finite = [value for value in values if np.isfinite(value)]
    if not finite:
        return {"runs": 0}
    low, high = interval(finite) if len(finite) > 1 else (None, None)
    ends = {"least": min(finite), "most": max(finite)}
    return {"runs": len(finite), "middle": interquartile_mean(finite), "low": low, "high": high, **ends}


def _points(curve: Curve) -> dict[str, Any]:
    return {
        **{name: numbers(getattr(curve, name)) for name in ("x", "y", "low", "high")},
        "runs": [int(count) for count in curve.runs],
    }


def _bound(runs: Sequence[ListedRun], metric: str) -> float | None:
    """Return the value that counts as solved; None if it is not the same for all runs."""
    found = set()
    for run in runs:
        name, bound = run.row.solved or ("", None)
        found.add(bound if metric in (GOAL, name) and name in run.row.last else None)
    return found.pop() if len(found) == 1 else None


def _evaluation(run: ListedRun) -> dict[str, Any]:
    """Return policy -> metric -> [mean, standard deviation] of eval.json; empty if it is damaged."""
    try:
        content = read_json(run.row.path / "eval.json", MAX_EVALUATION)
    except UserError:
        return {}
    found: dict[str, Any] = {}
    for policy in ("torch", "onnx"):
        block = content.get(policy) if isinstance(content, dict) else None
        rows = block.items() if isinstance(block, dict) else ()
        found[policy] = {key: [row.get("mean"), row.get("std")] for key, row in rows if isinstance(row, dict)}
    return {policy: rows for policy, rows in found.items() if rows}


def _entry(asked: Any, key: str) -> Any:
    return asked.get(key) if isinstance(asked, Mapping) else None


def _list(value: Any, name: str, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise UserError(f"{name}: must be a list of at most {most}")
    return value


def _names_of(asked: Any, key: str, most: int) -> list[list[str]]:
    """Return lists of names of runs from a question."""
    lists = _list(asked.get(key) if isinstance(asked, Mapping) else None, key, most)
    for names in lists:
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UserError(f"{key}: must be lists of names of runs")
    return lists


def _metric(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise UserError("metric", name, f"must be a metric's name in metrics.jsonl, or {GOAL}")
    return name


def to_json(value: Any) -> bytes:
    """Return a value as JSON, with null for numbers that are not finite."""
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"), default=str)
    except ValueError:
        text = json.dumps(finite(value), allow_nan=False, separators=(",", ":"), default=str)
    return text.encode()

"""The files of a run, read for the report.

A file may be cut off at any byte or contain NaN, and the run may have been resumed. Parts that cannot be read are
omitted, with a line in `RunData.notes`, which the report prints at its top.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.files import read_yaml
from robot_rl.metrics.description import Descriptions, read_solved
from robot_rl.metrics.rows import read_row

MAX_POINTS = 500
X_KEYS = ("iteration", "env_steps", "time_s")
TIME_LIMITS = ("termination/time_limit", "termination/time_out")
"""Metrics of the episodes that ended by their time limit."""


@dataclass(kw_only=True, slots=True)
class RunData:
    """Everything that the report shows.

    Attributes:
        path: the run directory.
        columns: metric name -> values, shape (rows,); NaN for a row without a finite number.
        config_text: content of run.yaml, empty if there is none.
        config: run.yaml parsed, empty if it cannot be read.
        evaluation: eval.json parsed, None if there is none.
        video: video.mp4, None if there is none.
        notes: a sentence for everything that was omitted or looks wrong.
    """

    path: Path
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    config_text: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    evaluation: dict[str, Any] | None = None
    video: Path | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Number of iterations read."""
        return len(self.columns["iteration"]) if self.columns else 0

    @property
    def metrics(self) -> Descriptions:
        """Descriptions of the task's own metrics, from run.yaml, else eval.json; empty for runs of older versions."""
        found = read_descriptions(self.config.get("metrics")) or read_descriptions(
            (self.evaluation or {}).get("metrics")
        )
        return {name: row for name, row in found.items() if "over" in row}

    def endings(self) -> dict[str, np.ndarray]:
        """Return how many episodes ended in each iteration (rows,) by cause, by the time limit first; empty if unknown.

        Two causes of one step are counted twice.
        """
        shares = {key: column for key, column in self.columns.items() if key.startswith("termination/")}
        if not shares or "episodes" not in self.columns:
            return {}
        limit = next((key for key in TIME_LIMITS if key in shares), TIME_LIMITS[0])
        rest = 1.0 - np.sum([column for key, column in shares.items() if key != limit], axis=0)
        shares = {limit: shares.get(limit, np.maximum(rest, 0.0))} | shares
        return {key: np.nan_to_num(column * self.columns["episodes"]) for key, column in shares.items()}

    def simulated(self) -> tuple[np.ndarray, str]:
        """Return the time of all worlds in each iteration (rows,), and the words for "per" its unit.

        It is in minutes if run.yaml has the control period, else in thousands of control steps.
        """
        steps = self.columns["env_steps"]
        is_cut = self.columns["iteration"][0] != 1 and self.rows > 1
        done = np.diff(steps, prepend=2.0 * steps[0] - steps[1] if is_cut else 0.0)
        period = number_of(find_value(self.config, "timestep")) * number_of(find_value(self.config, "decimation"))
        known = not math.isnan(period)
        return done * (period / 60.0 if known else 1e-3), f"per world and {'minute' if known else '1000 steps'}"

    @property
    def solved(self) -> tuple[str, float] | None:
        """The metric and the bound that count as solved, None if the task declares none."""
        key, bound = read_solved(self.config.get("solved")) or ("", 0.0)
        name = key.removeprefix("tracking/")
        return (name, bound) if name in self.metrics else None


def read_run(run_dir: Path) -> RunData:
    """Read metrics.jsonl, run.yaml, eval.json and video.mp4 of a run directory."""
    data = RunData(path=run_dir)
    _read_metrics(run_dir / "metrics.jsonl", data)
    _read_config(run_dir / "run.yaml", data)
    _read_evaluation(run_dir / "eval.json", data)
    video = run_dir / "video.mp4"
    if video.is_file() and video.stat().st_size > 0:
        data.video = video
    return data


def mappings(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every mapping of a tree of nested mappings, breadth first."""
    level = [tree]
    while found := [node for node in level if isinstance(node, dict)]:
        yield from found
        level = [child for node in found for child in node.values()]


def read_descriptions(tree: Any) -> Descriptions:
    """Return the descriptions of metrics from a tree that may be damaged; missing parts are empty."""
    rows = {str(name): row for name, row in tree.items() if isinstance(row, dict)} if isinstance(tree, dict) else {}
    found: Descriptions = {}
    for name, row in rows.items():
        found[name] = {key: str(row.get(key) or "") for key in ("unit", "meaning", "better")}
        if "over" in row:
            after_s = number_of(row.get("after_s"))
            found[name] |= {"over": str(row["over"]), "after_s": 0.0 if math.isnan(after_s) else after_s}
    return found


def find_value(tree: Any, name: str) -> Any:
    """Return the first scalar called `name` in a tree, None if there is none."""
    return next((m[name] for m in mappings(tree) if name in m and not isinstance(m[name], dict | list)), None)


def find_mapping(tree: Any, name: str) -> dict[str, Any]:
    """Return the first mapping called `name` in a tree, empty if there is none."""
    return next((m[name] for m in mappings(tree) if isinstance(m.get(name), dict)), {})


def thin(columns: dict[str, np.ndarray], max_points: int = MAX_POINTS) -> tuple[dict[str, np.ndarray], int]:
    """Shorten long runs: average each `k` consecutive rows, without NaN, to at most `max_points`.

    Returns:
        The columns, shape (ceil(rows / k),), and k. The x columns take the last value of each group.
    """
    rows = len(columns["iteration"])
    k = max(1, math.ceil(rows / max_points))
    if k == 1:
        return columns, 1
    groups = math.ceil(rows / k)
    short: dict[str, np.ndarray] = {}
    for name, values in columns.items():
        padded = np.full(groups * k, np.nan)
        padded[:rows] = values
        table = padded.reshape(groups, k)
        if name in X_KEYS:
            short[name] = np.array([row[~np.isnan(row)][-1] if (~np.isnan(row)).any() else np.nan for row in table])
            continue
        count = (~np.isnan(table)).sum(1)
        total = np.nansum(table, 1)
        short[name] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return short, k


def last_mean(values: np.ndarray, rows: int = 10) -> float:
    """Return the mean of the finite values among the last `rows` rows; NaN if there is none."""
    tail = values[-rows:]
    tail = tail[np.isfinite(tail)]
    return float(tail.mean()) if tail.size else math.nan


def trailing_mean(values: np.ndarray, window: int = 5) -> np.ndarray:
    """Return the mean over the last `window` rows at every row, NaN until the window is full of finite values."""
    out = np.full(len(values), np.nan)
    if len(values) >= window:
        out[window - 1 :] = np.lib.stride_tricks.sliding_window_view(values, window).mean(axis=1)
    return out


def _read_metrics(path: Path, data: RunData) -> None:
    if not path.is_file():
        data.notes.append("metrics.jsonl is missing: the run has not finished its first iteration.")
        return
    rows: list[dict[str, Any]] = []
    damaged, replaced = 0, 0
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines):
        if (row := read_row(line)) is not None:
            while rows and rows[-1]["iteration"] >= row["iteration"]:
                rows.pop()
                replaced += 1
            rows.append(row)
        elif line.strip() and number == len(lines) - 1:
            data.notes.append("The last line of metrics.jsonl is cut off and was omitted.")
        else:
            damaged += bool(line.strip())
    if damaged:
        data.notes.append(f"{_count(damaged, 'line')} of metrics.jsonl could not be read and were omitted.")
    if replaced:
        data.notes.append(
            f"The run was resumed from an earlier checkpoint; of {_count(replaced, 'iteration')} done twice "
            "the last ones are shown."
        )
    if rows:
        data.columns = _columns(rows, data)


def _columns(rows: list[dict[str, Any]], data: RunData) -> dict[str, np.ndarray]:
    names = list(dict.fromkeys([*X_KEYS, *(name for row in rows for name in row)]))
    columns = {name: np.array([number_of(row.get(name)) for row in rows]) for name in names}
    # A metric of episodes is missing if none ended in an iteration; a loss or a standard deviation never is.
    vital = [name for name in names if name.startswith(("loss/", "policy/"))]
    broken = [name for name in vital if any(name in row and math.isnan(number_of(row[name])) for row in rows)]
    if broken:
        data.notes.append(f"Not finite in some iterations: {', '.join(broken)}. The curves have gaps there.")
    for name in ("env_steps", "time_s"):
        columns[name] = continued(columns[name])
    return {name: values for name, values in columns.items() if name in X_KEYS or np.isfinite(values).any()}


def number_of(value: Any) -> float:
    """Return a finite number as it is, NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        value = float(value)
    except OverflowError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def continued(values: np.ndarray) -> np.ndarray:
    """Continue a clock that restarted with a resumed process."""
    out = values.copy()
    offset, last = 0.0, -math.inf
    for i, value in enumerate(values):
        if math.isnan(value):
            continue
        if value + offset < last:
            offset = last
        out[i] = last = value + offset
    return out


def _read_config(path: Path, data: RunData) -> None:
    if not path.is_file():
        data.notes.append("run.yaml is missing: the run's settings are unknown.")
        return
    data.config_text = path.read_text(encoding="utf-8", errors="replace")
    try:
        config = read_yaml(data.config_text)
    except ValueError:
        config = None
    if isinstance(config, dict):
        data.config = config
    else:
        data.notes.append("run.yaml cannot be read as a mapping; it is shown as it is.")


def _read_evaluation(path: Path, data: RunData) -> None:
    if not path.is_file():
        return
    try:
        evaluation = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        evaluation = None
    if isinstance(evaluation, dict):
        data.evaluation = evaluation
    else:
        data.notes.append("eval.json is damaged; evaluate the run again.")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

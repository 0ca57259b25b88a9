"""What a run left behind, read for the report: forgiving about damaged files, never about wrong figures.

A run may be cut off at any byte, may hold NaN, may have been resumed. What cannot be read is left out and said so in
`RunData.notes`; the report prints these notes at its top.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.files import read_yaml

MAX_POINTS = 500
X_KEYS = ("iteration", "env_steps", "time_s")
TIME_LIMITS = ("termination/time_limit", "termination/time_out")
"""Names under which an episode's good ending is written down."""


@dataclass(kw_only=True, slots=True)
class RunData:
    """Everything the report shows.

    Attributes:
        path: the run directory.
        columns: metric name -> values, shape (rows,); NaN where a row lacks the key or holds no finite number.
        config_text: run.yaml as it stands, empty when there is none.
        config: run.yaml parsed, empty when there is none or it cannot be read.
        evaluation: eval.json parsed, None when there is none.
        video: video.mp4, None when there is none.
        notes: one sentence for everything that was left out or looks wrong.
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


def read_run(run_dir: Path) -> RunData:
    """Reads a run directory.

    Args:
        run_dir: the directory of one run; only metrics.jsonl, run.yaml, eval.json and video.mp4 are looked at.

    Returns:
        What could be read, with notes about what could not.
    """
    data = RunData(path=run_dir)
    _read_metrics(run_dir / "metrics.jsonl", data)
    _read_config(run_dir / "run.yaml", data)
    _read_evaluation(run_dir / "eval.json", data)
    video = run_dir / "video.mp4"
    if video.is_file() and video.stat().st_size > 0:
        data.video = video
    return data


def find_value(tree: Any, name: str) -> Any:
    """Looks for the first scalar called `name` anywhere in a nested mapping, breadth first.

    Args:
        tree: nested dicts (run.yaml).
        name: the key.

    Returns:
        The value, or None when no such scalar exists.
    """
    level: list[Any] = [tree]
    while level:
        for node in level:
            if isinstance(node, dict) and name in node and not isinstance(node[name], dict | list):
                return node[name]
        level = [child for node in level if isinstance(node, dict) for child in node.values()]
    return None


def thin(columns: dict[str, np.ndarray], max_points: int = MAX_POINTS) -> tuple[dict[str, np.ndarray], int]:
    """Shortens long runs: every point becomes the mean of `k` consecutive rows, ignoring NaN.

    Args:
        columns: metric name -> values, shape (rows,).
        max_points: the most points a curve may keep.

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
    """Mean of the finite values among the last `rows` rows; NaN when there is none."""
    tail = values[-rows:]
    tail = tail[np.isfinite(tail)]
    return float(tail.mean()) if tail.size else math.nan


def trailing_mean(values: np.ndarray, window: int = 5) -> np.ndarray:
    """Mean over the last `window` rows at every row, NaN until the window is full of finite values."""
    out = np.full(len(values), np.nan)
    for i in range(window - 1, len(values)):
        out[i] = values[i - window + 1 : i + 1].mean()
    return out


def _read_metrics(path: Path, data: RunData) -> None:
    if not path.is_file():
        data.notes.append("There is no metrics.jsonl: the run has not finished its first iteration.")
        return
    text = path.read_bytes().decode("utf-8", errors="replace")
    rows: list[dict[str, Any]] = []
    damaged, replaced = 0, 0
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        row = _parse_row(line)
        if row is None:
            if number == len(lines) - 1:
                data.notes.append("The last line of metrics.jsonl is cut off and was left out.")
            else:
                damaged += 1
            continue
        while rows and rows[-1]["iteration"] >= row["iteration"]:
            rows.pop()
            replaced += 1
        rows.append(row)
    if damaged:
        data.notes.append(f"{_count(damaged, 'line')} of metrics.jsonl could not be read and were left out.")
    if replaced:
        data.notes.append(
            f"The run was resumed from an earlier checkpoint; {_count(replaced, 'iteration')} done twice "
            "appear once, as done last."
        )
    if rows:
        data.columns = _columns(rows, data)


def _parse_row(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    iteration = row.get("iteration")
    if isinstance(iteration, bool) or not isinstance(iteration, int | float) or not math.isfinite(iteration):
        return None
    return row


def _columns(rows: list[dict[str, Any]], data: RunData) -> dict[str, np.ndarray]:
    names = list(dict.fromkeys([*X_KEYS, *(name for row in rows for name in row)]))
    columns = {name: np.array([_number(row.get(name)) for row in rows]) for name in names}
    # What happens to no episode in an iteration is rightly missing; a loss or a standard deviation never is.
    vital = [name for name in names if name.startswith(("loss/", "policy/"))]
    broken = [name for name in vital if any(name in row and math.isnan(_number(row[name])) for row in rows)]
    if broken:
        data.notes.append(f"Not finite in some iterations: {', '.join(broken)}. The curves have gaps there.")
    for name in ("env_steps", "time_s"):
        columns[name] = _continued(columns[name])
    return {name: values for name, values in columns.items() if name in X_KEYS or np.isfinite(values).any()}


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        value = float(value)
    except OverflowError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def _continued(values: np.ndarray) -> np.ndarray:
    """A clock that restarted with a resumed process goes on from where it stood."""
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
        data.notes.append("There is no run.yaml: the run's settings are unknown.")
        return
    data.config_text = path.read_text(encoding="utf-8", errors="replace")
    try:
        config = read_yaml(data.config_text)
    except ValueError:
        config = None
    if isinstance(config, dict):
        data.config = config
    else:
        data.notes.append("run.yaml cannot be read as a mapping; it is shown as it stands.")


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

"""Curves of runs and of groups of runs, from the rows of their metrics.jsonl.

A group's curve is the interquartile mean over its runs with the percentile bootstrap interval
(`robot_rl.metrics.intervals`); runs are drawn whole, so that neighboring points belong together.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from robot_rl.errors import UserError
from robot_rl.files import open_plain
from robot_rl.metrics.intervals import bands
from robot_rl.metrics.rows import read_row
from robot_rl.view.report.data import X_KEYS, continued, number_of

POINTS = 300
"""Most points of a curve."""
MOST_KEPT = 32_000_000
"""Most numbers that are kept in memory of the files that were read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """A curve over one axis.

    Attributes:
        x: Positions of the points (points,).
        y: The run's values there, or the interquartile mean over runs (points,); NaN without one.
        low: Lower end of the 95 % interval (points,); NaN if fewer than two runs have a value.
        high: Upper end of it (points,).
        runs: How many runs have a value there (points,).
    """

    x: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray
    runs: np.ndarray


class MetricsReader:
    """Reads columns of metrics.jsonl, and keeps them until the file changes. May be used by several threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Path, tuple[tuple[int, ...], dict[str, np.ndarray]]] = OrderedDict()
        self._lock, self._total = threading.Lock(), 0

    def read(self, path: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Return columns (rows,) by name, "iteration" among them; NaN for rows without a number. Empty: no file."""
        wanted = dict.fromkeys(("iteration", *names))
        with contextlib.suppress(OSError, UserError), open(open_plain(path), "rb") as stream:
            status = os.fstat(stream.fileno())
            stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
            with self._lock:
                before, columns = self._kept.get(path, (stamp, {}))
            columns = columns if before == stamp else {}
            if lacking := [name for name in wanted if name not in columns]:
                columns = columns | read_columns(stream.read(), [*dict.fromkeys(("iteration", *lacking))])
                self._keep(path, stamp, columns)
            return {name: columns[name] for name in wanted}
        return {name: np.empty(0) for name in wanted}

    def _keep(self, path: Path, stamp: tuple[int, ...], columns: dict[str, np.ndarray]) -> None:
        with self._lock:
            self._drop(path)
            self._kept[path] = (stamp, columns)
            self._total += _count(columns)
            while self._total > MOST_KEPT and len(self._kept) > 1:
                self._drop(next(iter(self._kept)))

    def _drop(self, path: Path) -> None:
        if path in self._kept:
            self._total -= _count(self._kept.pop(path)[1])


def _count(columns: dict[str, np.ndarray]) -> int:
    return sum(len(values) for values in columns.values())


def read_columns(data: bytes, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return columns (rows,) of the whole rows of a metrics.jsonl; the first of `names` is "iteration".

    Lines that are not rows are omitted. If a resumed run repeated an iteration, the later row counts.
    """
    whole = data[: data.rfind(b"\n") + 1]  # The last line is still being written, or empty.
    columns = _flat_columns(whole, names) or _any_columns(whole, names)
    iteration = columns["iteration"]
    if len(iteration):
        later = np.append(np.minimum.accumulate(iteration[::-1])[-2::-1], np.inf)
        columns = {name: values[iteration < later] for name, values in columns.items()}
    return columns | {name: continued(columns[name]) for name in X_KEYS[1:] if name in columns}


def _flat_columns(data: bytes, names: Sequence[str]) -> dict[str, np.ndarray] | None:
    """Return columns of rows as our writer writes them, much sooner than by parsing; None: parse them.

    In lines that are one object of numbers each a name in quotes can only be a key.
    """
    signs = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(signs == ord("\n"))
    begins = np.append(0, ends[:-1] + 1) if len(ends) else ends
    is_flat = data.count(b"{") == len(ends) and b"[" not in data and b"\\" not in data
    if not is_flat or (signs[begins] != ord("{")).any() or (signs[ends - 1] != ord("}")).any():
        return None
    columns = {}
    for name in names:
        found = list(re.finditer(re.escape(f"{json.dumps(name)}: ".encode()) + rb"([^,}]*)", data))
        rows = np.searchsorted(ends, [match.start() for match in found])
        if len(np.unique(rows)) < len(rows):
            return None
        try:
            values = np.array([math.nan if match[1] == b"null" else float(match[1]) for match in found])
        except ValueError:
            return None
        columns[name] = np.full(len(ends), np.nan)
        columns[name][rows] = np.where(np.isfinite(values), values, np.nan)
    iteration = columns["iteration"]
    return columns if np.array_equal(iteration, np.floor(iteration)) else None


def _any_columns(data: bytes, names: Sequence[str]) -> dict[str, np.ndarray]:
    rows = [row for line in data.split(b"\n") if (row := read_row(line)) is not None]
    table = np.array([[number_of(row.get(name)) for name in names] for row in rows]).reshape(len(rows), len(names))
    return {name: table[:, index] for index, name in enumerate(names)}


def make_curve(runs: Sequence[tuple[np.ndarray, np.ndarray]], points: int = POINTS) -> Curve:
    """Return the curve of a run, or of a group of runs.

    Args:
        runs: x and y of each run (rows,), x rising; rows in which either is NaN are omitted.
        points: If the runs have more places than this, the places are divided into this many cells of the same width,
            and a run's value in a cell is its mean there.
    """
    data = [(x[there], y[there]) for x, y in runs for there in (np.isfinite(x) & np.isfinite(y),)]
    data = [(x, y) for x, y in data if len(x)]
    if not data:
        return Curve(**{name: np.empty(0) for name in ("x", "y", "low", "high", "runs")})
    places = np.unique(np.concatenate([x for x, _ in data]))
    if len(places) <= points:
        table = np.stack([_between(places, x, y) for x, y in data])
    else:
        edges = np.linspace(places[0], places[-1], points + 1)
        places = (edges[:-1] + edges[1:]) / 2
        table = np.stack([_between(places, *_cells(edges, places, x, y)) for x, y in data])
    if len(table) == 1:
        y, low, high = table[0], np.full(len(places), np.nan), np.full(len(places), np.nan)
    else:
        y, low, high = bands(table)
    return Curve(x=places, y=y, low=low, high=high, runs=np.isfinite(table).sum(0))


def _cells(edges: np.ndarray, places: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the middles of the cells in which a run has rows, and its mean in each."""
    cell = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, len(places) - 1)
    count = np.bincount(cell, minlength=len(places))
    total = np.bincount(cell, weights=y, minlength=len(places))
    there = count > 0
    return places[there], total[there] / count[there]


def _between(places: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return a run's values at some places: linear between its rows, NaN before the first and after the last."""
    return np.interp(places, x, y, left=np.nan, right=np.nan)

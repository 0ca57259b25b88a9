"""Follow a run from its files: another process trains it, on this machine or on one that shares the directory."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from robot_rl.cluster.launchers import REGISTRY, get_launcher
from robot_rl.cluster.launchers.launcher import read_job
from robot_rl.errors import UserError
from robot_rl.files import open_plain
from robot_rl.metrics.rows import read_row
from robot_rl.runs.run_dir import RunDir
from robot_rl.runs.run_index import is_running, last_row

READ_S = 0.5
"""How often new rows are looked for [s]."""
PATIENCE_S, PATIENCE_ROWS = 30.0, 10.0
"""A run that nobody here trains has stopped after so long, and so many of its iterations, without a row."""


class NewRows:
    """The rows that are appended to a metrics.jsonl, also if it is cut or replaced meanwhile."""

    def __init__(self, path: Path) -> None:
        """Begin with the last whole row."""
        self._path, self._rest, self._at, self._file, self._iteration = path, b"", 0, 0, -1

    def read(self) -> list[dict[str, Any]]:
        """Return the new rows; of a file that a resumed run has cut those after the last one given."""
        begins = self._iteration < 0
        with contextlib.suppress(OSError, UserError), open(open_plain(self._path), "rb") as stream:
            stat = os.fstat(stream.fileno())
            if stat.st_ino != self._file or stat.st_size < self._at:
                self._file, self._at, self._rest = stat.st_ino, 0, b""
                self._iteration = min(self._iteration, int(last_row(self._path).get("iteration", 0)))
            stream.seek(self._at)
            data = stream.read()
            self._at += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            rows = [row for line in lines if (row := self._new(line)) is not None]
            return rows[-1:] if begins else rows
        return []

    def _new(self, line: bytes) -> dict[str, Any] | None:
        row = read_row(line)
        if row is None or row["iteration"] <= self._iteration:
            return None
        self._iteration = row["iteration"]
        return row


def follow(
    run_dir: RunDir, last: int, *, sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.time
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a run's metrics, from its newest one on, until all `last` iterations are done or it stops.

    A run is taken to have stopped if no process of this machine trains it, no job of a scheduler waits or runs for
    it, and its file has not changed for PATIENCE_S and PATIENCE_ROWS iterations: another machine may train it.
    """
    rows, period, before = NewRows(run_dir.metrics_file), 0.0, None
    while True:
        for row in rows.read():
            now = float(row.get("time_s") or 0.0)
            period = now - before if before is not None and now > before else period
            before = now
            yield row
            if row["iteration"] >= last:
                return
        if not is_running(run_dir.metrics_file) and not has_job(run_dir):
            patience = max(PATIENCE_S, PATIENCE_ROWS * period)
            if clock() - _changed(run_dir) > patience:
                return
        sleep(READ_S)


def has_job(run_dir: RunDir) -> bool:
    """Return whether a job of a launcher waits or runs for a run, as far as this machine can ask."""
    job = read_job(run_dir)
    return job is not None and job[0] in REGISTRY.files() and get_launcher(job[0]).is_alive(job[1])


def _changed(run_dir: RunDir) -> float:
    """Return when a run's files were last written [s since 1970]."""
    times = [0.0]
    for path in (run_dir.metrics_file, run_dir.config_file):
        with contextlib.suppress(OSError):
            times.append(path.stat().st_mtime)
    return max(times)

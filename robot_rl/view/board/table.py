"""The runs below a root, kept in memory and read again when their files have changed.

The settings come from the index of `robot_rl.runs.run_index`. Those of runs that are not in it take milliseconds
each: these runs are listed at once with the values from metrics.jsonl, and their settings follow.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robot_rl.errors import UserError
from robot_rl.runs.run_index import (
    PLACE,
    RUNNING,
    RunRow,
    index_file,
    make_row,
    read_index,
    read_settings,
    stamp_of,
    write_index,
)

FILES = ("report.html", "video.mp4", "eval.json")
"""Files of a run that the page shows or links to."""
READ_S = 0.2
"""Settings are read for so long before the table shows them [s]."""
Stamp = tuple[int, ...]


@dataclass(kw_only=True, slots=True)
class ListedRun:
    """A run of the table.

    Attributes:
        row: What is known of it.
        stamp: Times and sizes of its files when they were read.
        version: The table's version when something of it changed.
        is_pending: Whether its run.yaml is still to be read.
        files: Those of FILES that it has.
        changed: Its settings that differ from those of the task's base.
        gone: Settings of the base that it does not have.
    """

    row: RunRow
    stamp: Stamp
    version: int
    is_pending: bool = False
    files: tuple[str, ...] = ()
    changed: dict[str, Any] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)


class RunTable:
    """The runs below a root; links to directories are not followed. May be used by several threads.

    Args:
        root: The directory of all runs.
        index: File of the index; by default one of the root's in the user's cache directory.

    Attributes:
        id: Another one for each table, by which a page knows that the program was started again.
        version: Rises when a run has changed.
        runs: "<folder of the task>/<run id>" -> run, the newest first.
        bases: Task -> the settings of one of its runs; the other runs are kept as differences from them.
        metrics: Names of all metrics, in order.

    Raises:
        UserError: `root` is not a directory.
    """

    def __init__(self, root: str | Path, index: Path | None = None) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise UserError("root", root, "is not a directory", "robot-rl train makes it")
        self._index = index_file(self.root) if index is None else index
        self._known = read_index(self._index)
        self._real = os.path.realpath(self.root)
        self._lock, self._gone, self._refreshed_s = threading.RLock(), {}, 0.0
        self.id, self.version = secrets.token_hex(4), 0
        self.runs: dict[str, ListedRun] = {}
        self.bases: dict[str, dict[str, Any]] = {}
        self.metrics: dict[str, None] = {}

    def refresh(self, least_s: float = 0.0) -> None:
        """Read the changed runs again; do nothing if that was done less than `least_s` ago [s]."""
        with self._lock:
            if time.monotonic() - self._refreshed_s < least_s:
                return
            version, seen, is_new = self.version + 1, set(), False
            for name, folder, stamp in run_folders(self.root):
                seen.add(name)
                before = self.runs.get(name)
                if before is not None and before.stamp == stamp and before.row.state != RUNNING:
                    continue
                found = self._read(name, folder, stamp, version)
                if before is None or not _is_as_before(before, found):
                    self.runs[name], self.version, is_new = found, version, is_new or before is None
                    self._gone.pop(name, None)
            for name in [name for name in self.runs if name not in seen]:
                del self.runs[name]
                self._gone[name] = self.version = version
            if is_new:
                self._sort()
            self._refreshed_s = time.monotonic()

    @contextlib.contextmanager
    def writing(self, path: Path | None = None) -> Iterator[None]:
        """Change files below the root, of a run's directory if one is given, and look at all files again afterwards.

        Raises:
            UserError: They cannot be changed, or the run is behind a link.
        """
        with self._lock:
            if path is not None and os.path.realpath(path) != f"{self._real}/{'/'.join(path.parts[-2:])}":
                raise UserError("run", path, "is behind a link")
            try:
                yield
            except OSError as error:
                raise UserError(f"{self.root}: {(error.strerror or str(error)).lower()}") from None
            self.refresh()

    def read_pending(self, seconds: float = READ_S) -> bool:
        """Read the settings of runs that are not in the index for some time [s]; return whether there are more."""
        end = time.monotonic() + seconds
        waiting = [(name, run) for name, run in list(self.runs.items()) if run.is_pending]
        for count, (name, run) in enumerate(waiting):
            if time.monotonic() >= end:
                return count < len(waiting)
            with contextlib.suppress(OSError):
                file = run.row.path / "run.yaml"
                entry = {"stamp": stamp_of(file), **read_settings(file)}
                with self._lock:
                    self._known[f"{self._real}/{name}"] = entry
                    if name in self.runs:
                        self.version += 1
                        self.runs[name] = self._read(name, run.row.path, run.stamp, self.version)
        if waiting:
            self.write()
            with self._lock:
                self._sort()
        return False

    def write(self) -> None:
        """Write the index, with the runs that are there."""
        with self._lock:
            kept = {key: self._known[key] for name in self.runs if (key := f"{self._real}/{name}") in self._known}
        write_index(self._index, kept)

    def get(self, name: str) -> ListedRun:
        """Return a run by "<folder of the task>/<run id>"; raise UserError if there is none."""
        run = self.runs.get(name)
        if run is None:
            raise UserError("run", name[:200], f"no such run in {self.root}")
        return run

    def since(self, version: int) -> tuple[int, list[tuple[str, ListedRun]], list[str]]:
        """Return the version, the runs that have changed since another one, and the names of those that are gone."""
        with self._lock:
            changed = [(name, run) for name, run in self.runs.items() if run.version > version]
            return self.version, changed, [name for name, at in self._gone.items() if at > version]

    def _read(self, name: str, folder: Path, stamp: Stamp, version: int) -> ListedRun:
        entry = self._known.get(f"{self._real}/{name}")
        is_pending = entry is None or tuple(entry.get("stamp", ())) != stamp[:2]
        if entry is None:
            entry = {"stamp": stamp[:2], "settings": {}, "record": {}}
        row = make_row(folder, entry)
        files = _plain_files(folder)
        run = ListedRun(row=row, stamp=stamp, version=version, is_pending=is_pending, files=files)
        self.metrics |= dict.fromkeys(key for key, value in row.last.items() if isinstance(value, int | float))
        if row.settings:
            base = self.bases.setdefault(row.task, row.settings)
            mine = row.settings
            differs = (key for key in mine if key not in base or not _is_same(base[key], mine[key]))
            run.changed = {key: mine[key] for key in differs if key not in PLACE}
            run.gone = [key for key in base if key not in mine and key not in PLACE]
        return run

    def _sort(self) -> None:
        names = sorted(self.runs, key=lambda name: (created(self.runs[name].row), name), reverse=True)
        self.runs = {name: self.runs[name] for name in names}


def _is_same(one: Any, other: Any) -> bool:
    """Whether two values of a setting are equal and of one type: quick, since most are one object of the index."""
    return one is other or (type(one) is type(other) and one == other)


def created(row: RunRow) -> str:
    """Return when a run was created, as text that sorts by time: of its run.yaml, else its id."""
    said = row.record.get("created")
    if isinstance(said, str):
        return said
    day, clock = row.run_id[:8], row.run_id[9:15]
    is_time = day.isdigit() and clock.isdigit() and len(clock) == 6
    return f"{day[:4]}-{day[4:6]}-{day[6:]}T{clock[:2]}:{clock[2:4]}:{clock[4:]}" if is_time else ""


def run_folders(root: Path) -> Iterator[tuple[str, Path, Stamp]]:
    """Yield "<folder of the task>/<run id>", directory and stamp of each run below a root; no link is followed.

    The first two numbers of a stamp are those of run.yaml.
    """
    for task in _folders(root):
        for run in _folders(Path(task.path)):
            with contextlib.suppress(OSError):
                config = os.lstat(f"{run.path}/run.yaml")
                if stat.S_ISREG(config.st_mode):
                    stamp = (config.st_mtime_ns, config.st_size, run.stat(follow_symlinks=False).st_mtime_ns)
                    yield f"{task.name}/{run.name}", Path(run.path), (*stamp, *_metrics_stamp(run.path))


def _folders(path: Path) -> list[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        return [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
    return []


def _metrics_stamp(folder: str) -> Stamp:
    with contextlib.suppress(OSError):
        metrics = os.lstat(f"{folder}/metrics.jsonl")
        return metrics.st_mtime_ns, metrics.st_size
    return ()


def _plain_files(folder: Path) -> tuple[str, ...]:
    with contextlib.suppress(OSError):
        there = set(os.listdir(folder))
        return tuple(file for file in FILES if file in there and stat.S_ISREG(os.lstat(folder / file).st_mode))
    return ()


def _is_as_before(one: ListedRun, other: ListedRun) -> bool:
    return one.stamp == other.stamp and one.row.state == other.row.state

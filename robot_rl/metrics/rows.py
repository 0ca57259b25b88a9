"""metrics.jsonl, the primary record of a run: whole rows of rising iterations, even if a writing process was killed.

A row is written by one call and removed if the disk does not hold all of it. The file of a killed process is cut to
the rows that the checkpoint knows, so that no iteration is there twice.
"""

from __future__ import annotations

import bisect
import contextlib
import errno
import fcntl
import itertools
import json
import os
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from robot_rl.errors import UserError
from robot_rl.files import open_plain, read_plain

NAME = "metrics.jsonl"
MOST_WHOLE = 2**63
LOCK_POLL_S = 0.2
BUSY = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
"""How the system says that someone else holds a lock; other errors mean that the file system does not have locks."""


def to_stderr(line: str) -> None:
    """Print a line for the user."""
    sys.stderr.write(f"robot-rl: {line}\n")


class Rows:
    """The file of a run's metrics, open for appending by only one process.

    Args:
        run_dir: The run's directory.
        resume: The return value of `mark` in the checkpoint that training continues from; None keeps all whole rows.
        say: Called with a line about lost rows.
        file: The file, if this process has opened and locked it with `lock`; it is closed with these rows.

    Raises:
        UserError: Another process is writing this run's metrics, or they are not a plain file.
        OSError: The file cannot be opened.
    """

    def __init__(
        self,
        run_dir: Path,
        resume: Mapping[str, int] | None = None,
        say: Callable[[str], None] = to_stderr,
        file: Any = None,
    ) -> None:
        self.path = Path(run_dir) / NAME
        self._file = lock(self.path) if file is None else file
        self._last: int | None = None
        try:
            self._cut(resume, say)
        except BaseException:
            self.close()
            raise

    def append(self, row: Mapping[str, float | None]) -> None:
        """Write a row, after removing rows of the same iteration or later ones.

        Raises:
            OSError: The disk is full; the file ends with the row before.
        """
        iteration = int(row["iteration"] or 0)
        if self._last is not None and iteration <= self._last:
            self._cut_from(iteration)
        line = json.dumps(row).encode() + b"\n"
        begin = self._bytes
        try:
            written = self._file.write(line)
            while written < len(line):  # A disk that is nearly full takes a part and refuses the rest.
                written += self._file.write(line[written:])
        except BaseException:
            self._file.truncate(begin)
            raise
        self._keep(line, iteration)

    def mark(self) -> dict[str, int]:
        """Return the synced file's bytes, rows and CRC-32 for a checkpoint."""
        os.fsync(self._file.fileno())
        return {"bytes": self._bytes, "rows": self._rows, "crc32": self._crc32}

    def close(self) -> None:
        """Close the file and release its lock; may be called twice."""
        self._file.close()

    def _keep(self, data: bytes, last: int | None, rows: int = 1) -> None:
        self._bytes, self._rows, self._last = self._bytes + len(data), self._rows + rows, last
        self._crc32 = zlib.crc32(data, self._crc32)

    def _begin(self, data: bytes, rows: int, last: int | None) -> None:
        self._bytes = self._rows = self._crc32 = 0
        self._keep(data, last, rows)

    def _cut(self, resume: Mapping[str, int] | None, say: Callable[[str], None]) -> None:
        data = read_plain(self.path)
        if resume is None:
            whole = data[: data.rfind(b"\n") + 1]
            lines = [iteration_of(line) for line in whole.split(b"\n")[:-1]]
            self._shorten(whole, data, len(lines), max((i for i in lines if i is not None), default=None))
            return
        whole = data[: resume["bytes"]]
        if _is_as_marked(whole, resume):
            last = iteration_of(whole[whole.rfind(b"\n", 0, -1) + 1 :]) if whole else None
            self._shorten(whole, data, resume["rows"], last)
            return
        lines, last = whole_rows(data, resume["rows"])
        kept = b"".join(lines)
        aside = "" if kept == data else f"; the file as it was is {self._keep_damaged(data).name}"
        say(f"{self.path}: damaged, {len(lines)} of the checkpoint's {resume['rows']} rows are whole and kept{aside}")
        self._shorten(kept, data, len(lines), last)

    def _keep_damaged(self, data: bytes) -> Path:
        """Write a copy of the damaged file next to it, under a new name, and return its path."""
        for number in itertools.count(1):
            path = self.path.with_name(f"{NAME}.damaged" if number == 1 else f"{NAME}.damaged.{number}")
            with contextlib.suppress(FileExistsError), path.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                return path
        raise AssertionError

    def _shorten(self, kept: bytes, data: bytes, rows: int, last: int | None) -> None:
        """Replace the content by `kept`; if `data` does not begin with that, the file is written again."""
        if not data.startswith(kept):
            from robot_rl.files import write_atomic

            write_atomic(self.path, kept.decode())
            self._file.close()
            self._file = lock(self.path)
        elif len(kept) < len(data):
            self._file.truncate(len(kept))
        self._begin(kept, rows, last)

    def _cut_from(self, iteration: int) -> None:
        """Remove the rows of an iteration and later ones."""
        data = read_plain(self.path)
        lines = [(line, iteration_of(line)) for line in data.splitlines(keepends=True)]
        kept = [line for line, number in lines if number is not None and number < iteration]
        last = max((number for _, number in lines if number is not None and number < iteration), default=None)
        if not data.startswith(b"".join(kept)):
            self._keep_damaged(data)
        self._shorten(b"".join(kept), data, len(kept), last)


def lock(path: Path) -> Any:
    """Open a file for appending, unbuffered, and lock it; the system releases the lock when the process ends.

    Raises:
        UserError: Another process has it, or it is not a plain file: no link is followed, no pipe waited for.
        OSError: The file cannot be opened.
    """
    while True:
        file = os.fdopen(open_plain(path, os.O_RDWR | os.O_CREAT | os.O_APPEND), "ab", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in BUSY:
                file.close()
                raise UserError(f"{path}: another process is writing it; wait for the end of that training") from None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.lstat(path)):
                return file
        file.close()  # Replaced or removed since it was opened: the lock is that of a file that no longer has a name.


def refuse_locked(path: Path) -> None:
    """Refuse a file that another process has open for appending; a missing one is not refused.

    Raises:
        UserError: Another process has it, or it is not a plain file.
        OSError: The file cannot be opened.
    """
    if os.path.lexists(path):
        lock(path).close()


def wait_for_lock(path: Path, patience_s: float) -> None:
    """Return when no other process has a file open for appending.

    Raises:
        UserError: One still has it after `patience_s` [s].
    """
    end = time.monotonic() + patience_s
    while True:
        try:
            refuse_locked(path)
            return
        except UserError:
            if time.monotonic() > end:
                raise
            time.sleep(LOCK_POLL_S)


def read_row(line: bytes) -> dict[str, Any] | None:
    """Return a row; None if a line is not a whole row.

    A value that no row of ours has, such as a text or a number that no float holds, is None.
    """
    with contextlib.suppress(ValueError, RecursionError):
        row = json.loads(line.decode())
        iteration = row.get("iteration") if isinstance(row, dict) else None
        if isinstance(iteration, int) and not isinstance(iteration, bool) and abs(iteration) < MOST_WHOLE:
            return {key: bounded(value) if isinstance(value, int | float) else None for key, value in row.items()}
    return None


def bounded(value: Any) -> Any:
    """Return a value of JSON or YAML with None for whole numbers beyond 64 bits, which a float may not hold."""
    if isinstance(value, int):
        return value if abs(value) < MOST_WHOLE else None
    if isinstance(value, dict):
        return {key: bounded(part) for key, part in value.items()}
    return [bounded(part) for part in value] if isinstance(value, list) else value


def iteration_of(line: bytes) -> int | None:
    """Return the iteration of a row, or None if a line is not a whole row."""
    row = read_row(line)
    return None if row is None else row["iteration"]


def whole_rows(data: bytes, most: int) -> tuple[list[bytes], int | None]:
    """Return the first `most` whole lines of rising iterations, and the last one's iteration.

    Of all choices of rising rows it is the one that omits the fewest: a row with a wrong iteration costs only that
    row.
    """
    rows = [(number, line) for line in data.split(b"\n")[:-1] if (number := iteration_of(line)) is not None]
    # The longest rising subsequence: for each length the least last iteration, and which row came before each row.
    ends: list[int] = []
    ending: list[int] = []
    before: list[int] = []
    for index, (number, _) in enumerate(rows):
        length = bisect.bisect_left(ends, number)
        before.append(ending[length - 1] if length else -1)
        ends[length : length + 1], ending[length : length + 1] = [number], [index]
    chosen: list[int] = []
    index = ending[-1] if ending else -1
    while index >= 0:
        chosen.append(index)
        index = before[index]
    kept = [rows[index] for index in reversed(chosen)][:most]
    return [line + b"\n" for _, line in kept], kept[-1][0] if kept else None


def _is_as_marked(data: bytes, mark: Mapping[str, int]) -> bool:
    if len(data) != mark["bytes"] or data.count(b"\n") != mark["rows"] or data[-1:] not in (b"", b"\n"):
        return False
    return zlib.crc32(data) == mark.get("crc32", zlib.crc32(data))

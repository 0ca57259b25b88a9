"""A training process: its output with times, its metrics, and how it is stopped."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from robot_rl.metrics.rows import read_row
from robot_rl.runs.run_dir import RunDir

POLL_S = 0.003
TAIL_BYTES = 1 << 16
"""Part of the end of metrics.jsonl that is read; a row has a few kilobytes."""
start_process = subprocess.Popen
FIRST = re.compile(r"iteration (\d+)/\d+ ")
"""Start of a progress line; the first iteration of a process always has one."""


class DrillError(RuntimeError):
    """A training process did not do what it should: one line."""


@dataclass(frozen=True, slots=True)
class First:
    """The first iteration that a process finished.

    Attributes:
        iteration: its number.
        stepping_s: from the start of the process until its first step [s].
        done_s: from the start of the process until the iteration was done [s].
    """

    iteration: int
    stepping_s: float
    done_s: float


class Training:
    """`robot-rl resume` of a run in a process of its own, which is killed when the context ends."""

    def __init__(self, run: RunDir, settings: Mapping[str, Any], *, file_blocks: int = 0) -> None:
        """Start the process.

        Args:
            run: the run.
            settings: settings that change, by name.
            file_blocks: the largest file that it can write, in the shell's blocks of 512 or 1024 bytes; 0: any.
        """
        words = [f"{key}={value}" for key, value in {"root": run.path.parent.parent, **settings}.items()]
        command = [sys.executable, "-m", "robot_rl.cli.main", "resume", run.run_id, *words]
        if file_blocks:
            command = ["sh", "-c", 'ulimit -f "$0" && exec "$@"', str(file_blocks), *command]
        env = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "RANK", "WORLD_SIZE")}
        self.run = run
        self._lines: list[tuple[float, str]] = []
        self._start = time.monotonic()
        self._process = start_process(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**env, "PYTHONUNBUFFERED": "1"},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Training:
        """Return the training."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the process, if it still runs."""
        self._process.kill()
        self._process.wait()
        self._reader.join()

    @property
    def lines(self) -> list[str]:
        """Its output so far, without empty lines."""
        return [text for _, text in self._lines]

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def wait(self, patience_s: float) -> int:
        """Wait for its end and return its exit code, negative for a signal; raise a DrillError if it does not end."""
        try:
            code = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise DrillError(f"did not end within {patience_s:.0f} s; {self.last_words()}") from None
        self._reader.join()
        return code

    def wait_iteration(self, iteration: int, patience_s: float) -> dict[str, Any]:
        """Wait until metrics.jsonl has the row of an iteration, or of a later one, and return the last row."""

        def look() -> dict[str, Any] | None:
            row = last_row(self.run)
            return row if row is not None and row["iteration"] >= iteration else None

        return self.wait_for(look, f"iteration {iteration}", patience_s)

    def wait_first(self, patience_s: float) -> First:
        """Wait until the first iteration of this process is done."""
        return self.wait_for(self._first, "the first iteration", patience_s)

    def wait_for(self, look: Callable[[], Any], what: str, patience_s: float) -> Any:
        """Call a function every few milliseconds until it returns something, and return that.

        Raises:
            DrillError: the process ended before `what`, or it took longer than `patience_s` [s].
        """
        end = time.monotonic() + patience_s
        while True:
            has_ended = self._process.poll() is not None
            if has_ended:
                self._reader.join()
            if (found := look()) is not None:
                return found
            if has_ended:
                raise DrillError(f"ended with {name_code(self._process.returncode)} before {what}; {self.last_words()}")
            if time.monotonic() > end:
                raise DrillError(f"did not come to {what} within {patience_s:.0f} s; {self.last_words()}")
            time.sleep(POLL_S)

    def lines_before_stepping(self) -> list[str]:
        """Return its output before the line that announces the training."""
        return list(itertools.takewhile(lambda text: not self._announces(text), self.lines))

    def _first(self) -> First | None:
        stepping = 0.0
        for at, text in list(self._lines):
            if self._announces(text):
                stepping = at
            if found := FIRST.match(text):
                return First(int(found[1]), stepping - self._start, at - self._start)
        return None

    def _announces(self, text: str) -> bool:
        return " -> " in text and text.endswith(self.run.run_id)

    def last_words(self) -> str:
        """Return its last line, for an error."""
        return f"last line: {self._lines[-1][1]}" if self._lines else "it printed nothing"

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if text := line.strip():
                self._lines.append((time.monotonic(), text))


def last_row(run: RunDir) -> dict[str, Any] | None:
    """Return the last complete row of a run's metrics.jsonl; None if there is none."""
    try:
        with run.metrics_file.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return None
    return next(filter(None, map(read_row, reversed(lines[:-1]))), None)


def name_code(code: int) -> str:
    """Return how a process ended: "exit code 85" or "death by SIGKILL"."""
    return f"exit code {code}" if code >= 0 else f"death by {signal.Signals(-code).name}"

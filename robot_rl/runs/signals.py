"""Handle signals to a training before its iterations begin and after they are over.

During the iterations, `robot_rl.learn.interrupt` does. Before, there is nothing to save, and no import, compiler or
launcher must delay the end: an exception raised in the middle of one may be swallowed or replaced by another. So the
process exits at once with a line and the exit code, without unwinding. Only if a run directory has to be removed
again, an exception is raised, which ends in the same line and the same code.

Imported before anything else: nothing heavy here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from types import FrameType

from robot_rl.processes import Handler, restore_signals, take_signals

TRAININGS = ("train", "resume", "worker")
"""Commands that a scheduler stops with a signal."""
START, UNWIND, OVER = range(3)
"""Phases of a training: nothing has to be undone; something has; its last state is saved."""
PATIENCE_S = 2.0
"""For so long signals do not disturb the end of a training [s]: notices come more than once, uploads take a while."""


class EndingSignals:
    """Context in which a training handles its signals; for other commands, and in other threads, it changes nothing.

    Attributes:
        phase: START, UNWIND or OVER.
        signal: The signal that raised `Interrupted`; 0 before.
        has_failed: Whether an error ends the command; a signal does not change its line and exit code (torchrun sends
            SIGTERM to the remaining processes).
    """

    def __init__(self) -> None:
        self.phase, self.signal, self.has_failed, self._late_since = START, 0, False, 0.0
        self._previous: dict[int, Handler] = {}
        self._hook = sys.unraisablehook

    def take(self, words: list[str]) -> EndingSignals:
        """Install the handlers if the command, the first of `words`, is a training; return the context."""
        self.__init__()
        self._hook = sys.unraisablehook
        if words[:1] and words[0] in TRAININGS:
            self._previous = take_signals(self._handle)
        return self

    def __enter__(self) -> EndingSignals:
        return self

    def __exit__(self, *_: object) -> None:
        restore_signals(self._previous)
        self._previous = {}
        self.signal, self.phase, self.has_failed = 0, START, False
        sys.unraisablehook = self._hook

    def check(self) -> None:
        """Raise Interrupted if a signal came and its exception was lost."""
        if self.signal:
            from robot_rl.errors import Interrupted

            raise Interrupted(None, 0, self.signal)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.has_failed:
            return
        # The only KeyboardInterrupt there can be is the iterations' own, on its way out.
        if self.signal or self.phase == OVER or isinstance(sys.exc_info()[1], KeyboardInterrupt):
            now = time.monotonic()
            self._late_since = self._late_since or now
            if now - self._late_since > PATIENCE_S:
                _leave(number, "")
            return
        if self.phase == START:
            _leave(number, "before an iteration was finished")
        from robot_rl.errors import Interrupted

        self.signal = number
        sys.unraisablehook = lambda _: None  # An exception that could not be raised at the signal.
        raise Interrupted(None, 0, number)


ending = EndingSignals()
"""The signals of this process's command."""


def _leave(number: int, when: str) -> None:
    """End the process with a line, without unwinding; processes that it started are also ended."""
    if "multiprocessing" in sys.modules:
        for child in sys.modules["multiprocessing"].active_children():
            child.terminate()
    name = "" if number == signal.SIGINT else f" by {signal.Signals(number).name}"
    rank = os.environ.get("RANK", "0")
    who = "robot-rl" if rank == "0" else f"robot-rl (process {rank})"
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # It may be the one that the signal came in the middle of.
            stream.flush()
    with contextlib.suppress(OSError):
        os.write(2, f"{who}: interrupted{name}{' ' * bool(when)}{when}\n".encode())
    os._exit(130 if number == signal.SIGINT else 85)

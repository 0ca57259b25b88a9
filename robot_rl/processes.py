"""Child processes, and the signals that ask a process to stop.

A command answers signals only when this has been imported: nothing heavy here.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType

Handler = Callable[[int, FrameType | None], object] | int | None
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
"""Signals that request the end of a command: Ctrl-C, the notices of schedulers, a closed terminal. Of several
processes' signals the first in this order counts."""
DROPPED = ("FORCE_COLOR", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
"""Variables that a command does not inherit from another that runs it and reads its output."""

_TIE = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def tied(words: Sequence[str]) -> list[str]:
    """Return a command line that, on Linux, gets SIGTERM when this process dies, however it dies."""
    return [sys.executable, "-ISc", _TIE, str(os.getpid()), *words]


def own_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command whose output goes to a file or pipe."""
    return {key: value for key, value in variables.items() if key not in DROPPED} | {"PYTHONUNBUFFERED": "1"}


def name_end(code: int) -> str:
    """Return how a process ended: "exit code 85" or "death by SIGKILL"."""
    return f"exit code {code}" if code >= 0 else f"death by {signal.Signals(-code).name}"


def is_taken(number: int) -> bool:
    """Return whether a command handles a signal: SIGHUP not if it is ignored, as by nohup for the command it starts."""
    return number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN


def take_signals(handler: Handler, numbers: Iterable[int] = SIGNALS) -> dict[int, Handler]:
    """Install a handler and return those before, for `restore_signals`; none where Python allows none, in a thread."""
    before: dict[int, Handler] = {}
    with contextlib.suppress(ValueError):
        for number in filter(is_taken, numbers):
            before[number] = signal.signal(number, handler)
    return before


def restore_signals(before: Mapping[int, Handler]) -> None:
    """Install the handlers before; one that Python does not know becomes the system's."""
    for number, handler in before.items():
        signal.signal(number, signal.SIG_DFL if handler is None else handler)

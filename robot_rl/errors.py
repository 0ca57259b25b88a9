"""The errors that a user can cause, the interruption by a signal, and the exit codes of a process."""

from __future__ import annotations

import contextlib
import re
import signal as signals
import sys
from collections.abc import Iterable, Iterator
from enum import IntEnum

TYPE_CHECKING = False  # Not from typing: a command answers signals only when this has been imported.
if TYPE_CHECKING:
    from pathlib import Path

MAX_LINE = 1000
_NO_VALUE = object()


class ExitCode(IntEnum):
    """The exit codes of `robot-rl`, so that a scheduler knows the next step; docs/recovery.md is the same table."""

    DONE = 0
    FAULT = 1
    """A fault of the program, or another of the processes that train together was lost."""
    USER = 2
    """Something requested is not available: one line says how to correct it."""
    DISK_FULL = 74
    REQUEUE = 85
    """Stopped by a signal other than SIGINT, after saving; the same command continues from there."""
    GIVE_UP = 86
    """The same command would fail again: a loss is not finite, all worlds break, or no checkpoint can be loaded."""
    INTERRUPTED = 130
    """Stopped by SIGINT (Ctrl-C)."""


class UserError(ValueError):
    """Invalid input: one line that names the setting, the value and the correction.

    The command line prints the line and exits with status 2. Any input becomes one printable line of at most `MAX_LINE`
    characters.
    """

    def __init__(self, setting: object, value: object = _NO_VALUE, problem: object = "", fix: object = "") -> None:
        """Build the line `<setting>=<value>: <problem>; <fix>`; with one argument, that is the whole line."""
        rest, given = (
            "; ".join(filter(None, map(str, (problem, fix)))),
            value if isinstance(value, str) else shown(value),
        )
        line = setting if value is _NO_VALUE else f"{setting}={given}: {rest}"
        text = re.sub(r"[^\S ]+", " ", str(line))
        text = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
        super().__init__(text if len(text) <= MAX_LINE else f"{text[: MAX_LINE - 305]} ... {text[-300:]}")


class UnknownKeyError(UserError):
    """A setting that does not exist.

    Attributes:
        key: Its dotted name.
    """

    def __init__(self, key: str, hint: str) -> None:
        """Build the line `unknown key '<key>': <hint>`."""
        self.key = key
        super().__init__(f"unknown key '{key}': {hint}")


def require_linux(what: str) -> None:
    """Raise a `UserError` on other systems; `what` uses Linux's real-time scheduling, signals or file systems."""
    if sys.platform != "linux":
        raise UserError(f"{what}: needs Linux; training, evaluation, export, play and report run here")


@contextlib.contextmanager
def as_user_error() -> Iterator[None]:
    """Convert a ValueError or a missing file inside, where user input is built, into a `UserError`."""
    try:
        yield
    except UserError:
        raise
    except (ValueError, FileNotFoundError) as error:
        raise UserError(error) from error


class NotRetryableError(UserError):
    """An error that would repeat however often the command is tried, such as a run without an intact checkpoint.

    The command line prints the line and exits with status 86.
    """


class PeerError(RuntimeError):
    """Another of the processes that train together ended or failed, so this one ends as well, with one line."""


class Interrupted(KeyboardInterrupt):
    """Training was stopped by a signal, after its state was saved unless the signal came a second time.

    Attributes:
        checkpoint: The newest checkpoint, or None if there is none.
        iteration: Iterations finished so far.
        signal: The signal's number.
        saved: Whether the checkpoint is of the last iteration; False if a second signal did not wait for it.
    """

    def __init__(
        self, checkpoint: Path | None, iteration: int, signal: int = signals.SIGINT, *, saved: bool = True
    ) -> None:
        name = "" if signal == signals.SIGINT else f" by {signals.Signals(signal).name}"
        after = f"after iteration {iteration}" if iteration else "before an iteration was finished"
        super().__init__(f"interrupted{name} {after}")
        self.checkpoint = checkpoint
        self.iteration = iteration
        self.signal = signal
        self.saved = saved

    @property
    def exit_code(self) -> int:
        """Return the exit code of the process: 130 or 85, or 128 + signal if nothing was saved."""
        if self.signal == signals.SIGINT:
            return ExitCode.INTERRUPTED
        return ExitCode.REQUEUE if self.saved else 128 + self.signal


def shown(value: object) -> str:
    """Return a value as a command line has it: null, true, [a, b]; text in quotes if it looks like these."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(shown, value))}]"
    looks_else = isinstance(value, str) and (value in ("null", "true", "false", "") or value.isnumeric())
    return repr(value) if looks_else else str(value)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name nearest to an unknown one; empty if none has most of its letters."""
    import difflib

    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)), "")


def suggest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return a hint for an unknown name: ``did you mean 'clip'?``, after a prefix; ``known: a, b`` if none is near."""
    options = list(known)
    near = nearest(name, options)
    return f"did you mean '{prefix}{near}'?" if near else "known: " + ", ".join(sorted(options))


def one_of(name: str, choices: Iterable[str]) -> str:
    """Return the end of an error line about an unknown choice: all of them, and the nearest."""
    near = nearest(name, choices := list(choices))
    return f"must be one of {', '.join(choices)}" + (f"; did you mean '{near}'?" if near else "")

"""The errors that a user can cause, the interruption that one can ask for, and what a process ends with."""

from __future__ import annotations

import contextlib
import re
import signal as signals
from collections.abc import Iterable, Iterator
from enum import IntEnum

TYPE_CHECKING = False  # Not from typing: a command answers signals only when this has been imported.
if TYPE_CHECKING:
    from pathlib import Path

MAX_LINE = 1000


class ExitCode(IntEnum):
    """What `robot-rl` exits with, so that a scheduler knows what to do next; docs/recovery.md is the same table."""

    DONE = 0
    FAULT = 1
    """A fault of the program, or another of the processes that train together was lost."""
    USER = 2
    """Something asked for cannot be had: one line says what would be right."""
    DISK_FULL = 74
    REQUEUE = 85
    """Asked to stop by a signal other than SIGINT; what can be saved is saved, and the same command goes on with it."""
    GIVE_UP = 86
    """The same command would fail again: a loss is not finite, all worlds break, or no checkpoint can be loaded."""
    INTERRUPTED = 130
    """Stopped by SIGINT (Ctrl-C)."""


class UserError(ValueError):
    """Input that cannot be used: one line that names the field, the value and what would be right.

    The command line prints the line alone and exits with status 2. Whatever the input was, it is one line that can be
    printed, of at most `MAX_LINE` characters.
    """

    def __init__(self, line: object) -> None:
        """Keep the line: other white space becomes a blank, what cannot be printed is escaped, the middle is cut."""
        text = re.sub(r"[^\S ]+", " ", str(line))
        text = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
        super().__init__(text if len(text) <= MAX_LINE else f"{text[: MAX_LINE - 305]} ... {text[-300:]}")


@contextlib.contextmanager
def as_user_error() -> Iterator[None]:
    """Turn a ValueError or a missing file inside, where what the user requested is built, into a `UserError`."""
    try:
        yield
    except UserError:
        raise
    except (ValueError, FileNotFoundError) as error:
        raise UserError(error) from error


class GiveUpError(UserError):
    """What would fail again however often it is tried, such as a run without a checkpoint that can be loaded.

    The command line prints the line alone and exits with status 86.
    """


class PeerError(RuntimeError):
    """Another of the processes that train together ended or failed, so this one ends as well, with one line."""


class Interrupted(KeyboardInterrupt):
    """Training was stopped by a signal; after its state was saved, unless the signal came a second time.

    Attributes:
        checkpoint: the newest checkpoint, or None where there is none.
        iteration: iterations finished so far.
        signal: the signal's number.
        saved: whether the checkpoint is of the last iteration; False where a second signal did not wait for it.
    """

    def __init__(
        self, checkpoint: Path | None, iteration: int, signal: int = signals.SIGINT, *, saved: bool = True
    ) -> None:
        """Keep where the state went, how far training had come, and who asked for the end."""
        name = "" if signal == signals.SIGINT else f" by {signals.Signals(signal).name}"
        after = f"after iteration {iteration}" if iteration else "before an iteration was finished"
        super().__init__(f"interrupted{name} {after}")
        self.checkpoint = checkpoint
        self.iteration = iteration
        self.signal = signal
        self.saved = saved

    @property
    def exit_code(self) -> int:
        """What the process exits with: 130 or 85, or 128 + signal where nothing was saved."""
        if self.signal == signals.SIGINT:
            return ExitCode.INTERRUPTED
        return ExitCode.REQUEUE if self.saved else 128 + self.signal


def suggest(name: str, known: Iterable[str]) -> str:
    """Return what to add to an error about an unknown name: the nearest known one, or all of them.

    Args:
        name: the name that is not known.
        known: the names that are.

    Returns:
        A fragment such as ``did you mean 'clip'?`` or ``known: a, b``.
    """
    import difflib

    options = list(known)
    nearest = difflib.get_close_matches(name, options, n=1, cutoff=0.6)
    if nearest:
        return f"did you mean '{nearest[0]}'?"
    return "known: " + ", ".join(sorted(options))

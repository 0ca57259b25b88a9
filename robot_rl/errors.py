"""The errors that a user can cause, and the interruption that a user can ask for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class UserError(ValueError):
    """Input that cannot be used: one line that names the field, the value and what would be right.

    The command line prints the line alone and exits with status 2.
    """


class PeerError(RuntimeError):
    """Another of the processes that train together ended or failed, so this one ends as well, with one line."""


class Interrupted(KeyboardInterrupt):
    """Training was stopped by the user, after its state was saved.

    Attributes:
        checkpoint: the checkpoint that was written, or None where the run has no directory.
        iteration: iterations finished so far.
    """

    def __init__(self, checkpoint: Path | None, iteration: int) -> None:
        """Keep where the state went and how far training had come."""
        super().__init__(f"interrupted after iteration {iteration}")
        self.checkpoint = checkpoint
        self.iteration = iteration


def suggest(name: str, known: Iterable[str]) -> str:
    """Return what to add to an error about an unknown name: the nearest known one, or all of them.

    Args:
        name: the name that is not known.
        known: the names that are.

    Returns:
        A fragment such as ``did you mean 'clip'?`` or ``known: a, b``.
    """
    options = list(known)
    nearest = difflib.get_close_matches(name, options, n=1, cutoff=0.6)
    if nearest:
        return f"did you mean '{nearest[0]}'?"
    return "known: " + ", ".join(sorted(options))

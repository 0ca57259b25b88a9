"""The errors that are a user's to mend, as opposed to a fault of the program."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Something asked for cannot be had; the message is one line: the field, the value and what would be right."""


def suggest(name: str, known: Iterable[str]) -> str:
    """The tail of an error line about an unknown name: the nearest known one, else the list of all of them.

    Args:
        name: What was asked for.
        known: The names that exist.

    Returns:
        For example "; did you mean 'go2_flat'?" or "; known: cartpole, go2_flat".
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; known: {', '.join(names)}" if names else ""

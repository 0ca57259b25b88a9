"""Checks of settings, each with one line that names the field, the value and the valid values."""

from __future__ import annotations

import math
from collections.abc import Sequence

from robot_rl.errors import UserError, one_of, shown


def check_range(
    name: str, value: float, low: float | None, high: float | None = None, *, open_low: bool = False
) -> None:
    """Raise UserError unless low <= value <= high (low < value if `open_low`); None means unbounded."""
    least, most = -math.inf if low is None else low, math.inf if high is None else high
    if math.isnan(value) or value > most or value < least or (open_low and value == least):
        first, last = (f"{bound:g}" if isinstance(bound, float) else str(bound) for bound in (least, most))
        if high is None:
            raise UserError(name, shown(value), f"must be {'above' if open_low else 'at least'} {first}")
        raise UserError(name, shown(value), f"must be in {'(' if open_low else '['}{first}, {last}]")


def to_float(value: object) -> float | None:
    """Return a number as float, also YAML's .nan and .inf; None for no number, or one beyond a float's range."""
    if isinstance(value, str) and value.lower() in (".nan", ".inf", "+.inf", "-.inf"):
        return float(value.replace(".", ""))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise UserError unless `value` is one of `choices`."""
    if value not in choices:
        raise UserError(name, shown(value), one_of(value, choices))

"""Checks of settings, each with one line that names the field, the value and the valid values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from robot_rl.errors import UserError, suggest


def check_range(name: str, value: float, low: float, high: float, *, open_low: bool = False) -> None:
    """Raise UserError unless low <= value <= high (low < value where `open_low`); infinite bounds are allowed."""
    if math.isnan(value) or value > high or value < low or (open_low and value == low):
        raise UserError(name, value, f"must be in {'(' if open_low else '['}{low:g}, {high:g}]")


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
        hint = suggest(value, choices)
        raise UserError(name, value, f"must be one of {', '.join(choices)}", hint if hint.startswith("did") else "")


def check_hidden(hidden: Sequence[int]) -> None:
    """Raise UserError unless `hidden` names the width of at least one layer."""
    if not hidden:
        raise UserError("hidden", hidden, "must name at least one layer", "such as [128, 128]")
    for width in hidden:
        check_range("hidden", width, 1, 65536)


def check_between(name: str, value: Any, least: float | None, most: float | None = None) -> None:
    """Raise UserError if a number is out of its range; None means that there is no bound."""
    if isinstance(value, str | bool | None):
        return
    if (least is not None and value < least) or (most is not None and value > most):
        low = "" if least is None else f"at least {least:g}" if isinstance(least, float) else f"at least {least}"
        high = "" if most is None else f"at most {most:g}" if isinstance(most, float) else f"at most {most}"
        raise UserError(f"{name}={value}: must be {' and '.join(filter(None, (low, high)))}")

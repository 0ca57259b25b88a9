"""Strict reading of JSON into dataclasses: unknown or missing fields and other types are refused in one line."""

import dataclasses
import math
import re
import types
import typing
from collections import Counter
from collections.abc import Sequence
from typing import Any, NoReturn

MAX_LINE = 1000
# Code points that no text of a contract may contain: control, format and spacing characters except the blank,
# surrogates, private ones, and those beyond the first plane. A table, since Python's definition of printable differs
# between versions, and the runtime in C++ has to agree.
UNPRINTABLE = (
    (0x0000, 0x001F),
    (0x007F, 0x00A0),
    (0x00AD, 0x00AD),
    (0x0600, 0x0605),
    (0x061C, 0x061C),
    (0x06DD, 0x06DD),
    (0x070F, 0x070F),
    (0x0890, 0x0891),
    (0x08E2, 0x08E2),
    (0x1680, 0x1680),
    (0x180E, 0x180E),
    (0x2000, 0x200F),
    (0x2028, 0x202F),
    (0x205F, 0x206F),
    (0x3000, 0x3000),
    (0xD800, 0xF8FF),
    (0xFEFF, 0xFEFF),
    (0xFFF0, 0xFFFB),
    (0xFFFE, 0x10FFFF),
)


class ContractError(ValueError):
    """A bundle or contract that must not move a robot; one line with the field, its value and the allowed values.

    For any content of the file it is one printable line of at most `MAX_LINE` characters.
    """

    def __init__(self, line: str) -> None:
        """Clean the line: other white space becomes a blank, unprintable characters are escaped, the middle is cut."""
        line = re.sub(r"[^\S ]+", " ", line)
        line = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in line)
        super().__init__(line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 305]} ... {line[-300:]}")


def is_printable(text: str) -> bool:
    """Whether a text contains none of the `UNPRINTABLE` characters."""
    codes = [ord(sign) for sign in text if not " " <= sign <= "~"]
    return not any(low <= code <= high for code in codes for low, high in UNPRINTABLE)


def refuse(where: str, value: object, wanted: str) -> NoReturn:
    """Raise a `ContractError` with the field `where`, its value, and the allowed values."""
    try:
        shown = repr(value)
    except (ValueError, RecursionError):  # of very long numbers and very deep lists
        shown = f"a {type(value).__name__} too large to show"
    raise ContractError(f"{where} is {shown if len(shown) <= 80 else shown[:77] + '...'}; {wanted}")


def at_least(where: str, value: float | None, low: float, *, strictly: bool = False) -> None:
    """Refuse a value below `low` (or equal to it, with `strictly`); None passes."""
    if value is not None and not (value > low if strictly else value >= low):
        refuse(where, value, f"it must be {'more than' if strictly else 'at least'} {low:g}")


def unique(where: str, names: Sequence[str]) -> None:
    """Refuse empty and repeated names."""
    for name, count in Counter(names).items():
        if not name:
            refuse(where, name, "a name is needed")
        if count > 1:
            refuse(where, name, "the name is given twice; names must be unique")


def number(value: object, where: str) -> float:
    """Return a finite number as float and refuse everything else, including booleans."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        refuse(where, value, "a number is needed")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        refuse(where, value, "a finite number is needed")
    return result


def decode(kind: Any, value: Any, where: str) -> Any:
    """Read a JSON value as a type, refusing everything else.

    Args:
        kind: float, int, str, a dataclass, `X | None`, `tuple[X, ...]` or `dict[str, X]`.
        value: The value.
        where: Path of the field, for the message.

    Returns:
        The value as that type.

    Raises:
        ContractError: It is of another type, or a field of a dataclass is unknown or missing; one that has a default
            may be missing.
    """
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return None if value is None else decode(args[0], value, where)
    if dataclasses.is_dataclass(kind):
        return _decode_fields(kind, value, where)
    if kind is float:
        return number(value, where)
    if kind in (int, str):
        if isinstance(value, bool) or not isinstance(value, kind):
            refuse(where, value, f"{'a whole number' if kind is int else 'a text'} is needed")
        if isinstance(value, str) and not is_printable(value):
            refuse(where, value, "a text that can be printed is needed")
        return value
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            refuse(where, value, "a list is needed")
        return tuple(decode(args[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        refuse(where, value, "an object is needed")
    return {key: item if args[1] is Any else decode(args[1], item, f"{where}.{key}") for key, item in value.items()}


def _decode_fields(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        refuse(where, value, "an object is needed")
    hints = typing.get_type_hints(kind)
    prefix = f"{where}." if where != "contract" else ""
    for key in value:
        if key not in hints:
            raise ContractError(f"{prefix}{key} is unknown; the fields are {', '.join(hints)}")
    for field in dataclasses.fields(kind):
        if field.name not in value and field.default is dataclasses.MISSING:
            raise ContractError(f"{prefix}{field.name} is missing; {kind.__name__} needs it")
    return kind(**{key: decode(hints[key], value[key], f"{prefix}{key}") for key in hints if key in value})

"""Settings as dataclasses: to plain values and back, each value checked by its annotation."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import math
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from robot_rl.errors import UnknownKeyError, UserError, shown, suggest
from robot_rl.settings.checks import check_choice, check_range, to_float

T = TypeVar("T")
FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
"""The words of a flag on the command line."""
RIGHT = {float: "a number", int: "a whole number", bool: "true or false", str: "a word"}
SAMPLES = {int: "[128, 128]", float: "[0.5, 1.0]", str: "[actor]"}


def setting(
    default: Any,
    text: str = "",
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    choices: Sequence[str] = (),
    at_least_one: str = "",
    called: str = "",
) -> Any:
    """Return a field of a dataclass of settings.

    Args:
        default: Its default.
        text: Its line of help; empty: the one of its name in the class's docstring, under "Attributes:".
        least: The least value of a number, or of each in a list.
        above: The value that a number must be above, instead of `least`.
        most: The largest value of a number, or of each in a list.
        choices: The valid words.
        at_least_one: What an item of a list is, which may not be empty.
        called: Its name for users, if it is not the field's.
    """
    rules = {"help": text, "least": least, "above": above, "most": most, "choices": tuple(choices), "called": called}
    if at_least_one:
        rules |= {"at_least_one": at_least_one, "example": list(default)}
    return dataclasses.field(default=default, metadata=rules)


@functools.cache
def rules_of(cls: type) -> dict[str, Mapping[str, Any]]:
    """Return what `setting` says of each field of a dataclass; a subclass may give a field another default only."""
    rules: dict[str, Mapping[str, Any]] = {}
    for base in reversed(cls.__mro__):
        for field in getattr(base, "__dataclass_fields__", {}).values():
            rules[field.name] = field.metadata or rules.get(field.name, {})
    return rules


@functools.cache
def help_of(cls: type) -> dict[str, str]:
    """Return a line of help for each field of a dataclass, from `setting` or from "Attributes:" in its docstring."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        _, _, part = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")
        for name, text in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", part, flags=re.MULTILINE):
            texts[name] = " ".join(text.split())
    return texts | {name: rule["help"] for name, rule in rules_of(cls).items() if rule.get("help")}


def check_fields(cfg: Any, prefix: str = "") -> None:
    """Make each list of a dataclass of settings a tuple, and check what `setting` says of its fields.

    Raises:
        UserError: A value is out of its range, not one of the choices, or a list without an item.
    """
    rules = rules_of(type(cfg))
    for field in dataclasses.fields(cfg):
        value = getattr(cfg, field.name)
        if isinstance(value, list) and isinstance(field.default, tuple):
            setattr(cfg, field.name, value := _as_tuple(value))
        rule = rules[field.name]
        check_rule(rule.get("called") or f"{prefix}{field.name}", value, rule)


def check_rule(name: str, value: Any, rule: Mapping[str, Any]) -> None:
    """Raise UserError if a value is not what `setting` says of its field."""
    if rule.get("at_least_one") and not value:
        raise UserError(
            name, value, f"must name at least one {rule['at_least_one']}", f"such as {shown(rule['example'])}"
        )
    if rule.get("choices"):
        check_choice(name, value, rule["choices"])
    least, most, above = rule.get("least"), rule.get("most"), rule.get("above")
    if least is most is above is None:
        return
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, int | float) and not isinstance(number, bool):
            check_range(name, number, above if least is None else least, most, open_low=above is not None)


def _as_tuple(value: Any) -> Any:
    return tuple(_as_tuple(item) for item in value) if isinstance(value, list) else value


def to_dict(cfg: Any) -> dict[str, Any]:
    """Return a configuration, with nested ones, as a dictionary that JSON and YAML can hold (tuples become lists)."""
    return {field.name: _plain(getattr(cfg, field.name)) for field in dataclasses.fields(cfg)}


def from_dict(cls: type[T], values: Mapping[str, Any], *, prefix: str = "") -> T:
    """Build a configuration from a dictionary as made by `to_dict`; missing keys keep their defaults.

    Raises UserError, with the dotted path `prefix`, for an unknown key (with the nearest one) or an invalid value.
    """
    hints = typing.get_type_hints(cls)
    require_known(values, [field.name for field in dataclasses.fields(cls) if field.init], prefix)  # type: ignore[arg-type]
    called = {key: rule["called"] for key, rule in rules_of(cls).items() if rule.get("called")}
    checked = {key: convert(hints[key], value, called.get(key, f"{prefix}{key}")) for key, value in values.items()}
    try:
        return cls(**checked)
    except UserError as error:
        raise error if str(error).startswith((prefix, *called.values())) else UserError(f"{prefix}{error}") from None


def require_known(names: Iterable[Any], known: Iterable[str], prefix: str = "") -> None:
    """Raise UserError, with the nearest key, for a name that is not a known key of the group `prefix`."""
    known = list(known)
    for name in names:
        if name not in known:
            raise UnknownKeyError(f"{prefix}{name}", suggest(str(name), known, prefix.rpartition(" ")[2]))


def convert(hint: Any, value: Any, name: str) -> Any:
    """Return a plain value as the type of an annotation.

    Raises:
        UserError: It is of another type; the line begins with the setting's `name`.
    """
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return None if value is None and type(None) in args else convert(_some(args), value, name)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if isinstance(value, hint):
            return value
        if not isinstance(value, Mapping):
            raise not_a_value(name, value, [field.name for field in dataclasses.fields(hint)])
        return from_dict(hint, value, prefix=f"{name}.")
    if origin in (tuple, list):
        if isinstance(value, str) or not isinstance(value, (list, tuple)):
            raise UserError(name, shown(value), "must be a list", f"such as {_example(args[0], value)}")
        return origin(convert(args[0], item, f"{name}[{i}]") for i, item in enumerate(value))
    if origin is dict or hint is dict:
        if not isinstance(value, Mapping):
            raise UserError(name, shown(value), "must be a mapping")
        return dict(value)
    if hint is str and isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # A name or a time of digits alone.
    return scalar(hint, value, name)


def scalar(hint: Any, value: Any, name: str, *, finite: bool = False) -> Any:
    """Return a plain value as a number, word or flag; raise UserError for another type, or one that is not `finite`."""
    number = to_float(value)
    if hint is float and number is not None:
        if finite and not math.isfinite(number):
            raise UserError(name, shown(value), "must be a finite number")
        return number
    if hint is int and number is not None and number.is_integer() and (isinstance(value, int) or abs(number) < 2**53):
        return int(value)
    if hint is Any or (hint in (bool, str) and isinstance(value, hint)):
        return value
    raise UserError(name, shown(value), f"must be {RIGHT.get(hint, hint)}")


def from_text(hint: Any, text: str, name: str) -> Any:
    """Return the text of a command's option as the type of its field.

    Raises:
        UserError: The text is not a value of that type; a number must be finite, and in digits from 0 to 9.
    """
    if isinstance(hint, types.UnionType):
        hint = _some(typing.get_args(hint))
    value: Any = text
    if hint is bool:
        value = FLAGS.get(text.lower(), text)
    elif hint is not str and text.isascii():
        with contextlib.suppress(ValueError):
            value = hint(text)
    return scalar(hint, value, name, finite=True)


def not_a_value(name: str, value: Any, known: Iterable[str]) -> UserError:
    """Return the error of a group of settings that is given one value."""
    return UserError(name, shown(value), "is a group", f"set one of {', '.join(f'{name}.{key}' for key in known)}")


def _some(args: tuple[Any, ...]) -> Any:
    """Return the type of an optional one."""
    return next(part for part in args if part is not type(None))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_dict(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


def _example(hint: Any, value: Any) -> str:
    """Return an example of a list of values of a type; of one such value, that value in brackets."""
    if isinstance(value, str | float | int) and not isinstance(value, bool) and value != "":
        with contextlib.suppress(UserError):
            return shown([convert(hint, value, "")])
    return SAMPLES.get(hint, "[...]")

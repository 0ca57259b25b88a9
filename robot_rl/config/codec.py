"""Configuration dataclasses to plain dictionaries and back, and overrides by dotted name, all with typed errors."""

from __future__ import annotations

import contextlib
import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from robot_rl.config.checks import to_float
from robot_rl.errors import UserError, suggest

T = TypeVar("T")


def to_dict(cfg: Any) -> dict[str, Any]:
    """Return a configuration, with nested ones, as a dictionary that JSON and YAML can hold (tuples become lists)."""
    return {field.name: _plain(getattr(cfg, field.name)) for field in dataclasses.fields(cfg)}


def from_dict(cls: type[T], values: Mapping[str, Any], *, prefix: str = "") -> T:
    """Build a configuration from a dictionary as made by `to_dict`; missing keys keep their defaults.

    Raises UserError, with the dotted path `prefix`, for an unknown key (with the nearest one) or an invalid value.
    """
    hints = typing.get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls) if field.init]  # type: ignore[arg-type]
    checked: dict[str, Any] = {}
    for key, value in values.items():
        if key not in names:
            raise UserError(f"unknown key '{prefix}{key}': {suggest(str(key), names)}")
        checked[key] = _convert(hints[key], value, f"{prefix}{key}")
    try:
        return cls(**checked)
    except UserError as error:
        raise UserError(f"{prefix}{error}") if prefix else error from None


def apply_overrides(cfg: T, overrides: Mapping[str, Any]) -> T:
    """Return a copy of a configuration with values replaced, by dotted name such as "ppo.learning_rate".

    Raises UserError for an unknown key (with the nearest known one) or an invalid value.
    """
    values = to_dict(cfg)
    known = _dotted(values)
    for name, value in overrides.items():
        node: Any = values
        *parents, last = name.split(".")
        for part in parents:
            node = node.get(part) if isinstance(node, dict) else None
        if not isinstance(node, dict) or last not in node:
            raise UserError(f"unknown key '{name}': {suggest(name, known)}")
        if isinstance(node[last], dict) and isinstance(value, Mapping):
            node[last] = {**node[last], **value}
        else:
            node[last] = value
    return from_dict(type(cfg), values)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_dict(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


def _dotted(values: Mapping[str, Any], prefix: str = "") -> list[str]:
    names = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            names += _dotted(value, f"{prefix}{key}.")
        else:
            names.append(f"{prefix}{key}")
    return names


def _convert(hint: Any, value: Any, name: str) -> Any:
    """Return `value` as the type of the annotation, or raise UserError with the field's name."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        return _convert(next(arg for arg in args if arg is not type(None)), value, name)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if isinstance(value, hint):
            return value
        if not isinstance(value, Mapping):
            raise UserError(f"{name}: {value!r} is no group of settings; set its fields, such as {name}.<field>")
        return from_dict(hint, value, prefix=f"{name}.")
    if origin is tuple:
        if isinstance(value, str) or not isinstance(value, (list, tuple)):
            raise UserError(f"{name}: {value!r} is no list; {_example(args[0], value)}")
        return tuple(_convert(args[0], item, f"{name}[{i}]") for i, item in enumerate(value))
    if origin is dict or hint is dict:
        if not isinstance(value, Mapping):
            raise UserError(f"{name}: {value!r} is no mapping")
        return dict(value)
    return _scalar(hint, value, name)


def _example(hint: Any, value: Any) -> str:
    """Return an example of a list of values of a type; of one such value, that value in brackets."""
    if isinstance(value, str | float | int) and not isinstance(value, bool) and value != "":
        with contextlib.suppress(UserError):
            return f"must be one, such as [{_scalar(hint, value, '')}]"
    samples = {int: "[128, 128]", float: "[0.5, 1.0]", str: "[actor]"}
    return f"must be one, such as {samples.get(hint, '[...]')}"


def _scalar(hint: Any, value: Any, name: str) -> Any:
    number = to_float(value)
    if hint is float and number is not None:
        return number
    if hint is int and number is not None and number.is_integer():
        return int(value)
    if hint in (bool, str) and isinstance(value, hint):
        return value
    if hint is Any:
        return value
    wanted = {float: "a number", int: "a whole number", bool: "true or false", str: "a word"}.get(hint, str(hint))
    raise UserError(f"{name}: {value!r} is not {wanted}")

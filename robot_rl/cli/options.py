"""Reads key=value arguments into a dataclass of options, with a suggestion for every typo."""

import dataclasses
import shlex
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from robot_rl.errors import UserError, suggest
from robot_rl.reading import read_yaml

T = TypeVar("T")


def option(default: Any, text: str) -> Any:
    """A field of an options dataclass, with the line that describes it in the help."""
    return dataclasses.field(default=default, metadata={"help": text})


def describe(cls: type) -> str:
    """The options of a dataclass as lines of help: name=default, then what it means."""
    rows = [
        (f"{field.name}={_shown(field.default)}", field.metadata.get("help", "")) for field in dataclasses.fields(cls)
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:<{width}}  {text}" for name, text in rows)


def run_words(path: Path) -> str:
    """What names the run at `path` on the command line: its id, and its root where that is not the default."""
    root = path.parent.parent
    return path.name if root == Path("runs") else f"{path.name} root={shlex.quote(str(root))}"


def split(arguments: Sequence[str]) -> dict[str, str]:
    """Splits key=value arguments.

    Raises:
        UserError: An argument is no key=value, or a key is given twice.
    """
    values: dict[str, str] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or not key or key.startswith("-"):
            raise UserError(f"'{argument}': write options as key=value; --help lists them")
        if key in values:
            raise UserError(f"{key}: given twice")
        values[key] = value
    return values


def read(cls: type[T], arguments: Sequence[str]) -> tuple[T, dict[str, Any]]:
    """Reads arguments into `cls`, and returns those that are a task's (`sim.timestep=0.004`, any key with a dot).

    Args:
        cls: A dataclass whose fields are str, int, float or bool, with defaults.
        arguments: key=value strings.

    Returns:
        The options, and the dotted overrides by name.

    Raises:
        UserError: An unknown key, or a value of the wrong type.
    """
    hints = typing.get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    known: dict[str, Any] = {}
    dotted: dict[str, Any] = {}
    for key, text in split(arguments).items():
        if key in hints:
            known[key] = convert(hints[key], text, key)
        elif "." in key:
            dotted[key] = parse_value(text, key)
        else:
            raise UserError(f"unknown key '{key}': {suggest(key, names)}")
    return cls(**known), dotted


def read_all(cls: type[T], arguments: Sequence[str]) -> T:
    """Reads arguments into `cls`, and refuses any other key.

    Raises:
        UserError: An unknown key, or a value of the wrong type.
    """
    options, dotted = read(cls, arguments)
    for key in dotted:
        names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        raise UserError(f"unknown key '{key}': {suggest(key, names)}")
    return options


def parse_value(text: str, name: str) -> Any:
    """Reads a number, list, true, false, null or word as YAML does; 1e-3 is a number too.

    Raises:
        UserError: The text is no such value.
    """
    try:
        value = read_yaml(text)
    except ValueError:
        raise UserError(f"{name}={text}: cannot be read; write a number, a word, true, false or [1, 2]") from None
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def convert(hint: Any, text: str, name: str) -> Any:
    """Converts an argument's text to the type of its field.

    Raises:
        UserError: The text is no value of that type.
    """
    if isinstance(hint, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    if hint is str:
        return text
    if hint is bool:
        words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if text.lower() not in words:
            raise UserError(f"{name}={text}: must be true or false")
        return words[text.lower()]
    try:
        return hint(text)
    except ValueError:
        raise UserError(f"{name}={text}: must be {'a whole number' if hint is int else 'a number'}") from None


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)

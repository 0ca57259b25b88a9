"""Reads key=value arguments into a dataclass of options, with a suggestion for every typo."""

import dataclasses
import math
import shlex
import types
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from robot_rl.errors import UserError, suggest
from robot_rl.reading import read_yaml

T = TypeVar("T")


MAX_SEED = 2**31 - 1
MAX_ENVS = 2**20
MAX_COUNT = 2**31 - 1


def option(default: Any, text: str, *, least: float | None = None, most: float | None = None) -> Any:
    """A field of an options dataclass, with the line that describes it in the help.

    Args:
        default: What it is where it is not given.
        text: What it means.
        least: The least number that may be given.
        most: The greatest.
    """
    return dataclasses.field(default=default, metadata={"help": text, "least": least, "most": most})


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
            refuse_twice([(key, f"{key}={values[key]}"), (key, argument)])
        values[key] = value
    return values


def refuse_twice(given: Iterable[tuple[str, str]]) -> None:
    """Refuse a setting that is given twice, by its own name or as a part of its group.

    Args:
        given: What the words of the command line set: dotted name and word.

    Raises:
        UserError: The line has both words.
    """
    words: dict[str, str] = {}
    for name, word in given:
        if name in words:
            raise UserError(f"{words[name]} and {word}: {name} is given twice; leave one of them out")
        words[name] = word
    for name, word in words.items():
        parts = name.split(".")
        for group in (".".join(parts[:count]) for count in range(1, len(parts))):
            if group in words:
                raise UserError(f"{words[group]} and {word}: {name} is given twice; leave one of them out")


def read(cls: type[T], arguments: Sequence[str]) -> tuple[T, dict[str, Any]]:
    """Reads arguments into `cls`, and returns those that are a task's (`sim.timestep=0.004`, any key with a dot).

    Args:
        cls: A dataclass whose fields are str, int, float or bool, with defaults.
        arguments: key=value strings.

    Returns:
        The options, and the dotted overrides by name.

    Raises:
        UserError: An unknown key, a value of the wrong type or out of range.
    """
    hints = typing.get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    known: dict[str, Any] = {}
    dotted: dict[str, Any] = {}
    ranges = {field.name: field.metadata for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key, text in split(arguments).items():
        if key in hints:
            if not text:
                raise UserError(f"{key}= is empty; give a value, or leave {key}= out for the default")
            known[key] = convert(hints[key], text, key)
            check_between(key, known[key], ranges[key].get("least"), ranges[key].get("most"))
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
    """Reads a number, list, true, false, null or word, each as `robot-rl train` does.

    Raises:
        UserError: The text is no such value.
    """
    try:
        return read_yaml(text, plain=True)
    except ValueError:
        raise UserError(f"{name}={text}: cannot be read; write a number, a word, true, false or [1, 2]") from None


def check_between(name: str, value: Any, least: float | None, most: float | None = None) -> None:
    """Refuses a number out of its range; None of either bound is none, and what is no number has none.

    Raises:
        UserError: The line says the range.
    """
    if isinstance(value, str | bool | None):
        return
    if (least is not None and value < least) or (most is not None and value > most):
        low = "" if least is None else f"at least {least:g}" if isinstance(least, float) else f"at least {least}"
        high = "" if most is None else f"at most {most:g}" if isinstance(most, float) else f"at most {most}"
        raise UserError(f"{name}={value}: must be {' and '.join(filter(None, (low, high)))}")


def convert(hint: Any, text: str, name: str) -> Any:
    """Converts an argument's text to the type of its field.

    Raises:
        UserError: The text is no value of that type; a number must be finite, and in digits from 0 to 9.
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
        number = hint(text)
    except ValueError:
        number = None
    if number is None or not text.isascii():
        raise UserError(f"{name}={text}: must be {'a whole number' if hint is int else 'a number'}")
    if not math.isfinite(number):
        raise UserError(f"{name}={text}: must be a finite number")
    return number


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)

"""The grammar of settings, one for every command: `key=value`, `~key` (remove), read as Hydra reads them.

`robot-rl train` passes its words on to Hydra, which adds sweeps; the other commands apply the changes themselves.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from robot_rl.errors import UserError
from robot_rl.settings.precision import PrecisionCfg

MAX_SEED, MAX_ENVS, MAX_COUNT = 2**31 - 1, 2**20, 2**31 - 1
"""Bounds of seeds, of numbers of worlds, and of all other counts."""


class _LeftOut:
    """The type of `REMOVED`."""

    def __repr__(self) -> str:
        return "~"


REMOVED = _LeftOut()
"""Stands in changes for the value of an omitted setting (`~key`)."""


SHORT = {"precision": f"precision.{PrecisionCfg.SHORT}"}
"""Groups that may be given one value, and the setting that it is then for."""


def parse_word(word: str, shown: str = "") -> Any:
    """Return Hydra's parsed override of a word, which errors show as `shown` if that is given.

    A value for one of the groups in `SHORT` is one for the setting that it stands for.

    Raises:
        UserError: Hydra's grammar cannot read it, or it has a package (`key@package`).
    """
    from hydra.errors import HydraException

    group, equals, value = word.partition("=")
    if group in SHORT and equals and not value.startswith("{"):
        word = f"{SHORT[group]}={value}"
    try:
        override = _parser().parse_overrides([_quoted(word)])[0]
    except (HydraException, ValueError, RecursionError) as error:  # ValueError: a number with thousands of digits
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error).partition("\n")[0]
        why = re.sub(r"^\w*Exception: .*", "a character that has its own meaning", why)
        right = "write a number, a word, true, false or [1, 2], and anything else as '...' in its own quotes"
        raise UserError(f"{shown or word}: cannot be read, {why}; {right}") from None
    if override.package is not None:
        raise UserError(f"'{override.input_line}': has a package (@), which no setting here has; omit it")
    return override


def parse_value(text: str, name: str) -> Any:
    """Return the number, word, flag, list or None of a setting's text; raise UserError for anything else."""
    override = parse_word(f"x={text}", f"{name}={text}")
    if override.is_sweep_override():
        raise UserError(name, text, "several values are a sweep, which robot-rl train -m makes", "write [1, 2]")
    return override.value()


def read_changes(words: Sequence[str]) -> dict[str, Any]:
    """Return the values that words set, by dotted name; `REMOVED` for `~key`.

    Raises:
        UserError: A word cannot be read, adds a setting or sweeps, or one is given twice.
    """
    changes: dict[str, Any] = {}
    names: list[tuple[str, str]] = []
    for word in words:
        override = parse_word(word)
        refuse_addition(override)
        if override.is_sweep_override():
            raise UserError(f"'{word}': several values are a sweep, which robot-rl train -m makes")
        if override.is_delete() and "=" in word:
            raise UserError(f"'{word}': leave the value out, ~{override.key_or_group}")
        value = REMOVED if override.is_delete() else override.value()
        changes[override.key_or_group] = value
        names += [(name, word) for name in leaf_names(override.key_or_group, value)]
    refuse_twice(names)
    return changes


def refuse_addition(override: Any) -> None:
    """Raise UserError for a parsed override that adds a setting (`+key=value`)."""
    if override.is_add() and not override.is_force_add():
        raise UserError(f"'{override.input_line}': settings can be changed, not added; omit the +")


def refuse_twice(given: Iterable[tuple[str, str]]) -> None:
    """Raise UserError for a setting that is given twice, by its own name or as a part of its group.

    Args:
        given: Dotted name and word of each setting on the command line.
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


def leaf_names(name: str, value: Any) -> Iterator[str]:
    """Yield the dotted names of the values that a setting sets: its own, or those in the group that it gives."""
    if not isinstance(value, Mapping) or not value:
        yield name
        return
    for key, part in value.items():
        yield from leaf_names(f"{name}.{key}", part)


@functools.cache
def _parser() -> Any:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create()


def _quoted(word: str) -> str:
    """Return a word with its non-ASCII values in quotes: Hydra reads these only in quotes."""
    key, equals, text = word.partition("=")
    if text.isascii() or any(sign in text for sign in "'\"\\[]{}()$"):
        return word
    return key + equals + ",".join(part if part.isascii() else f"'{part}'" for part in text.split(","))

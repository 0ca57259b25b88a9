"""A user's own file of settings for `robot-rl train --config FILE`: YAML with the names of the command line.

A value is read by the grammar of the command line (`robot_rl.settings.words`), not by YAML's: 1e-3 is a number and off
a word. One in quotes is text. A file becomes words, which those of the command line replace by name.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robot_rl.errors import UnknownKeyError, UserError
from robot_rl.files import read_plain, read_yaml
from robot_rl.settings.words import leaf_names, parse_word

FLAG, KEY = "--config", "config"
MAX_BYTES = 2**20
NAME = re.compile(r"~?[^\W\d][\w./-]*")
"""How a setting is written in a file; `~` omits it."""


@dataclass(kw_only=True, slots=True)
class ConfigFile:
    """The settings of a file that the command line does not have.

    Attributes:
        path: The file.
        words: Its settings as words of the command line.
        lines: The line of each of its settings in the file, by dotted name.
    """

    path: Path
    words: list[str] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Add the file and the line to a UserError that begins with one of its settings."""
        try:
            yield
        except UserError as error:
            head, line = str(error).partition(": ")[0], str(error)
            is_of_setting = type(error) in (UserError, UnknownKeyError)
            for name in sorted(self.lines, key=len, reverse=True):
                if is_of_setting and re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", head):
                    if "=[" in head and "must be a list" not in line:
                        line += "; several values are a sweep: write a,b,c and add -m"
                    raise UserError(f"{self.path}, line {self.lines[name]}: {line}") from error
            raise


def take_config(arguments: Sequence[str]) -> tuple[list[str], ConfigFile | None]:
    """Return the words of a command line with those of its file of settings, and that file; None without one.

    Args:
        arguments: Words, among them `--config FILE`, `--config=FILE` or `config=FILE`.

    Raises:
        UserError: Two files are named, or one cannot be read.
    """
    rest, paths = [], []
    words = iter(arguments)
    for word in words:
        key, equals, value = word.partition("=")
        if key == FLAG or (key == KEY and equals):
            paths.append(value if equals else next(words, ""))
        else:
            rest.append(word)
    if not paths:
        return rest, None
    if len(paths) > 1:
        raise UserError(f"{FLAG} {paths[0]} and {FLAG} {paths[1]}: one file is read; put the settings into one")
    if not paths[0]:
        raise UserError(f"{FLAG}: name a file of settings, such as {FLAG} my.yaml")
    found = read_config(Path(paths[0]), {name for word in rest for name in _names(word)})
    return [*found.words, *rest], found


def _names(word: str) -> Iterator[str]:
    """Yield the settings that a word of the command line gives or omits."""
    name, _, value = word.lstrip("~+").partition("=")
    yield from leaf_names(name, parse_word(word).value() if value.startswith("{") else None)


def read_config(path: Path, given: set[str]) -> ConfigFile:
    """Return the settings of a file but those that the command line gives, by dotted name.

    Raises:
        UserError: The file is missing, is not YAML, or has something else than settings.
    """
    try:
        text = read_plain(path.expanduser().resolve(), MAX_BYTES).decode()
        root = read_yaml(text, build=lambda node: node)
    except OSError as error:
        raise UserError(f"{FLAG} {path}: cannot be read ({(error.strerror or str(error)).lower()})") from None
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{path}: is not YAML, {error}") from None
    found = ConfigFile(path=path)
    if root is None:
        return found
    if not _is_group(root):
        raise UserError(f"{path}: must have settings, such as task: cartpole")
    for name, node in _settings(path, "", root):
        line = node.start_mark.line + 1
        if name in found.lines:
            raise UserError(f"{path}, line {line}: {name} is given twice, first in line {found.lines[name]}")
        found.lines[name] = line
        if not any(name == other or name.startswith(f"{other}.") for other in given):
            found.words.append(_word(path, name, node))
    found.lines = {name.lstrip("~"): line for name, line in found.lines.items()}
    return found


def _is_group(node: Any) -> bool:
    return node.id == "mapping" and bool(node.value)


def _settings(path: Path, prefix: str, group: Any) -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the node of each setting in a group, at any depth."""
    for key, node in group.value:
        name, where = str(key.value), f"{path}, line {key.start_mark.line + 1}"
        if key.id != "scalar" or not NAME.fullmatch(name):
            raise UserError(f"{where}: {name[:80]!r} is not a name of a setting")
        name = f"~{prefix}{name[1:]}" if name.startswith("~") else f"{prefix}{name}"
        if _is_group(node) and not name.startswith("~"):
            yield from _settings(path, f"{name}.", node)
        else:
            yield name, node


def _word(path: Path, name: str, node: Any) -> str:
    """Return a setting as a word of the command line."""
    if not name.startswith("~"):
        return f"{name}={_value(path, node)}"
    if node.id != "scalar" or node.value:
        raise UserError(f"{path}, line {node.start_mark.line + 1}: {name} has a value; write {name}: alone")
    return name


def _value(path: Path, node: Any, *, is_item: bool = False) -> str:
    """Return a value in the grammar of the command line."""
    if node.id == "sequence":
        return f"[{','.join(_value(path, item, is_item=True) for item in node.value)}]"
    if node.id == "mapping":
        if is_item and node.value:
            raise UserError(f"{path}, line {node.start_mark.line + 1}: a list may not have groups in it")
        return "{}"
    text = str(node.value)
    if (node.style and not _is_word(text)) or (is_item and re.search(r"[][{},]", text)):
        return _quote(text)
    return "null" if text in ("", "~") else text


def _is_word(text: str) -> bool:
    """Return whether text is read as itself without quotes, which names of launchers and sweepers may not have."""
    return bool(re.fullmatch(r"[A-Za-z_][\w./-]*", text)) and text.lower() not in (
        "true",
        "false",
        "null",
        "nan",
        "inf",
    )


def _quote(text: str) -> str:
    """Return text in the quotes of Hydra, in which backslashes only count before a quote."""
    return "'" + re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + (found[2] and "\\'"), text) + "'"

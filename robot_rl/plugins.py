"""Plug-ins for the commands: the finder of `robot_rl_assets.plugins` with its errors as `UserError`.

Importable without torch and without a simulator; the registries of robots and tasks use the finder itself.
"""

import ast
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from robot_rl_assets import plugins as finder
from robot_rl_assets.plugins import ALGORITHMS, GROUPS, LAUNCHERS, ROBOTS, SOURCES, TASKS, Plugin, find_plugins

from robot_rl.errors import UserError

__all__ = [
    "ALGORITHMS",
    "GROUPS",
    "LAUNCHERS",
    "ROBOTS",
    "SOURCES",
    "TASKS",
    "Plugin",
    "describe_all",
    "find_plugins",
    "load",
    "load_reference",
    "make",
]

T = TypeVar("T")


def load(group: str, name: str, what: str, own: Iterable[str] = ()) -> Any:
    """Return the object of a name: a plug-in of an installed package, or `module:name`.

    Args:
        group: One of `GROUPS`.
        name: The name.
        what: The setting that names it, such as "learner".
        own: Names that the caller's registry knows by itself, for the suggestion.

    Raises:
        UserError: There is none of that name (the line offers the nearest), two packages have it, or it cannot be
            imported; the line names the distribution.
    """
    try:
        return finder.load(group, name, what, own)
    except finder.PluginError as error:
        raise UserError(error) from error


def load_reference(name: str, what: str) -> Any:
    """Return the object of `module:name`, which the setting `what` names; raise UserError for anything else."""
    if ":" not in name:
        raise UserError(f"{what}={name}: must be written module:name, such as {what}=my_package.{what}:make")
    return load("", name, what)


def make(found: Any, kind: type[T], line: str, right: str, *arguments: Any) -> T:
    """Return the object of a kind that a plug-in stands for, as `robot_rl_assets.plugins.make`; raise UserError."""
    try:
        return finder.make(found, kind, line, right, *arguments)
    except finder.PluginError as error:
        raise UserError(error) from error


def describe_all(group: str, what: str, own: Mapping[str, Path]) -> dict[str, str]:
    """Return a line for everything of a registry by name: what it is, or why it cannot be used.

    Args:
        group: The group of the registry's plug-ins, each of which is loaded.
        what: The setting that names one.
        own: The files of the registry itself; none of them is imported.
    """
    lines = {name: first_line(path) for name, path in own.items()}
    for name, plugin in find_plugins(group).items():
        packages = " and of ".join(plugin.packages)
        if name in own:
            lines[f"{name} of {packages}"] = "cannot be used: robot-rl has one of this name"
            continue
        try:
            plugin.load(what)
        except finder.PluginError as error:
            lines[name] = f"cannot be used: {error}"
        else:
            text = sys.modules[plugin.target.partition(":")[0]].__doc__ or ""
            lines[name] = f"{text.strip().partition(chr(10))[0].rstrip('.')} (of {packages})"
    return dict(sorted(lines.items()))


def first_line(path: Path) -> str:
    """Return the first line of a module's docstring, read without importing it; empty where there is none."""
    try:
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        return f"cannot be read: {error}"
    return text.split("\n")[0].rstrip(".")

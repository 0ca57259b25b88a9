"""Registries and plug-ins for the commands: those of `robot_rl_assets.plugins` with their errors as `UserError`.

Importable without torch and without a simulator; the registries of robots and tasks use the original.
"""

from collections.abc import Iterable
from typing import Any, TypeVar

from robot_rl_assets import plugins as finder
from robot_rl_assets.plugins import (
    ALGORITHMS,
    LAUNCHERS,
    ROBOTS,
    SOURCES,
    TASKS,
    Plugin,
    describe_plugins,
    find_plugins,
    first_line,
    named_here,
)

from robot_rl.errors import UserError, as_user_error

COMMANDS = "robot_rl.commands"
"""The group of commands: each names a module with a docstring, its help, and `run(arguments)`."""
GROUPS = (*finder.GROUPS, COMMANDS)

__all__ = [
    "ALGORITHMS",
    "COMMANDS",
    "GROUPS",
    "LAUNCHERS",
    "ROBOTS",
    "SOURCES",
    "TASKS",
    "Plugin",
    "Registry",
    "describe_plugins",
    "find_plugins",
    "first_line",
    "load",
    "load_reference",
    "make",
    "named_here",
]

T = TypeVar("T")


class Registry(finder.Registry):
    """What a setting may name; see `robot_rl_assets.plugins.Registry`."""

    def get(self, name: str) -> Any:
        """Return the object that a name stands for; raise UserError if it cannot be used."""
        with as_user_error():
            return super().get(name)


def load(group: str, name: str, what: str, own: Iterable[str] = ()) -> Any:
    """Return the object that a name stands for, as `robot_rl_assets.plugins.load`; raise UserError."""
    with as_user_error():
        return finder.load(group, name, what, own)


def load_reference(name: str, what: str) -> Any:
    """Return the object of `module:name`, which the setting `what` names; raise UserError for anything else."""
    if ":" not in name:
        raise UserError(what, name, f"must be written module:name, such as {what}=my_package.{what}:make")
    return load("", name, what)


def make(found: Any, kind: type[T], line: str, right: str, *arguments: Any) -> T:
    """Return the object of a kind that a plug-in stands for, as `robot_rl_assets.plugins.make`; raise UserError."""
    with as_user_error():
        return finder.make(found, kind, line, right, *arguments)

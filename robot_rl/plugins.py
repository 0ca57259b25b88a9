"""Plug-ins as the commands see them: the finder of `robot_rl_assets.plugins`, whose errors are the user's to put right.

Importable without torch and without a simulator; the registries below (`robot_rl_assets`, `robot_rl_tasks`) use the
finder itself.
"""

from collections.abc import Iterable
from typing import Any

from robot_rl_assets import plugins as finder
from robot_rl_assets.plugins import ALGORITHMS, GROUPS, LAUNCHERS, ROBOTS, SOURCES, TASKS, Plugin, find_plugins

from robot_rl.errors import UserError

__all__ = ["ALGORITHMS", "GROUPS", "LAUNCHERS", "ROBOTS", "SOURCES", "TASKS", "Plugin", "find_plugins", "load"]


def load(group: str, name: str, what: str, own: Iterable[str] = ()) -> Any:
    """Return the object that a name stands for: a plug-in of an installed package, or `module:name`.

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

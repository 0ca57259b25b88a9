"""Launchers: each file here with a class `Launcher` of `robot_rl.cluster.launchers.launcher`, and plug-ins."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from robot_rl.cluster.launchers.launcher import Launcher
from robot_rl.errors import UserError
from robot_rl.plugins import LAUNCHERS, Registry
from robot_rl.settings import from_dict


def _class(module: ModuleType) -> Any:
    """Return the launcher that a module here is listed for."""
    name = module.__name__.rpartition(".")[2]
    (found,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Launcher) and value.name == name
    )
    return found


REGISTRY = Registry(
    LAUNCHERS, "launcher", __name__, Path(__file__).parent, "*.py", _class, shared=("launcher", "exit_codes")
)


def get_launcher(name: str) -> type[Launcher]:
    """Return the class of a launcher: of a file here, an entry point, or "module:Class".

    Raises:
        UserError: There is none with that name (the nearest is offered), or it cannot be imported.
    """
    found = REGISTRY.get(name)
    if not (isinstance(found, type) and issubclass(found, Launcher)):
        raise UserError(f"launcher={name}: is {found!r}, must be a subclass of {Launcher.__module__}.Launcher")
    if missing := sorted(getattr(found, "__abstractmethods__", ())):
        raise UserError(f"launcher={name}: {found.__qualname__} has no {', '.join(missing)}; define it")
    return found


def read_launcher(name: str, settings: Mapping[str, Any]) -> Launcher:
    """Return a launcher with settings, checked.

    Args:
        name: Its name.
        settings: Values by the names of its fields.

    Raises:
        UserError: The launcher or a setting does not exist, a value is invalid, or a setting does not affect it.
    """
    cls = get_launcher(name)
    for key, value in settings.items():
        if key in cls.unused:
            raise UserError(f"launcher.{key}={value}: has no effect on launcher={name}; leave it out")
    return from_dict(cls, settings, prefix="launcher.")

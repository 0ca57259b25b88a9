"""Launchers: each file here with a class `Launcher` of `robot_rl.experiment.launchers.launcher`, and plug-ins."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from robot_rl.errors import UserError, suggest
from robot_rl.experiment.launchers.launcher import Launcher
from robot_rl.plugins import LAUNCHERS, Registry


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
        UserError: There is no such launcher or setting, a value is invalid, or the setting has no effect on it.
    """
    cls = get_launcher(name)
    for key, value in settings.items():
        if key in cls.unused:
            raise UserError(f"launcher.{key}={value}: has no effect on launcher={name}; leave it out")
    return cls(**typed(cls, settings, "launcher", f"launcher={name}"))


def typed(cls: type[Any], settings: Mapping[str, Any], group: str, what: str) -> dict[str, Any]:
    """Return values for the fields of a dataclass, as the fields' types.

    Args:
        cls: The dataclass, with fields of bool, int, float, str and lists of str.
        settings: Values by the names of its fields.
        group: The settings' group, for errors.
        what: What has the settings, for errors.

    Raises:
        UserError: There is no such field, or a value is of another type.
    """
    hints = get_type_hints(cls)
    known = [field.name for field in dataclasses.fields(cls)]
    for key, value in settings.items():
        if key not in known:
            raise UserError(f"{group}.{key}={value}: {what} has no such setting; {suggest(key, known)}")
    return {key: _convert(f"{group}.{key}", value, hints[key]) for key, value in settings.items()}


def _convert(name: str, value: Any, kind: Any) -> Any:
    """Return a value as its field's type: bool, int, float, str, or a list of str.

    Raises:
        UserError: It is of another type.
    """
    if kind == list[str]:
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise UserError(f"{name}={value}: must be a list of words, such as [a,b]")
        return list(value)
    if kind is str and isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # A time of 30 minutes, a partition called 7.
    right = {bool: "true or false", int: "a whole number", float: "a number", str: "a word, or text in quotes"}[kind]
    is_right = isinstance(value, kind) or (kind is float and isinstance(value, int))
    if not is_right or (isinstance(value, bool) and kind is not bool):
        raise UserError(f"{name}={value}: must be {right}")
    return value

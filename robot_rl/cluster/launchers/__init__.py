"""Launchers: each file here with a class `Launcher` of `robot_rl.cluster.launchers.launcher`, and plug-ins."""

from __future__ import annotations

import contextlib
import warnings
from abc import update_abstractmethods
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from robot_rl.cluster.launchers.launcher import Launcher
from robot_rl.errors import UserError
from robot_rl.plugins import LAUNCHERS, Registry, load, named_here
from robot_rl.settings import from_dict


def _class(module: ModuleType) -> Any:
    """Return the launcher that a module here is listed for."""
    name = module.__name__.rpartition(".")[2]
    (launcher,) = (each for each in vars(module).values() if _is_launcher(each) and each.name == name)
    return launcher


def _is_launcher(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Launcher)


SHARED = ("launcher", "applied", "exit_codes", "slurm_checks")
"""Files here that are not launchers."""
REGISTRY = Registry(LAUNCHERS, "launcher", __name__, Path(__file__).parent, "*.py", _class, shared=SHARED)


def get_launcher(name: str) -> type[Launcher]:
    """Return the class of a launcher: of a file here, an entry point, or "module:Class".

    Raises:
        UserError: There is none with that name (the nearest is offered), or it cannot be imported.
    """
    launcher = REGISTRY.get(name)
    if not _is_launcher(launcher):
        raise UserError("launcher", name, f"is {launcher!r}, must be a subclass of {Launcher.__module__}.Launcher")
    owner = next((cls for cls in launcher.__mro__ if {"submit", "launch"} & vars(cls).keys()), Launcher)
    if "submit" not in vars(owner):  # A plug-in's, also one of a launcher here with its own `launch`.
        warnings.warn(f"{owner.__qualname__}.launch is submit now; call it that", FutureWarning, 2)
        launcher.submit = launcher.launch  # type: ignore[attr-defined]
        update_abstractmethods(launcher)
    if missing := sorted(launcher.__abstractmethods__):
        raise UserError("launcher", name, f"{launcher.__qualname__} has no {', '.join(missing)}", "define it")
    return launcher


def list_launchers() -> dict[str, type[Launcher]]:
    """Return all launchers that can be used, by name, those of installed plug-ins last; each is imported."""
    launchers = {}
    names = [name for name in REGISTRY.names() if not named_here(LAUNCHERS, name, REGISTRY.files())]
    for name in sorted(names, key=lambda name: name not in REGISTRY.files()):
        with contextlib.suppress(UserError):  # `robot-rl list plugins` says why.
            launchers[name] = get_launcher(name)
    return launchers


def list_targets() -> dict[str, type[Launcher]]:
    """Return the launcher that renders each kind of manifest, by its name, sorted."""
    targets: dict[str, type[Launcher]] = {}
    for launcher in list_launchers().values():
        targets = dict.fromkeys(launcher.targets, launcher) | targets
    return dict(sorted(targets.items()))


def find_target(name: str) -> tuple[type[Launcher], str]:
    """Return the launcher that renders a kind of manifest, and the name by which it knows that.

    Raises:
        UserError: No launcher renders it, or `module:name` is not a launcher that renders a manifest.
    """
    if name in (targets := list_targets()):
        return targets[name], name
    launcher = load("", name, "target", targets)
    if not (_is_launcher(launcher) and launcher.targets):
        raise UserError("target", name, f"is {launcher!r}", "must be a Launcher with targets and render(job, target)")
    return launcher, next(iter(launcher.targets))


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
            raise UserError(f"launcher.{key}", value, f"does not affect launcher={name}", "omit it")
    return from_dict(cls, settings, prefix="launcher.")

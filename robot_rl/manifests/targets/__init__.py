"""What a run can be rendered for: each file here is a target, with its own `USED` options and `render`."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

from robot_rl.errors import UserError, suggest


def list_targets() -> list[str]:
    """Return the names of all targets, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def describe_targets() -> str:
    """Return a line of help for each target."""
    from robot_rl.plugins import first_line

    names = list_targets()
    return "\n".join(f"  {name:<8} {first_line(Path(__file__).parent / f'{name}.py')}" for name in names)


def get_target(name: str) -> ModuleType:
    """Return the module of a target by name; raise UserError where there is none.

    Its `USED` are the options that have an effect on it, in addition to those that all have; its `render` returns the
    text of a `ClusterJob`.
    """
    if name not in list_targets():
        raise UserError(f"target={name}: is no target; {suggest(name, list_targets())}")
    return importlib.import_module(f"{__name__}.{name}")

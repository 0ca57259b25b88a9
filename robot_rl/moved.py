"""Modules that had another name in earlier releases; their names work until the next release, with a warning."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType

MOVED = {
    "robot_rl.config": "robot_rl.settings",
    "robot_rl.experiment": "robot_rl.runs",
    "robot_rl.experiment.launchers": "robot_rl.cluster.launchers",
    "robot_rl.flow": "robot_rl.cluster.flow",
    "robot_rl_envs.entries": "robot_rl_envs.term_config",
    "robot_rl_envs.fuse": "robot_rl_envs.codegen",
    "robot_rl.cluster.flow.three_computers": "robot_rl.cluster.flow.flows.three_computers",
}
"""What plug-ins, flows and a user's learners import, with all modules below."""


class MovedFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module by its former name."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a module that was moved; None for any other."""
        return importlib.machinery.ModuleSpec(name, self) if new_name(name) else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Import the module by its new name and return it."""
        new = new_name(spec.name)
        warnings.warn(f"{spec.name} is {new} now; the former name goes with the next release", FutureWarning, 2)
        module = importlib.import_module(new)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module, which has run under its new name, that name's spec again."""
        spec = module.__spec__
        module.__spec__ = spec and spec.loader_state


def new_name(name: str) -> str:
    """Return the new name of a module; empty for one that was not moved."""
    found = [old for old in MOVED if name == old or name.startswith(f"{old}.")] if name.startswith("robot_rl") else []
    return MOVED[old := max(found, key=len)] + name.removeprefix(old) if found else ""


def install() -> None:
    """Let the former names be found, before a second copy is found below the new parent."""
    sys.meta_path.insert(0, MovedFinder())

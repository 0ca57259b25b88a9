"""The installed Isaac Lab: its version, its registered environments, and a context that silences it."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from importlib import metadata
from typing import TYPE_CHECKING, Any

from robot_rl.errors import UserError, nearest
from robot_rl.sources.external import import_registering, split_name

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec

PREFIX = "isaac/"
VERSION = "3.0.0"
"""The tested version; others with the same first two numbers are accepted."""
OURS = "robot_rl_tasks.isaac"
"""Registers environments of this project, if it can be imported."""
CFG = "env_cfg_entry_point"
"""Key of the registrations that are Isaac Lab's."""


def require_lab(name: str) -> None:
    """Raise UserError where Isaac Lab, which the task `name` needs, is missing or of an untested version."""
    try:
        version = metadata.version("isaaclab")
    except metadata.PackageNotFoundError:
        raise UserError(
            "task",
            name,
            f"Isaac Lab is not installed for {sys.executable}",
            f"make isaac puts isaaclab=={VERSION} in an environment of its own (Python 3.12), and "
            ".venv-isaac/bin/robot-rl is this program there (docs/isaac.md)",
        ) from None
    if version.split(".")[:2] != VERSION.split(".")[:2]:
        raise UserError("task", name, f"this is isaaclab {version}, {VERSION} is needed", "make isaac installs it")


def find_spec(name: str) -> EnvSpec:
    """Return the registration of an environment of Isaac Lab.

    Args:
        name: "isaac/" and its id, with "<module>:" before the id if a module registers it.
    """
    module, env_id = split_name(name, PREFIX, "Isaac-Cartpole-Direct")
    require_lab(name)
    with hushed():
        known = _register(name, module)
    if env_id not in known:
        raise UserError("task", name, f"Isaac Lab {VERSION} registers no '{env_id}'", _nearest(env_id, known))
    return known[env_id]


def _register(name: str, module: str) -> dict[str, EnvSpec]:
    """Import the modules that register environments, and return those of Isaac Lab's kind by id."""
    import gymnasium

    importlib.import_module("isaaclab_tasks")
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module(OURS)
    import_registering(name, module)
    return {key: spec for key, spec in gymnasium.registry.items() if CFG in (spec.kwargs or {})}


def _nearest(name: str, known: dict[str, Any]) -> str:
    """Return the probable ids: names of version 2 end in -v0, and robots had an additional hyphen."""
    plain = {"".join(key.lower().split("-")): key for key in known}
    wanted = "".join(name.lower().removesuffix("-v0").split("-"))
    if wanted in plain:
        return f"did you mean '{plain[wanted]}'?"
    near = nearest(name.removesuffix("-v0"), known)
    return f"did you mean '{near}'?" if near else "such as Isaac-Cartpole-Direct, Isaac-Velocity-Flat-UnitreeGo2"


@contextlib.contextmanager
def hushed() -> Iterator[None]:
    """Discard the output and the warnings of Isaac Lab and its libraries while they start."""
    level = logging.root.manager.disable
    with contextlib.ExitStack() as after:
        after.enter_context(contextlib.redirect_stdout(io.StringIO()))
        after.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        after.callback(logging.disable, level)
        logging.disable(logging.WARNING)
        # What is written in C++ knows nothing of Python's streams.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        after.callback(os.close, nowhere)
        for number, stream in ((1, sys.__stdout__), (2, sys.__stderr__)):
            if stream is not None:
                stream.flush()
            copy = os.dup(number)
            after.callback(os.close, copy)
            after.callback(os.dup2, copy, number)
            os.dup2(nowhere, number)
        yield

"""The sources of tasks: robot-rl's own, and plug-ins of the group `robot_rl.sources`; each is imported when needed."""

import functools
import importlib

from robot_rl.errors import UserError
from robot_rl.plugins import SOURCES, find_plugins, load, make
from robot_rl.sources.protocol import TaskSource

OWN = (
    "robot_rl.sources.gymnasium.source:GymnasiumSource",
    "robot_rl.sources.isaaclab.source:IsaacLabSource",
    "robot_rl.sources.pettingzoo.mamujoco:MaMuJoCoSource",
    "robot_rl.sources.pettingzoo.source:ZooSource",
    "robot_rl.sources.native:NativeSource",
)
"""By module and name, so that none knows another; the last takes every name that no other one owns."""


@functools.cache
def list_sources() -> tuple[TaskSource, ...]:
    """Return all sources that can be used, the one that owns every name last."""
    sources = [
        getattr(importlib.import_module(module), name)() for module, _, name in (word.partition(":") for word in OWN)
    ]
    plugins: list[TaskSource] = []
    for name in find_plugins(SOURCES):
        try:
            plugins.append(make(load(SOURCES, name, "source"), TaskSource, f"source={name}", "must be a TaskSource"))
        except UserError:  # `robot-rl list plugins` says why.
            continue
    return (*sources[:-1], *plugins, sources[-1])


def source_of(name: object) -> TaskSource:
    """Return the source of the task of that name."""
    return next(source for source in list_sources() if source.owns(str(name)))


def refuse_unsupported(name: str, command: str) -> None:
    """Raise UserError with the reason if the source of a task does not support a command."""
    if why := source_of(name).unsupported.get(command):
        raise UserError(f"{command}: {name} {why}")

"""The common part of Gymnasium's and Isaac Lab's sources: environments named <prefix><id> or <prefix><module>:<id>."""

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from robot_rl.errors import UserError
from robot_rl.settings import LearnerCfg
from robot_rl.sources.protocol import EnvOptions, TaskSource, require_keys

USUAL_CHANNELS = (1, 3, 4)
"""Channels of an image without a stack of frames: gray, colors, colors with depth or opacity."""


class ExternalSource(TaskSource):
    """A source of registered environments with their own physics.

    Attributes:
        prefix: The first part of its tasks' names.
        engine: The name of the physics.
        instead: What to do about another engine.
        keys: The settings of its tasks; "env" has those of the environment.
    """

    prefix: ClassVar[str]
    engine: ClassVar[str]
    instead: ClassVar[str]
    keys: ClassVar[tuple[str, ...]]

    def owns(self, name: str) -> bool:
        """Return whether a name has the prefix."""
        return name.startswith(self.prefix)

    def make_env(self, task: Any, worlds: EnvOptions) -> Any:
        """Make the environment behind the adapter."""
        return task.make_env(worlds.num_envs, seed=worlds.seed + worlds.first, device=worlds.device)

    def check_learner(self, env: Any, task: Any, learner: LearnerCfg) -> None:
        """Refuse rsl_rl's runner with choices as actions."""
        if learner.name == "rsl_rl" and env.action_choices is not None:
            raise UserError(f"learner=rsl_rl: the actions of {task.name} are choices; use learner=ppo")

    def named_code(self, tree: Mapping[str, Any]) -> list[str]:
        """Return the module that registers the environment, if the name has one."""
        module, colon, _ = str(tree.get("task")).removeprefix(self.prefix).rpartition(":")
        return [module] if colon else []

    def check_tree(self, tree: Mapping[str, Any], known: str) -> Mapping[str, Any]:
        """Return the environment's settings in a tree; refuse missing keys, our engines and an invalid group.

        Args:
            tree: The whole tree.
            known: Names of such settings, for the error.
        """
        require_keys(tree, self.keys)
        if str(tree["engine"]) not in ("auto", self.engine):
            raise UserError("engine", tree["engine"], f"{tree['task']} brings its own physics", self.instead)
        if threads := tree["num_threads"]:
            raise UserError("num_threads", threads, f"{tree['task']} has none of ours", "leave num_threads= out")
        if not isinstance(tree["env"], Mapping):
            raise UserError(f"env={tree['env']!r}: is a group; set one of its values, {known}")
        return tree["env"]


def split_name(name: str, prefix: str, example: str) -> tuple[str, str]:
    """Return the module, empty without one, and the id in a task's name."""
    module, colon, env_id = name.removeprefix(prefix).rpartition(":")
    if not env_id or (colon and not all(part.isidentifier() for part in module.split("."))):
        raise UserError("task", name, f"write {prefix}<id> such as {prefix}{example}, or {prefix}<module>:<id>")
    return module, env_id


def import_registering(name: str, module: str) -> None:
    """Import the module in a task's name, if it has one, also from the current directory."""
    if not module:
        return
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing_module(name, error) from error


def missing_module(name: str, error: ModuleNotFoundError) -> UserError:
    """Return the error of a task with a module, or a dependency of it, that cannot be imported."""
    return UserError("task", name, f"cannot import {error.name}", "install it, or start where its file is")


def one_line(error: BaseException) -> str:
    """Return an error's text in one line."""
    return " ".join(str(error).replace("`", "'").split())


def channels_last(shape: Sequence[int]) -> bool:
    """Return whether the last three dimensions of images are rows, columns, channels, not channels, rows, columns.

    A size of USUAL_CHANNELS at one end only is that of the channels. Otherwise it is the smaller one of both ends, and
    the last one if they are equal, as Gymnasium's own images are. Two dimensions are without channels.
    """
    if len(shape) < 3:
        return False
    first, last = shape[-3], shape[-1]
    if (first in USUAL_CHANNELS) != (last in USUAL_CHANNELS):
        return last in USUAL_CHANNELS
    return last <= first


def refuse_twice(name: str, first: Sequence[Any], second: Sequence[Any]) -> None:
    """Raise UserError about two parts of an observation, by the keys that lead to them, with one name."""
    parts = " and ".join("".join(f"[{key!r}]" for key in keys) for keys in (first, second))
    raise UserError(f"observation_space: its parts {parts} have one name, {name}; rename one of them")

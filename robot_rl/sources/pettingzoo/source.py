"""The source of tasks that are parallel environments of PettingZoo, made by a function of a module."""

from __future__ import annotations

import inspect
import os
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from robot_rl.errors import UserError
from robot_rl.settings import LearnerCfg
from robot_rl.settings.tree import coerce
from robot_rl.sources.external import ExternalSource, missing_module, one_line, split_name
from robot_rl.sources.protocol import Defaults, Resolved, require_team_learner

PREFIX = "zoo:"
PRESET = {
    "num_steps": 128,
    "max_iterations": 500,
    "stagger_episodes": False,
    "sharing": "separate",
    "actor.hidden": [64, 64],
    "critic.hidden": [64, 64],
    "ppo.schedule": "linear",
    "ppo.learning_rate": 3e-4,
    "ppo.entropy_coef": 0.0,
}


@dataclass(kw_only=True, slots=True)
class ZooTask:
    """A parallel environment of PettingZoo.

    Attributes:
        name: "zoo:<module>:<function>", of a function that returns a `pettingzoo.ParallelEnv`.
        settings: Its arguments by name.
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict)

    def maker(self) -> Callable[..., Any]:
        """Return the function; raise UserError if there is none."""
        module, name = split_name(self.name, PREFIX, "parallel_env")
        if not module:
            raise UserError("task", self.name, f"write {PREFIX}<module>:<function> that returns a ParallelEnv")
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
        try:
            try:
                function = pkgutil.resolve_name(f"{module}:{name}")
            except ModuleNotFoundError:  # What looks like a module may be an attribute of a package.
                function = pkgutil.resolve_name(f"{module}.{name}")
        except ModuleNotFoundError as error:
            raise missing_module(self.name, error) from error
        except ImportError as error:
            raise UserError("task", self.name, f"{module} cannot be imported: {one_line(error)}") from error
        except AttributeError:
            function = None
        if not callable(function):
            raise UserError("task", self.name, f"{module} has no function {name}")
        return function

    def defaults(self) -> dict[str, Any]:
        """Return the function's arguments that are numbers, words or flags, or None until one is given."""
        parameters = inspect.signature(self.maker()).parameters.values()
        named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        values = {p.name: None if p.default is p.empty else p.default for p in named}
        return {name: value for name, value in values.items() if isinstance(value, bool | int | float | str | None)}

    def make_env(self, num_worlds: int, *, seed: int = 0, device: str = "cpu") -> Any:
        """Make the environment that the learner takes."""
        from robot_rl.sources.pettingzoo.zoo import ZooEnv

        make, usual = self.maker(), self.defaults()
        changed = {key: value for key, value in self.settings.items() if value != usual.get(key)}
        try:
            return ZooEnv(lambda: make(**changed), num_worlds, seed=seed, device=device)
        except UserError as error:
            raise UserError("task", self.name, error) from error
        except Exception as error:  # Whatever somebody's environment raises.
            raise UserError("task", self.name, f"{type(error).__name__}: {one_line(error)}") from error


class ZooSource(ExternalSource):
    """Tasks that are a `ZooTask`."""

    name = engine = "pettingzoo"
    prefix = PREFIX
    keys = ("env",)
    instead = "leave engine= out"
    pattern = "zoo:<module>:<function>"
    summary = "a parallel environment of PettingZoo, of a function that makes one"

    def defaults(self, name: str, device: str) -> Defaults:
        """Return the settings of an environment."""
        task = ZooTask(name=name)
        settings = {"env": task.defaults()}
        return Defaults(presets={"mappo": dict(PRESET)}, settings=settings, num_envs=8, learner="mappo")

    def resolve(self, tree: Mapping[str, Any], device: str) -> Resolved:
        """Return the environment with the tree's arguments."""
        given, task = self.check_tree(tree, "an argument of its function"), ZooTask(name=str(tree["task"]))
        known = task.defaults()
        task.settings = {key: coerce(known[key], given[key], f"env.{key}") for key in known if key in given}
        return Resolved(task=task, engine=self.engine, keys=self.keys)

    def check_learner(self, env: Any, task: ZooTask, learner: LearnerCfg) -> None:
        """Raise UserError for a learner of one agent."""
        require_team_learner(learner, task.name, "agent", env.agents)

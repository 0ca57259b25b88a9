"""The source of MaMuJoCo's tasks (Gymnasium-Robotics): Gymnasium's robots, divided among agents, in our worlds.

Physics, rewards and ends are those of our own `ant_v5` and the like, which are Gymnasium's; the division among agents
is that of Gymnasium-Robotics. So thousands of worlds step at once.
"""

from __future__ import annotations

import contextlib
import functools
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from robot_rl.errors import UserError, as_user_error
from robot_rl.settings import LearnerCfg
from robot_rl.settings.checks import to_float
from robot_rl.sources.native import NativeSource
from robot_rl.sources.protocol import NEEDS_OUR_TASK, Defaults, EnvOptions, Resolved, TaskSource, require_team_learner

PREFIX = "mamujoco:"
SCENARIOS = {
    "Ant": "ant_v5",
    "HalfCheetah": "half_cheetah_v5",
    "Walker2d": "walker2d_v5",
    "Hopper": "hopper_v5",
    "Humanoid": "humanoid_v5",
}
"""Scenarios of MaMuJoCo, and the task of ours that is the same robot."""

PRESET = {"sharing": "separate", "stagger_episodes": False, "symmetry": "none"}
"""What every scenario is trained with, in addition to the settings of its robot."""

STEPS = 10_000_000
"""Steps of the robot in a training."""

PRESETS: dict[str, dict[str, Any]] = {
    "Ant": {
        "num_steps": 64,
        "critic.hidden": [128, 128],
        "ppo.learning_rate": 5e-4,
        "ppo.epochs": 5,
        "ppo.minibatches": 4,
    }
}
"""Further settings of a scenario: of 10 M steps; its robot's own are those of one million."""


@dataclass(kw_only=True, slots=True)
class Parts:
    """A robot divided among agents.

    Attributes:
        name: "mamujoco:<scenario>-<division>".
        task: The task of the robot.
        obsk: Up to how many joints away an agent sees.
    """

    name: str
    task: Any
    obsk: int = 1


class MaMuJoCoSource(TaskSource):
    """Tasks that are a `Parts`."""

    name = "mamujoco"
    pattern = "mamujoco:<scenario>-<division>"
    summary = "Gymnasium's robots divided among agents, such as mamujoco:Ant-4x2"
    settings_help = """\
of a robot that is divided among agents:
  obsk=1                                             up to how many joints away an agent sees
"""
    unsupported: ClassVar[Mapping[str, str]] = dict(NEEDS_OUR_TASK)

    def __init__(self) -> None:
        """Take the robots' own tasks from our source."""
        self._native = NativeSource()

    def owns(self, name: str) -> bool:
        """Return whether a name begins with "mamujoco:"."""
        return name.startswith(PREFIX)

    def defaults(self, name: str, device: str) -> Defaults:
        """Return the settings of the robot's own task, and the number of joints that an agent sees."""
        scenario, _ = split_name(name)
        robot = self._native.defaults(SCENARIOS[scenario], device)
        preset = {**robot.presets["ppo"], **PRESET, **PRESETS.get(scenario, {})}
        preset["max_iterations"] = -(-STEPS // (robot.num_envs * preset["num_steps"]))
        settings = {"obsk": 1, **robot.settings}
        return Defaults(presets={"mappo": preset}, settings=settings, num_envs=robot.num_envs, learner="mappo")

    def resolve(self, tree: Mapping[str, Any], device: str) -> Resolved:
        """Return the robot's task with the tree's values, divided."""
        name = str(tree["task"])
        scenario, _ = split_name(name)
        obsk = to_float(tree.get("obsk"))
        if obsk is None or obsk < 0 or not float(obsk).is_integer():
            raise UserError("obsk", tree.get("obsk"), "must be a whole number of at least 0")
        robot_tree = {key: value for key, value in tree.items() if key != "obsk"}
        robot = self._native.resolve({**robot_tree, "task": SCENARIOS[scenario]}, device)
        parts = Parts(name=name, task=robot.task, obsk=int(obsk))
        factorization(name, parts.obsk)
        return Resolved(task=parts, engine=robot.engine, keys=(*robot.keys, "obsk"), recorded=robot.recorded)

    def make_env(self, task: Parts, worlds: EnvOptions) -> Any:
        """Make worlds of the robot, and divide it."""
        from robot_rl.sources.pettingzoo.parts import PartsEnv

        seen, driven = factorization(task.name, task.obsk)
        env = self._native.make_env(task.task, worlds)
        with as_user_error():
            return PartsEnv(env, seen, driven)

    def check_learner(self, env: Any, task: Parts, learner: LearnerCfg) -> None:
        """Raise UserError for a learner of one agent."""
        require_team_learner(learner, task.name, "agent", env.agents)

    def optional_keys(self, name: str) -> set[str]:
        """Return the terms of the robot's task."""
        return self._native.optional_keys(SCENARIOS[split_name(name)[0]])


def split_name(name: str) -> tuple[str, str]:
    """Return scenario and division in a task's name; raise UserError for an unknown scenario, or another form."""
    match = re.fullmatch(rf"{PREFIX}(\w+)-(\w+)", name)
    if match is None or match[1] not in SCENARIOS:
        known = ", ".join(SCENARIOS)
        raise UserError(
            "task", name, f"write {PREFIX}<scenario>-<division> such as {PREFIX}Ant-4x2", f"there are {known}"
        )
    return match[1], match[2]


@functools.cache
def factorization(name: str, obsk: int) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Return for each agent the components of the robot's observation that it sees, and the actions that it gives.

    Raises:
        UserError: Gymnasium-Robotics is not installed, or is without such a division.
    """
    scenario, division = split_name(name)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            from gymnasium_robotics import mamujoco_v1
    except ImportError as error:
        raise UserError("task", name, error, "pip install 'robot-rl[teams]'") from None
    try:
        env = mamujoco_v1.parallel_env(scenario, division, agent_obsk=obsk)
    except Exception as error:  # It has its own classes, and plain exceptions.
        line = " ".join(str(error).split())
        raise UserError("task", name, f"MaMuJoCo has no such division of {scenario} ({line})") from None
    with contextlib.closing(env):
        known: Any = env
        seen = {agent: [int(k) for k in known.observation_factorization[agent]] for agent in env.possible_agents}
        parts = zip(env.possible_agents, known.agent_action_partitions, strict=True)
        driven = {agent: [int(node.act_ids) for node in part] for agent, part in parts}
    return seen, driven

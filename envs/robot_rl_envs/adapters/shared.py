"""What the adapters share: spaces of groups and actions, and copies of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Box

from robot_rl_envs.env import Env
from robot_rl_envs.make import make_env

if TYPE_CHECKING:
    from robot_rl_envs.task import Task


def make_env_of_one(task: Task, **options: Any) -> Env:
    """Build the worlds of a task of one robot; ``options`` are those of `robot_rl_envs.make.make_env`.

    Raises:
        ValueError: the task has several robots.
    """
    if task.robots:
        count, names = len(task.robots), ", ".join(task.robots)
        raise ValueError(f"task={task.name!r}: has {count} robots, {names}, and this interface knows one")
    env = make_env(task, **options)
    assert isinstance(env, Env)
    return env


def group_box(groups: Any, name: str) -> Box:
    """Return the space of one world's observations of a group; raise a ValueError if the group does not exist."""
    there = [str(group) for group in groups.keys()]  # noqa: SIM118, a TensorDict
    if name not in there:
        raise ValueError(f"group={name!r}: must be one of {', '.join(there)}")
    return Box(-np.inf, np.inf, tuple(groups[name].shape[1:]), np.float32)


def action_box(env: Env) -> Box:
    """Return the space of one world's actions, bounded if the task clips them."""
    clip = env.cfg.actions.clip
    return Box(-clip, clip, (env.num_actions,), np.float32)


class PolicyGroups:
    """The groups that a policy and a central value function see.

    Args:
        observation: the policy's group.
        state: the value function's; None, or one that the task does not have: none.

    Attributes:
        observations: space of the policy's group.
        states: space of the value function's, or None.
    """

    def __init__(self, env: Env, observation: str, state: str | None):
        groups = env.get_observations()
        self._env, self._observation = env, observation
        self._state = state if state is not None and state in groups else None
        self.observations = group_box(groups, observation)
        self.states = group_box(groups, self._state) if self._state else None

    def observe(self, groups: Any = None) -> Any:
        """Return the policy's group of ``groups`` (None: the current ones), copied: the environment writes over it."""
        return (self._env.get_observations() if groups is None else groups)[self._observation].clone()

    def state(self) -> Any:
        """Return the value function's current group, copied, or None."""
        return self._env.get_observations()[self._state].clone() if self._state else None

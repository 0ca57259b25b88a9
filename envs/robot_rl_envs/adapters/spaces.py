"""What the adapters for other runners share: spaces of groups and actions, and copies of groups."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box

from robot_rl_envs.env import Env


def group_box(groups: Any, name: str) -> Box:
    """Return the space of one world's observations of a group.

    Raises:
        ValueError: no such group; one line.
    """
    there = [str(group) for group in groups.keys()]  # noqa: SIM118, a TensorDict
    if name not in there:
        raise ValueError(f"group={name!r}: must be one of {', '.join(there)}")
    return Box(-np.inf, np.inf, tuple(groups[name].shape[1:]), np.float32)


def action_box(env: Env) -> Box:
    """Return the space of one world's actions, bounded where the task clips them."""
    clip = env.cfg.actions.clip
    return Box(-clip, clip, (env.num_actions,), np.float32)


class TwoGroups:
    """The groups that a policy and a central value function see.

    Args:
        env: the worlds.
        observation: the policy's group.
        state: the value function's; None, or one that the task does not have: none.

    Attributes:
        observations: space of the policy's group.
        states: space of the value function's, or None.

    Raises:
        ValueError: no such observation group.
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

"""Gymnasium spaces of an environment's groups and actions, for the runners that ask for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from gymnasium.spaces import Box

if TYPE_CHECKING:
    from tensordict import TensorDict

    from robot_rl_envs.env import Env


def group_box(groups: TensorDict, name: str) -> Box:
    """The space of one world's observations of a group.

    Raises:
        ValueError: no such group; one line.
    """
    there = [str(group) for group in groups.keys()]  # noqa: SIM118, a TensorDict
    if name not in there:
        raise ValueError(f"group={name!r}: must be one of {', '.join(there)}")
    return Box(-np.inf, np.inf, tuple(groups[name].shape[1:]), np.float32)


def action_box(env: Env) -> Box:
    """The space of one world's actions, bounded where the task clips them."""
    clip = env.cfg.actions.clip
    return Box(-clip, clip, (env.num_actions,), np.float32)

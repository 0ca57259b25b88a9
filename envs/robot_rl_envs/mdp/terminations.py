"""Termination terms: 1 where the episode ends. The time limit is the task's ``episode_length_s``."""

from typing import Any

import warp as wp

from robot_rl_envs.terms import termination


@termination
@wp.func
def tilted(s: Any, i: int, limit_rad: float) -> int:
    """The base leans more than limit_rad [rad] from upright."""
    if -s.projected_gravity_b[i][2] < wp.cos(limit_rad):
        return 1
    return 0


@termination
@wp.func
def base_below(s: Any, i: int, height: float) -> int:
    """The base's origin is below height [m]."""
    if s.base_pos_w[i][2] < height:
        return 1
    return 0


@termination
@wp.func
def joint_beyond(s: Any, i: int, joint: float, limit: float) -> int:
    """One joint's |position| exceeds limit [rad or m]."""
    if wp.abs(s.joint_pos[i, int(joint)]) > limit:
        return 1
    return 0

"""Termination terms: 1 if the episode ends. The time limit is the task's ``episode_length_s``."""

import warp as wp

from robot_rl_envs.terms import State, termination
from robot_rl_envs.terrain.lookup import terrain_height


@termination
def tilted(s: State, i: int, limit_rad: float) -> int:
    """The base leans more than limit_rad [rad] from upright."""
    if -s.projected_gravity_b[i][2] < wp.cos(limit_rad):
        return 1
    return 0


@termination
def base_below(s: State, i: int, height: float) -> int:
    """The base's origin is below height [m]."""
    if s.base_pos_w[i][2] < height:
        return 1
    return 0


@termination
def joint_beyond(s: State, i: int, joint: float, limit: float) -> int:
    """One joint's |position| exceeds limit [rad or m]."""
    if wp.abs(s.joint_pos[i, int(joint)]) > limit:
        return 1
    return 0


@termination
def clearance_below(s: State, i: int, height: float) -> int:
    """The base's origin is less than height [m] above the ground below it."""
    pos = s.base_pos_w[i]
    if pos[2] - terrain_height(s, pos[0], pos[1]) < height:
        return 1
    return 0


@termination
def far_from_origin(s: State, i: int, limit: float) -> int:
    """The base is more than limit [m] from the episode's start in the plane; a time-out keeps worlds apart."""
    x = s.base_pos_w[i][0] - s.env_origin_w[i][0]
    y = s.base_pos_w[i][1] - s.env_origin_w[i][1]
    if x * x + y * y > limit * limit:
        return 1
    return 0

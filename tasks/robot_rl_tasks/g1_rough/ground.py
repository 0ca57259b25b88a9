"""Reward term of a humanoid on ground that is not level."""

from robot_rl_envs.terms import State, reward
from robot_rl_envs.terrain.lookup import terrain_height


@reward
def clearance(s: State, i: int, target: float) -> float:
    """Squared deviation of the base's height above the ground below it from target [m]."""
    at = s.base_pos_w[i]
    error = at[2] - terrain_height(s, at[0], at[1]) - target
    return error * error

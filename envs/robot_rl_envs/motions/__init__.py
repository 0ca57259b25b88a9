"""Reference motions: trajectories of a robot's joints and base, their files, and the arrays that terms read."""

from robot_rl_envs.motions.files import find_motion, read_motion
from robot_rl_envs.motions.motion import Motion

__all__ = ["Motion", "find_motion", "read_motion"]

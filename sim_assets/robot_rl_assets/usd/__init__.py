"""Robots as USD, for Isaac Lab, Newton and Isaac Sim, written from the same MJCF file that MuJoCo simulates."""

from robot_rl_assets.usd.prims import is_ours
from robot_rl_assets.usd.scene import write_ground, write_usd

__all__ = ["is_ours", "write_ground", "write_usd"]

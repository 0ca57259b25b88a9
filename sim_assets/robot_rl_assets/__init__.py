"""Robots: one folder each, with typed facts (`robot.py`) next to the model (`model.xml`)."""

from robot_rl_assets.registry import get_robot, list_robots
from robot_rl_assets.robot import Joint, Robot

__all__ = ["Joint", "Robot", "get_robot", "list_robots"]

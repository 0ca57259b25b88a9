"""Sensors: their poses and ranges, the faults of a value, and the kernels that measure."""

from robot_rl_envs.sensing.camera import Camera, ImageGroup
from robot_rl_envs.sensing.sensors import FootForce, HeightScan, Imu, Sensors

__all__ = ["Camera", "FootForce", "HeightScan", "ImageGroup", "Imu", "Sensors"]

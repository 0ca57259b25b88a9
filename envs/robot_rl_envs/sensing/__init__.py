"""Sensors: where they sit and what they cover, what becomes of a value on its way, and the kernels that measure."""

from robot_rl_envs.sensing.camera import Camera, ImageGroup
from robot_rl_envs.sensing.sensors import FootForce, HeightScan, Imu, Sensors

__all__ = ["Camera", "FootForce", "HeightScan", "ImageGroup", "Imu", "Sensors"]

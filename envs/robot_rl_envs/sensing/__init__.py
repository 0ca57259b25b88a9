"""Sensors: one file each, their common parts, and the faults of a value."""

from robot_rl_envs.sensing.camera import Camera, ImageGroup
from robot_rl_envs.sensing.foot_force import FootForce
from robot_rl_envs.sensing.height_scan import HeightScan
from robot_rl_envs.sensing.imu import Imu
from robot_rl_envs.sensing.sensor import Sensor, SensorContext
from robot_rl_envs.sensing.sensors import Sensors

__all__ = ["Camera", "FootForce", "HeightScan", "ImageGroup", "Imu", "Sensor", "SensorContext", "Sensors"]

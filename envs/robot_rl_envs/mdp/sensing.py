"""Observation terms of a robot's sensors: those of each sensor's own file, and those of the ground below the robot.

A sensor's pose and range are in ``Task.sensors``; its noise, bias, delay and dropout are options of the term. In a
group with ``noise=False`` each term gives the clean value.
"""

from robot_rl_envs.sensing.encoders import encoder_pos, encoder_vel
from robot_rl_envs.sensing.foot_force import foot_force, foot_force_history, foot_force_peak
from robot_rl_envs.sensing.height_scan import height_scan
from robot_rl_envs.sensing.imu import imu_acc, imu_gravity, imu_gyro, imu_mount
from robot_rl_envs.terms import State, observation
from robot_rl_envs.terrain.lookup import terrain_height

__all__ = [
    "base_clearance",
    "encoder_pos",
    "encoder_vel",
    "foot_contact_time",
    "foot_force",
    "foot_force_history",
    "foot_force_peak",
    "foot_ground",
    "height_scan",
    "imu_acc",
    "imu_gravity",
    "imu_gyro",
    "imu_mount",
]


@observation(size="feet", unit="s", mirror="feet")
def foot_contact_time(s: State, i: int, j: int) -> float:
    """How long each foot has been on the ground [s]; 0 in the air."""
    return s.foot_contact_time_s[i, j]


@observation(size="feet", unit="m", frame="world", mirror="feet")
def foot_ground(s: State, i: int, j: int) -> float:
    """Height of the ground below each foot [m]."""
    return terrain_height(s, s.foot_pos_w[i, j][0], s.foot_pos_w[i, j][1])


@observation(unit="m", frame="world", mirror=(1.0,))
def base_clearance(s: State, i: int, j: int) -> float:
    """Height of the base above the ground below it [m]."""
    return s.base_pos_w[i][2] - terrain_height(s, s.base_pos_w[i][0], s.base_pos_w[i][1])

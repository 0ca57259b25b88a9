"""Metric terms: averaged over worlds and steps for the log, measured per episode in an evaluation."""

import warp as wp

from robot_rl_envs.terms import State, metric


@metric(unit="m/s", better="smaller", reads_command=2)
def lin_vel_error(s: State, i: int) -> float:
    """|v*_xy - v_xy| in the base frame."""
    ex = s.command[i][0] - s.base_lin_vel_b[i][0]
    ey = s.command[i][1] - s.base_lin_vel_b[i][1]
    return wp.sqrt(ex * ex + ey * ey)


@metric(unit="m/s", better="smaller", reads_command=2)
def lin_vel_axis_error(s: State, i: int, axis: float) -> float:
    """|v*_axis - v_axis| in the base frame along one ``axis``: 0 forward, 1 sideways."""
    return wp.abs(s.command[i][int(axis)] - s.base_lin_vel_b[i][int(axis)])


@metric(unit="rad/s", better="smaller", reads_command=3)
def yaw_vel_error(s: State, i: int) -> float:
    """|w*_z - w_z| in the base frame."""
    return wp.abs(s.command[i][2] - s.base_ang_vel_b[i][2])


@metric(better="larger")
def standing(s: State, i: int, height: float, tilt_rad: float) -> float:
    """1 where the base is at least ``height`` [m] high and leans less than ``tilt_rad`` [rad]."""
    if s.base_pos_w[i][2] >= height and -s.projected_gravity_b[i][2] > wp.cos(tilt_rad):
        return 1.0
    return 0.0


@metric(better="larger")
def joint_cos(s: State, i: int, joint: float) -> float:
    """Cos of one joint's angle: 1 upright."""
    return wp.cos(s.joint_pos[i, int(joint)])


@metric
def terrain_level(s: State, i: int) -> float:
    """Row of the terrain that the world is on: its difficulty, 0 the easiest."""
    return float(s.terrain_level[i])


@metric
def command_range(s: State, i: int) -> float:
    """Growth of the world's command range: 0 at first, 1 the full range."""
    return s.command_range[i]

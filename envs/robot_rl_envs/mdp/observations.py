"""Observation terms. Those with a ``signal`` can be measured by a robot; the others are for the critic."""

import warp as wp

from robot_rl_envs.terms import State, observation

TWO_PI = wp.constant(6.283185307179586)
MOVING_COMMAND = 0.1
"""A velocity command of a smaller norm means: stand still."""


@observation(size=3, unit="rad/s", frame="base", signal="imu_gyro", mirror=(-1.0, 1.0, -1.0))
def base_ang_vel(s: State, i: int, j: int) -> float:
    """Angular velocity in the base frame [rad/s]."""
    return s.base_ang_vel_b[i][j]


@observation(size=3, frame="base", signal="imu_quat_wxyz", transform="projected_gravity", mirror=(1.0, -1.0, 1.0))
def projected_gravity(s: State, i: int, j: int) -> float:
    """Unit vector of gravity in the base frame."""
    return s.projected_gravity_b[i][j]


@observation(size="joints", unit="rad", frame="joint", signal="joint_pos", transform="minus_default", mirror="joints")
def joint_pos_rel(s: State, i: int, j: int) -> float:
    """Joint positions relative to the default pose [rad or m]."""
    return s.joint_pos[i, j] - s.default_joint_pos[j]


@observation(
    size="limited_joints",
    unit="rad",
    frame="joint",
    signal="joint_pos",
    transform="minus_default",
    mirror="limited_joints",
)
def limited_joint_pos_rel(s: State, i: int, j: int) -> float:
    """Positions of the joints with limits relative to the default pose [rad or m]: a wheel's angle says nothing."""
    left = int(j)
    value = float(0.0)
    for k in range(s.joint_pos.shape[1]):
        if wp.isfinite(s.joint_lower[k]) and wp.isfinite(s.joint_upper[k]):
            if left == 0:
                value = s.joint_pos[i, k] - s.default_joint_pos[k]
            left -= 1
    return value


@observation(size="joints", unit="rad/s", frame="joint", signal="joint_vel", mirror="joints")
def joint_vel(s: State, i: int, j: int) -> float:
    """Joint velocities [rad/s or m/s]."""
    return s.joint_vel[i, j]


@observation(size="actions", signal="last_action", mirror="actions")
def last_action(s: State, i: int, j: int) -> float:
    """The policy's previous raw output."""
    return s.action[i, j]


@observation(size="command", unit="command", frame="command", signal="command", mirror="command")
def command(s: State, i: int, j: int) -> float:
    """Every component of the command, of any width."""
    return s.command[i][j]


@observation(size=3, unit="m/s, m/s, rad/s", frame="base", signal="command", mirror=(1.0, -1.0, -1.0), reads_command=3)
def velocity_command(s: State, i: int, j: int) -> float:
    """Commanded vx, vy [m/s] and yaw rate [rad/s]."""
    return s.command[i][j]


@wp.func
def clock_phase(s: State, i: int, frequency_hz: float) -> float:
    """Phase in [0, 1) of a clock that starts at 0 with the episode; float64 inside, so that it never drifts."""
    turns = wp.float64(s.step_count[i]) * s.step_dt64 * wp.float64(frequency_hz)
    return float(turns - wp.floor(turns))


@wp.func
def is_moving(s: State, i: int) -> int:
    """1 unless the velocity command is to stand still."""
    if wp.length(s.command[i]) < MOVING_COMMAND:
        return 0
    return 1


@observation(size=2, signal="clock", transform="sin_cos_phase", mirror=(-1.0, -1.0))
def gait_clock(s: State, i: int, j: int, frequency_hz: float) -> float:
    """Sine and cosine of the gait clock; both 0 while the command is to stand. Mirrored: half a period later."""
    if is_moving(s, i) == 0:
        return 0.0
    angle = TWO_PI * clock_phase(s, i, frequency_hz)
    if j == 0:
        return wp.sin(angle)
    return wp.cos(angle)


@observation(size=3, unit="m/s", frame="base", mirror=(1.0, -1.0, 1.0))
def base_lin_vel(s: State, i: int, j: int) -> float:
    """True linear velocity in the base frame [m/s]: privileged."""
    return s.base_lin_vel_b[i][j]


@observation(unit="m", frame="world", mirror=(1.0,))
def base_height(s: State, i: int, j: int) -> float:
    """Height of the base [m]: privileged."""
    return s.base_pos_w[i][2]


@observation(size="feet", signal="foot_contact", mirror="feet")
def foot_contact(s: State, i: int, j: int) -> float:
    """1 for each foot that touches the ground, 0 for one that does not."""
    return s.foot_contact[i, j]


@observation(size="feet", unit="m", frame="world", mirror="feet")
def foot_height(s: State, i: int, j: int) -> float:
    """Clearance of each foot [m]: privileged."""
    return s.foot_height_w[i, j]


@observation(size="feet", unit="s", mirror="feet")
def foot_air_time(s: State, i: int, j: int) -> float:
    """Time each foot has been in the air [s]: privileged."""
    return s.foot_air_time_s[i, j] * (1.0 - s.foot_contact[i, j])


@observation(size="joints", unit="N m", frame="joint", mirror="joints")
def joint_torque(s: State, i: int, j: int) -> float:
    """Actuator torques of the last substep [N m]: privileged."""
    return s.joint_torque[i, j]


@observation(size=2, frame="joint", signal="joint_pos", transform="sin_cos", mirror=(-1.0, 1.0))
def joint_angle_sin_cos(s: State, i: int, j: int, joint: float) -> float:
    """Sine and cosine of the angle of one joint, given by its index: continuous over full turns."""
    angle = s.joint_pos[i, int(joint)]
    if j == 0:
        return wp.sin(angle)
    return wp.cos(angle)


@observation(unit="m", frame="joint", signal="joint_pos", transform="select", mirror=(-1.0,))
def one_joint_pos(s: State, i: int, j: int, joint: float) -> float:
    """Position of one joint, given by its index [rad or m]."""
    return s.joint_pos[i, int(joint)]

"""Reward terms: each a formula about one world, before its weight and the step time."""

import warp as wp

from robot_rl_envs.mdp.observations import clock_phase, is_moving
from robot_rl_envs.terms import State, reward


@reward(reads_command=2)
def track_lin_vel(s: State, i: int, std: float) -> float:
    """exp(-|v*_xy - v_xy|^2 / std^2): planar velocity tracking in the base frame, in [0, 1]. std [m/s]."""
    ex = s.command[i][0] - s.base_lin_vel_b[i][0]
    ey = s.command[i][1] - s.base_lin_vel_b[i][1]
    return wp.exp(-(ex * ex + ey * ey) / (std * std))


@reward(reads_command=3)
def track_yaw_rate(s: State, i: int, std: float) -> float:
    """exp(-(w*_z - w_z)^2 / std^2): yaw rate tracking in the base frame, in [0, 1]. std [rad/s]."""
    e = s.command[i][2] - s.base_ang_vel_b[i][2]
    return wp.exp(-(e * e) / (std * std))


@reward
def alive(s: State, i: int) -> float:
    """1 in every step."""
    return 1.0


@reward
def lin_vel_z(s: State, i: int) -> float:
    """Squared vertical velocity of the base [m^2/s^2]."""
    v = s.base_lin_vel_b[i][2]
    return v * v


@reward
def ang_vel_xy(s: State, i: int) -> float:
    """Squared roll and pitch rate [rad^2/s^2]."""
    w = s.base_ang_vel_b[i]
    return w[0] * w[0] + w[1] * w[1]


@reward
def flat_orientation(s: State, i: int) -> float:
    """sin^2 of the base's tilt: squared horizontal part of projected gravity."""
    g = s.projected_gravity_b[i]
    return g[0] * g[0] + g[1] * g[1]


@reward
def upright(s: State, i: int) -> float:
    """(1 + cos tilt) / 2 of the base: 1 upright, 0 upside down."""
    return 0.5 * (1.0 - s.projected_gravity_b[i][2])


@reward
def rise(s: State, i: int, height: float) -> float:
    """Height of the base as a share of ``height`` [m], in [0, 1], times ((1 + cos tilt) / 2)^2."""
    up = 0.5 * (1.0 - s.projected_gravity_b[i][2])
    return up * up * wp.clamp(s.base_pos_w[i][2] / height, 0.0, 1.0)


@wp.func
def pose_error_sq(s: State, i: int) -> float:
    """Sum of squared deviations of all joints from the default pose [rad^2]."""
    total = float(0.0)
    for j in range(s.joint_pos.shape[1]):
        d = s.joint_pos[i, j] - s.default_joint_pos[j]
        total = total + d * d
    return total


@reward
def stance(s: State, i: int, std: float) -> float:
    """exp(-|q - q_default|^2 / std^2) of all joints [rad], times max(cos tilt, 0)^2, so that it counts upright."""
    up = wp.max(-s.projected_gravity_b[i][2], 0.0)
    return up * up * wp.exp(-pose_error_sq(s, i) / (std * std))


@reward
def base_height(s: State, i: int, target: float) -> float:
    """Squared deviation of the base's height from target [m]."""
    e = s.base_pos_w[i][2] - target
    return e * e


@reward
def joint_torque(s: State, i: int) -> float:
    """Sum of squared joint torques [N^2 m^2]."""
    total = float(0.0)
    for j in range(s.joint_torque.shape[1]):
        total = total + s.joint_torque[i, j] * s.joint_torque[i, j]
    return total


@reward
def mechanical_power(s: State, i: int) -> float:
    """Sum of max(torque * velocity, 0) over the joints [W]."""
    total = float(0.0)
    for j in range(s.joint_torque.shape[1]):
        total = total + wp.max(s.joint_torque[i, j] * s.joint_vel[i, j], 0.0)
    return total


@reward
def joint_acc(s: State, i: int) -> float:
    """Sum of squared joint accelerations over the control step [rad^2/s^4]."""
    total = float(0.0)
    for j in range(s.joint_vel.shape[1]):
        a = (s.joint_vel[i, j] - s.last_joint_vel[i, j]) / s.step_dt
        total = total + a * a
    return total


@reward
def action_rate(s: State, i: int) -> float:
    """Sum of squared changes of the action from one step to the next."""
    total = float(0.0)
    for j in range(s.action.shape[1]):
        d = s.action[i, j] - s.prev_action[i, j]
        total = total + d * d
    return total


@reward
def action_jerk(s: State, i: int) -> float:
    """Sum of squared second differences of the action."""
    total = float(0.0)
    for j in range(s.action.shape[1]):
        d = s.action[i, j] - 2.0 * s.prev_action[i, j] + s.prev_prev_action[i, j]
        total = total + d * d
    return total


@reward
def joint_limits(s: State, i: int, soft: float) -> float:
    """Sum of how far joints are beyond ``soft`` (0 to 1) of their range about its middle [rad]."""
    total = float(0.0)
    for j in range(s.joint_pos.shape[1]):
        middle = 0.5 * (s.joint_lower[j] + s.joint_upper[j])
        half = 0.5 * (s.joint_upper[j] - s.joint_lower[j]) * soft
        total = total + wp.max(wp.abs(s.joint_pos[i, j] - middle) - half, 0.0)
    return total


@reward
def pose(s: State, i: int, moving_scale: float) -> float:
    """Sum of squared deviations from the default pose, times ``moving_scale`` unless standing [rad^2]."""
    total = pose_error_sq(s, i)
    if is_moving(s, i) == 1:
        total = total * moving_scale
    return total


@reward
def hip_pose(s: State, i: int) -> float:
    """Sum of squared deviations of every third joint (the hips of a quadruped) from the default pose [rad^2]."""
    total = float(0.0)
    for k in range(s.joint_pos.shape[1] / 3):
        d = s.joint_pos[i, 3 * k] - s.default_joint_pos[3 * k]
        total = total + d * d
    return total


@reward
def foot_slip(s: State, i: int) -> float:
    """Sum over feet in contact of squared horizontal speed [m^2/s^2]."""
    total = float(0.0)
    for f in range(s.foot_contact.shape[1]):
        v = s.foot_vel_w[i, f]
        total = total + s.foot_contact[i, f] * (v[0] * v[0] + v[1] * v[1])
    return total


@wp.func
def trot_swing(s: State, i: int, foot: int, frequency_hz: float) -> float:
    """Swing progress in [0, 1) of a foot by the clock of an alternating gait, or -1 in stance.

    Two groups of feet swing in turn for half a period each: along each side feet alternate from front to back, and the
    two sides alternate. This is a trot of four feet, a tripod gait of six, and a walk of two.
    """
    phase = clock_phase(s, i, frequency_hz) + s.foot_phase[foot]
    phase = phase - wp.floor(phase)
    if phase < 0.5:
        return 2.0 * phase
    return -1.0


@reward
def trot_contact(s: State, i: int, frequency_hz: float) -> float:
    """Share of feet that are down in stance and up in swing, by the clock of `trot_swing`; standing: all down."""
    total = float(0.0)
    moving = is_moving(s, i)
    for f in range(s.foot_contact.shape[1]):
        want = float(1.0)
        if moving == 1 and trot_swing(s, i, f, frequency_hz) >= 0.0:
            want = 0.0
        total = total + 1.0 - wp.abs(want - s.foot_contact[i, f])
    return total / float(s.foot_contact.shape[1])


@reward
def trot_height(s: State, i: int, frequency_hz: float, height: float) -> float:
    """Mean over feet of how well each follows the clock of `trot_swing`, in [0, 1].

    In swing, progress sigma in (0, 1): min(z / z*, 1) - 4 max(z / height - 1.5, 0) with z* = height * sin(pi * sigma),
    the foot's clearance z [m] above zero; in stance and while standing: 1. height [m].
    """
    total = float(0.0)
    moving = is_moving(s, i)
    for f in range(s.foot_height_w.shape[1]):
        value = float(1.0)
        if moving == 1:
            swing = trot_swing(s, i, f, frequency_hz)
            if swing >= 0.0:
                target = wp.max(height * wp.sin(wp.pi * swing), 0.2 * height)
                z = wp.max(s.foot_height_w[i, f], 0.0)
                value = wp.min(z / target, 1.0) - 4.0 * wp.max(z / height - 1.5, 0.0)
        total = total + wp.clamp(value, 0.0, 1.0)
    return total / float(s.foot_height_w.shape[1])


@reward
def foot_air_time(s: State, i: int, target_s: float) -> float:
    """Sum at touchdown of (air time - target) while moving [s]."""
    total = float(0.0)
    if is_moving(s, i) == 1:
        for f in range(s.foot_touchdown.shape[1]):
            total = total + s.foot_touchdown[i, f] * (s.foot_air_time_s[i, f] - target_s)
    return total / s.step_dt


@reward
def stand_still(s: State, i: int) -> float:
    """Sum of squared joint velocities while the command is to stand [rad^2/s^2]."""
    total = float(0.0)
    if is_moving(s, i) == 0:
        for j in range(s.joint_vel.shape[1]):
            total = total + s.joint_vel[i, j] * s.joint_vel[i, j]
    return total


@reward
def terminated(s: State, i: int) -> float:
    """1 / step_dt in the step in which the base has fallen, so that the weight is the penalty of one fall."""
    if s.projected_gravity_b[i][2] > -0.5:
        return 1.0 / s.step_dt
    return 0.0


@reward
def upright_pole(s: State, i: int, joint: float) -> float:
    """(1 + cos angle) / 2 of one joint: 1 upright, 0 hanging."""
    return 0.5 * (1.0 + wp.cos(s.joint_pos[i, int(joint)]))


@reward
def centred(s: State, i: int, joint: float) -> float:
    """Squared position of one joint [m^2 or rad^2]."""
    x = s.joint_pos[i, int(joint)]
    return x * x


@reward
def joint_vel_sq(s: State, i: int, joint: float) -> float:
    """Squared velocity of one joint [m^2/s^2 or rad^2/s^2]."""
    v = s.joint_vel[i, int(joint)]
    return v * v


@reward
def joint_vel_size(s: State, i: int) -> float:
    """Sum of squared joint velocities [m^2/s^2 or rad^2/s^2]."""
    total = float(0.0)
    for j in range(s.joint_vel.shape[1]):
        total = total + s.joint_vel[i, j] * s.joint_vel[i, j]
    return total


@reward
def joint_vel_excess(s: State, i: int, share: float) -> float:
    """Sum over joints of the speed beyond ``share`` of the velocity limit, in velocity limits."""
    total = float(0.0)
    for j in range(s.joint_vel.shape[1]):
        total = total + wp.max(wp.abs(s.joint_vel[i, j]) / s.velocity_limit[j] - share, 0.0)
    return total


@reward
def action_size(s: State, i: int) -> float:
    """Sum of squared actions."""
    total = float(0.0)
    for j in range(s.action.shape[1]):
        total = total + s.action[i, j] * s.action[i, j]
    return total

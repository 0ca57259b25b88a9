"""Reward terms of a humanoid that walks by a clock, foot after foot."""

import warp as wp
from robot_rl_envs.mdp.observations import clock_phase, is_moving
from robot_rl_envs.quat import quat_rotate_inverse
from robot_rl_envs.terms import State, reward

LEG_JOINTS = wp.constant(6)


@wp.func
def walk_swing(s: State, i: int, foot: int, frequency_hz: float, swing: float) -> float:
    """Swing progress in [0, 1) of a foot by the gait clock, or -1 in stance; foot 1 is half a period after foot 0."""
    phase = clock_phase(s, i, frequency_hz) + 0.5 * float(foot)
    phase = phase - wp.floor(phase)
    if phase < swing:
        return phase / swing
    return -1.0


@reward
def walk_contact(s: State, i: int, frequency_hz: float, swing: float) -> float:
    """Mean over the feet of 1 if contact is as the gait clock says, down in stance and up in swing, else -1.

    Whoever does not step at all gets next to nothing of it, and has as little to lose by a first step. At command 0
    all feet are to be down. ``swing`` is the share of a period that a foot is in the air.
    """
    total = float(0.0)
    moving = is_moving(s, i)
    for f in range(s.foot_contact.shape[1]):
        want = float(1.0)
        if moving == 1 and walk_swing(s, i, f, frequency_hz, swing) >= 0.0:
            want = 0.0
        missed = float(want - s.foot_contact[i, f])
        total = total + 1.0 - 2.0 * missed * missed
    return total / float(s.foot_contact.shape[1])


@wp.func
def swing_heights(s: State, i: int, frequency_hz: float, swing: float, height: float) -> wp.vec2:
    """Return the sum over the feet in swing of how well each follows its arc, see `walk_height`, and their number."""
    total = float(0.0)
    count = float(0.0)
    for f in range(s.foot_height_w.shape[1]):
        sigma = walk_swing(s, i, f, frequency_hz, swing)
        if sigma >= 0.0:
            target = height * wp.max(wp.sin(wp.pi * sigma), 0.2)
            z = wp.max(s.foot_height_w[i, f], 0.0)
            value = wp.min(z / target, 1.0) - 4.0 * wp.max(z / height - 1.5, 0.0)
            total = total + wp.max(value, 0.0)
            count = count + 1.0
    return wp.vec2(total, count)


@reward
def walk_height(s: State, i: int, frequency_hz: float, swing: float, height: float) -> float:
    """Mean over the feet in swing of how well each follows its arc, in [0, 1]; 1 if none is in swing.

    With the progress sigma in [0, 1) of the swing: min(z / z*, 1) - 4 max(z / height - 1.5, 0), at least 0, of the
    foot's clearance z [m] above zero and z* = height max(sin(pi sigma), 0.2). A foot that leaves the ground by a little
    earns a little, so that steps are found from standing. height [m].
    """
    if is_moving(s, i) == 0:
        return 1.0
    sums = swing_heights(s, i, frequency_hz, swing, height)
    if sums[1] == 0.0:
        return 1.0
    return sums[0] / sums[1]


@reward
def walk_joints(s: State, i: int, frequency_hz: float, swing: float, lift: float, std: float) -> float:
    """Mean over the legs in swing of exp(-e / std^2), e the squared error of hip pitch, knee and ankle pitch.

    With the progress sigma in [0, 1) of the swing, the joints are to leave the default pose by -l, 2 l and -l with
    l = lift sin(pi sigma) [rad], which lifts the foot straight up, its sole level. A reference of the joints makes a
    humanoid find its first step (humanoid-gym, arXiv 2404.05695, has one of all of its legs' joints). 0 if no foot
    is in swing; 1 at command 0. lift, std [rad].
    """
    total = float(0.0)
    count = float(0.0)
    if is_moving(s, i) == 0:
        return 1.0
    for k in range(2):
        sigma = walk_swing(s, i, k, frequency_hz, swing)
        if sigma >= 0.0:
            bend = lift * wp.sin(wp.pi * sigma)
            n = k * LEG_JOINTS
            hip = s.joint_pos[i, n] - s.default_joint_pos[n] + bend
            knee = s.joint_pos[i, n + 3] - s.default_joint_pos[n + 3] - 2.0 * bend
            ankle = s.joint_pos[i, n + 4] - s.default_joint_pos[n + 4] + bend
            total = total + wp.exp(-(hip * hip + knee * knee + ankle * ankle) / (std * std))
            count = count + 1.0
    if count == 0.0:
        return 0.0
    return total / count


@reward
def feet_close(s: State, i: int, distance: float) -> float:
    """How much less than ``distance`` the left foot is to the left of the right one, in the base's frame [m]."""
    apart = quat_rotate_inverse(s.base_quat_wxyz[i], s.foot_pos_w[i, 0] - s.foot_pos_w[i, 1])
    return wp.max(distance - apart[1], 0.0)


@reward
def hips_turned(s: State, i: int) -> float:
    """Sum of squared deviations of the hips' roll and yaw, joints 1 and 2 of a leg, from the default pose [rad^2]."""
    total = float(0.0)
    for k in range(2):
        for j in range(2):
            n = k * LEG_JOINTS + j + 1
            d = s.joint_pos[i, n] - s.default_joint_pos[n]
            total = total + d * d
    return total


@reward
def upper_body(s: State, i: int) -> float:
    """Sum of squared deviations of waist and arms, the joints after both legs, from the default pose [rad^2]."""
    total = float(0.0)
    for j in range(2 * LEG_JOINTS, s.joint_pos.shape[1]):
        d = s.joint_pos[i, j] - s.default_joint_pos[j]
        total = total + d * d
    return total

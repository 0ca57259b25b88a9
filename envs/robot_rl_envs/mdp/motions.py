"""Terms that follow a reference motion: starts of episodes, commands, distances to the reference.

A world's reference is frame ``motion_start + step_count`` of its motion, so that all terms of a step read the same one.
Nothing depends on the robot's place in the plane nor on its heading: bodies are compared after the reference was
moved to the robot and turned about the vertical (the twist of the rotation between the two bases), which is also right
for a robot that lies. Rewards are exp(-e^2 / std^2) of an error, as in Peng et al., "DeepMimic", SIGGRAPH 2018, and
with bodies relative to an anchor, as in Liao et al., "BeyondMimic", 2025.
"""

import re
from typing import Any

import warp as wp

from robot_rl_envs.entity import mirrors
from robot_rl_envs.launch import CHUNK_WORLDS
from robot_rl_envs.quat import quat_multiply, quat_rotate, quat_rotate_inverse
from robot_rl_envs.terms import State, command, curriculum, event, metric, observation, reward, termination
from robot_rl_envs.terms.checks import check_above, check_least, check_share

PRIOR_FAILURES, PRIOR_S = wp.constant(0.5), wp.constant(1.0)
"""What is assumed of a bin before anything is known of it: half a failure in a second."""
ROW = wp.constant(CHUNK_WORLDS)
"""Worlds that count into the same row: those that one thread steps on a CPU."""
LOOKED_BACK = 3
"""Bins that a failure counts for: its own and those before it, in which the mistake may lie."""
BASE_COMPONENTS = {"gravity_x": "1", "gravity_y": "1", "gravity_z": "1"}
BASE_COMPONENTS |= {"ang_vel_x": "rad/s", "ang_vel_y": "rad/s", "ang_vel_z": "rad/s"}
BASE_COMPONENTS |= {"lin_vel_x": "m/s", "lin_vel_y": "m/s", "lin_vel_z": "m/s", "height": "m"}


@wp.func
def motion_frame(s: State, i: int) -> int:
    """Return world i's place in its motion: the number of a frame, 0 the first."""
    m = s.motion_id[i]
    at = s.motion_start[i] + s.step_count[i]
    if s.motion_loops[m] == 1:
        return at % s.motion_frames[m]
    return wp.min(at, s.motion_frames[m] - 1)


@wp.func
def reference(s: State, i: int) -> int:
    """Return the row of world i's reference in the fields ``reference_...``."""
    return s.motion_first[s.motion_id[i]] + motion_frame(s, i)


@wp.func
def motion_bin(s: State, i: int) -> int:
    """Return the bin that world i's reference is in."""
    m = s.motion_id[i]
    at = motion_frame(s, i)
    found = wp.int32(0)
    for b in range(s.bin_motion.shape[0]):
        if s.bin_motion[b] == m and s.bin_first[b] <= at:
            found = b
    return found


@wp.func
def twist_between(s: State, i: int, k: int) -> wp.vec4:
    """Return the turn about the vertical from the reference's heading, row k, to world i's robot's: w, x, y, z."""
    q = s.reference_base_quat_wxyz[k]
    turn = quat_multiply(s.base_quat_wxyz[i], wp.vec4(q[0], -q[1], -q[2], -q[3]))
    size = wp.sqrt(turn[0] * turn[0] + turn[3] * turn[3])
    if size < 1.0e-6:
        return wp.vec4(1.0, 0.0, 0.0, 0.0)
    return wp.vec4(turn[0] / size, 0.0, 0.0, turn[3] / size)


@wp.func
def body_offset(s: State, i: int, k: int, b: int, twist: wp.vec4) -> wp.vec3:
    """Return the vector from tracked body b of the reference to that of the robot [m], world frame.

    The reference, row k, is moved to the robot's base in the plane and turned by ``twist``; heights are its own.
    """
    want = quat_rotate(twist, s.reference_body_pos_w[k, b] - s.reference_base_pos_w[k])
    base = s.base_pos_w[i]
    target = wp.vec3(base[0] + want[0], base[1] + want[1], s.reference_body_pos_w[k, b][2])
    return s.site_pos_w[i, s.tracked_site[b]] - target


@wp.func
def gravity_of(q: wp.vec4) -> wp.vec3:
    """Return the unit vector of gravity in the frame of a body with orientation q."""
    return quat_rotate_inverse(q, wp.vec3(0.0, 0.0, -1.0))


# -- starts of episodes ----------------------------------------------------------------------------------------------


def _needs_motions(param: str, value: float, scene: Any) -> None:
    if not scene.reference_motions.names:
        raise ValueError(f"{param}={value:g}: the task lacks a motion; set motions.<name>=<file>")


@wp.func
def count_visit(s: State, i: int, memory_s: float):
    """Count this step for the bin that it was in."""
    wp.atomic_add(s.new_steps, i // ROW, motion_bin(s, i), 1)


@wp.func
def fold_counts(s: State, i: int, memory_s: float):
    """Add the counts of the last step to those remembered; each bin is one world's.

    It runs before the physics, when no world counts or draws.
    """
    kept = wp.exp(-s.step_dt / memory_s)
    b = int(i)
    while b < s.bin_motion.shape[0]:
        failed = wp.int32(0)
        steps = wp.int32(0)
        for row in range(s.new_steps.shape[0]):
            failed = failed + s.new_failed[row, b]
            steps = steps + s.new_steps[row, b]
            s.new_failed[row, b] = 0
            s.new_steps[row, b] = 0
        s.bin_failed[b] = kept * s.bin_failed[b] + float(failed)
        s.bin_seconds[b] = kept * s.bin_seconds[b] + float(steps) * s.step_dt
        b = b + s.motion_id.shape[0]


def _check_failures(params: dict[str, float], scene: Any) -> None:
    _needs_motions("memory_s", params["memory_s"], scene)
    check_above(params, "memory_s", 0.0)


@curriculum(before=fold_counts, update=count_visit, check=_check_failures)
def failing_starts(s: State, i: int, rng: wp.uint32, memory_s: float):
    """Count failures in each bin of the motions, and the time spent there, for :func:`reset_to_motion`.

    Counts are forgotten with the time constant ``memory_s`` [s]. They are whole numbers, one row for each chunk of
    worlds that runs by itself on a CPU, where Warp's atomic operations are none.
    """
    if s.terminated[i] == 1:
        wp.atomic_add(s.new_failed, i // ROW, motion_bin(s, i), 1)


def _check_reset(params: dict[str, float], scene: Any) -> None:
    _needs_motions("only", params["only"], scene)
    for name in ("position", "velocity"):
        check_least(params, name, 0.0)
    for name in ("uniform", "spread"):
        check_share(params, name)
    count = len(scene.reference_motions.names)
    if params["only"] not in range(-1, count):
        raise ValueError(f"only={params['only']:g}: must be the index of a motion, 0 to {count - 1}, or -1 for all")
    if params["phase"] >= 1.0:
        raise ValueError(f"phase={params['phase']:g}: must be less than 1; negative draws it")


@wp.func
def bin_share(s: State, b: int, only: float, by_time: int, spread: float) -> float:
    """Return how often a bin is to be drawn, relative to others: by its length, or by its rate of failures."""
    if only >= 0.0 and s.bin_motion[b] != int(only):
        return 0.0
    if by_time == 1:
        return float(s.bin_frames[b])
    weight = float(0.0)
    share = float(1.0)
    bins = s.bin_motion.shape[0]
    for u in range(LOOKED_BACK):
        if b + u < bins and s.bin_motion[wp.min(b + u, bins - 1)] == s.bin_motion[b]:
            rate = (s.bin_failed[b + u] + PRIOR_FAILURES) / (s.bin_seconds[b + u] + PRIOR_S)
            weight = weight + share * rate
        share = share * spread
    return weight


@event(writes="state", modes=("reset",), check=_check_reset)
def reset_to_motion(
    s: State,
    i: int,
    rng: wp.uint32,
    position: float,
    velocity: float,
    uniform: float,
    spread: float,
    only: float,
    phase: float,
):
    """Put the robot into the state of a reference motion, and start to follow it from there.

    Joints are within +-position [rad], velocities within +-velocity [m/s, rad/s] of the reference's. A bin of the
    motions is drawn by what :func:`failing_starts` counted: its failures per second spent in it, plus ``spread`` times
    those of the next bin, and ``spread`` squared times those of the one after; in a share ``uniform`` of the draws it
    is uniform over the time of all motions. Without that curriculum all bins are alike. ``only`` is the index of the
    only motion that is drawn (-1: any), ``phase`` the share of it that an episode skips (negative: drawn).
    """
    bins = s.bin_motion.shape[0]
    by_time = wp.int32(0)
    if wp.randf(rng) < uniform:
        by_time = 1
    total = float(0.0)
    for b in range(bins):
        total = total + bin_share(s, b, only, by_time, spread)
    left = total * wp.randf(rng)
    chosen = wp.int32(-1)
    for b in range(bins):
        share = bin_share(s, b, only, by_time, spread)
        if share > 0.0 and left >= 0.0:
            chosen = b
        left = left - share
    m = s.bin_motion[chosen]
    start = s.bin_first[chosen] + wp.min(int(wp.randf(rng) * float(s.bin_frames[chosen])), s.bin_frames[chosen] - 1)
    if phase >= 0.0:
        start = int(phase * float(s.motion_frames[m] - 1))
    s.motion_id[i] = m
    s.motion_start[i] = start
    k = s.motion_first[m] + start
    q, d = s.base_qpos, s.base_dof
    quat = s.reference_base_quat_wxyz[k]
    for n in range(3):
        s.qpos[i, q + n] = s.reference_base_pos_w[k][n]
        s.qvel[i, d + n] = s.reference_base_lin_vel_w[k][n] + velocity * (2.0 * wp.randf(rng) - 1.0)
        s.qvel[i, d + 3 + n] = s.reference_base_ang_vel_b[k][n] + velocity * (2.0 * wp.randf(rng) - 1.0)
    for n in range(4):
        s.qpos[i, q + 3 + n] = quat[n]
    for j in range(s.joint_pos.shape[1]):
        at = s.reference_joint_pos[k, j] + position * (2.0 * wp.randf(rng) - 1.0)
        s.qpos[i, s.joint_qpos[j]] = wp.clamp(at, s.joint_lower[j], s.joint_upper[j])
        s.qvel[i, s.joint_dof[j]] = s.reference_joint_vel[k, j] + velocity * (2.0 * wp.randf(rng) - 1.0)


# -- commands --------------------------------------------------------------------------------------------------------


def motion_components(robot: Any) -> dict[str, str]:
    """Return the components of a frame of a motion of ``robot``: joints and their velocities, then the base."""
    names = robot.joint_names
    joints = dict.fromkeys(names, "rad") | {f"{name}_vel": "rad/s" for name in names}
    return joints | BASE_COMPONENTS


def mirror_frame(scene: Any) -> mirrors.Mirror:
    """Return the left-right mirror of a frame of a motion."""
    perm, sign = scene.robot.joint_mirror()
    count = len(perm)
    base = (*mirrors.POLAR, *mirrors.AXIAL, *mirrors.POLAR, 1.0)
    whole = [*perm, *(count + k for k in perm), *range(2 * count, 2 * count + len(base))]
    return whole, [*map(float, sign), *map(float, sign), *base]


def mirror_tracked(scene: Any) -> mirrors.Mirror:
    """Return the left-right mirror of a vector for each tracked body; sides are told apart by the names."""
    names = scene.reference_motions.tracked
    perm = []
    other = {"left": "right", "right": "left"}
    for name in names:
        partner = re.sub("left|right", lambda found: other[found[0]], name)
        if partner not in names:
            raise ValueError(f"tracked={names}: {name!r} lacks its partner {partner!r}; add it, or set mirror=False")
        perm += [3 * names.index(partner) + k for k in range(3)]
    return perm, [*mirrors.POLAR] * len(names)


@wp.func
def send_frame(s: State, i: int):
    """Write world i's reference as its command."""
    k = reference(s, i)
    joints = s.joint_pos.shape[1]
    for j in range(joints):
        s.command[i, j] = s.reference_joint_pos[k, j]
        s.command[i, joints + j] = s.reference_joint_vel[k, j]
    quat = s.reference_base_quat_wxyz[k]
    gravity = gravity_of(quat)
    rate = s.reference_base_ang_vel_b[k]
    speed = quat_rotate_inverse(quat, s.reference_base_lin_vel_w[k])
    for n in range(3):
        s.command[i, 2 * joints + n] = gravity[n]
        s.command[i, 2 * joints + 3 + n] = rate[n]
        s.command[i, 2 * joints + 6 + n] = speed[n]
    s.command[i, 2 * joints + 9] = s.reference_base_pos_w[k][2]


def _check_command(params: dict[str, float], scene: Any) -> None:
    if not scene.reference_motions.names:
        raise ValueError("draws=motion: the task lacks a motion; set motions.<name>=<file>")


@command(components=motion_components, draws="motion", mirror=mirror_frame, update=send_frame, check=_check_command)
def reference_motion(s: State, i: int, rng: wp.uint32):
    """The current frame of the reference motion, as a player of motions sends it.

    Joint positions [rad] and velocities [rad/s] in the robot's order; then of the reference's base, in its own frame,
    the unit vector of gravity, angular velocity [rad/s] and linear velocity [m/s]; and its height above the floor [m].
    """
    send_frame(s, i)


# -- how near the robot is -------------------------------------------------------------------------------------------


@wp.func
def joint_error_sq(s: State, i: int) -> float:
    """Return the mean squared error of the joints [rad^2]."""
    k = reference(s, i)
    total = float(0.0)
    for j in range(s.joint_pos.shape[1]):
        e = s.joint_pos[i, j] - s.reference_joint_pos[k, j]
        total = total + e * e
    return total / float(s.joint_pos.shape[1])


@reward
def track_joints(s: State, i: int, std: float) -> float:
    """exp(-mean (q - q*)^2 / std^2) over the joints."""
    return wp.exp(-joint_error_sq(s, i) / (std * std))


@wp.func
def joint_vel_error_sq(s: State, i: int) -> float:
    """Return the mean squared error of the joints' velocities [rad^2/s^2]."""
    k = reference(s, i)
    total = float(0.0)
    for j in range(s.joint_vel.shape[1]):
        e = s.joint_vel[i, j] - s.reference_joint_vel[k, j]
        total = total + e * e
    return total / float(s.joint_vel.shape[1])


@reward
def track_joint_vel(s: State, i: int, std: float) -> float:
    """exp(-mean (q' - q'*)^2 / std^2) over the joints."""
    return wp.exp(-joint_vel_error_sq(s, i) / (std * std))


@reward
def track_base_height(s: State, i: int, std: float) -> float:
    """exp(-(z - z*)^2 / std^2) of the base."""
    e = s.base_pos_w[i][2] - s.reference_base_pos_w[reference(s, i)][2]
    return wp.exp(-e * e / (std * std))


@reward
def track_base_tilt(s: State, i: int, std: float) -> float:
    """exp(-|g - g*|^2 / std^2) of the unit vectors of gravity in the base's frame."""
    want = gravity_of(s.reference_base_quat_wxyz[reference(s, i)])
    return wp.exp(-wp.length_sq(s.projected_gravity_b[i] - want) / (std * std))


@reward
def track_base_vel(s: State, i: int, std: float) -> float:
    """exp(-|v - v*|^2 / std^2) of the base's velocity, each in its own frame."""
    k = reference(s, i)
    want = quat_rotate_inverse(s.reference_base_quat_wxyz[k], s.reference_base_lin_vel_w[k])
    return wp.exp(-wp.length_sq(s.base_lin_vel_b[i] - want) / (std * std))


@reward
def track_base_turn(s: State, i: int, std: float) -> float:
    """exp(-|w - w*|^2 / std^2) of the base's angular velocity, each in its own frame."""
    return wp.exp(-wp.length_sq(s.base_ang_vel_b[i] - s.reference_base_ang_vel_b[reference(s, i)]) / (std * std))


@wp.func
def body_pos_error_sq(s: State, i: int) -> float:
    """Return the mean squared distance of the tracked bodies from the reference's [m^2]."""
    k = reference(s, i)
    twist = twist_between(s, i, k)
    total = float(0.0)
    for b in range(s.tracked_site.shape[0]):
        total = total + wp.length_sq(body_offset(s, i, k, b, twist))
    return total / float(s.tracked_site.shape[0])


@reward
def track_body_pos(s: State, i: int, std: float) -> float:
    """exp(-mean |p - p*|^2 / std^2) over the tracked bodies, relative to the base, heights in the world."""
    return wp.exp(-body_pos_error_sq(s, i) / (std * std))


@wp.func
def body_angle_sq(s: State, i: int) -> float:
    """Return the mean squared angle between the tracked bodies and the reference's [rad^2]."""
    k = reference(s, i)
    twist = twist_between(s, i, k)
    total = float(0.0)
    for b in range(s.tracked_site.shape[0]):
        want = quat_multiply(twist, s.reference_body_quat_wxyz[k, b])
        share = wp.min(wp.abs(wp.dot(want, s.site_quat_wxyz[i, s.tracked_site[b]])), 1.0)
        angle = 2.0 * wp.acos(share)
        total = total + angle * angle
    return total / float(s.tracked_site.shape[0])


@reward
def track_body_quat(s: State, i: int, std: float) -> float:
    """exp(-mean angle^2 / std^2) over the tracked bodies' orientations, after the turn about the vertical."""
    return wp.exp(-body_angle_sq(s, i) / (std * std))


@wp.func
def body_lin_vel_error_sq(s: State, i: int) -> float:
    """Return the mean squared error of the tracked bodies' velocities [m^2/s^2]."""
    k = reference(s, i)
    twist = twist_between(s, i, k)
    total = float(0.0)
    for b in range(s.tracked_site.shape[0]):
        want = quat_rotate(twist, s.reference_body_lin_vel_w[k, b])
        total = total + wp.length_sq(s.site_lin_vel_w[i, s.tracked_site[b]] - want)
    return total / float(s.tracked_site.shape[0])


@reward
def track_body_lin_vel(s: State, i: int, std: float) -> float:
    """exp(-mean |v - v*|^2 / std^2) over the tracked bodies, after the turn about the vertical."""
    return wp.exp(-body_lin_vel_error_sq(s, i) / (std * std))


@wp.func
def body_ang_vel_error_sq(s: State, i: int) -> float:
    """Return the mean squared error of the tracked bodies' angular velocities [rad^2/s^2]."""
    k = reference(s, i)
    twist = twist_between(s, i, k)
    total = float(0.0)
    for b in range(s.tracked_site.shape[0]):
        want = quat_rotate(twist, s.reference_body_ang_vel_w[k, b])
        total = total + wp.length_sq(s.site_ang_vel_w[i, s.tracked_site[b]] - want)
    return total / float(s.tracked_site.shape[0])


@reward
def track_body_ang_vel(s: State, i: int, std: float) -> float:
    """exp(-mean |w - w*|^2 / std^2) over the tracked bodies, after the turn about the vertical."""
    return wp.exp(-body_ang_vel_error_sq(s, i) / (std * std))


@wp.func
def contacts_alike(s: State, i: int) -> float:
    """Return the share of feet with the same contact as the reference's."""
    k = reference(s, i)
    total = float(0.0)
    for f in range(s.foot_contact.shape[1]):
        total = total + 1.0 - wp.abs(s.foot_contact[i, f] - s.reference_foot_contact[k, f])
    return total / float(wp.max(s.foot_contact.shape[1], 1))


@reward
def track_contact(s: State, i: int) -> float:
    """Share of feet that are in contact where the reference's are."""
    return contacts_alike(s, i)


# -- observations ----------------------------------------------------------------------------------------------------


@observation(size=lambda scene: 3 * scene.sizes["tracked"], unit="m", frame="base", mirror=mirror_tracked)
def body_errors(s: State, i: int, j: int) -> float:
    """Vectors from each tracked body of the reference to the robot's, in the base's frame [m]: privileged."""
    k = reference(s, i)
    b = j // 3
    offset = body_offset(s, i, k, b, twist_between(s, i, k))
    return quat_rotate_inverse(s.base_quat_wxyz[i], offset)[j - 3 * b]


@observation(size="feet", mirror="feet")
def reference_contact(s: State, i: int, j: int) -> float:
    """1 for each foot that is in contact in the reference: privileged."""
    return s.reference_foot_contact[reference(s, i), j]


@observation(unit="1", mirror=(1.0,))
def motion_phase(s: State, i: int, j: int) -> float:
    """Share of the motion that is over: privileged."""
    return float(motion_frame(s, i)) / float(s.motion_frames[s.motion_id[i]])


# -- terminations ----------------------------------------------------------------------------------------------------


@termination
def motion_ended(s: State, i: int) -> int:
    """The last frame of a motion that does not loop was reached; a time-out."""
    m = s.motion_id[i]
    if s.motion_loops[m] == 0 and motion_frame(s, i) >= s.motion_frames[m] - 1:
        return 1
    return 0


@termination
def base_height_off(s: State, i: int, limit: float) -> int:
    """The base is more than limit [m] above or below the reference's."""
    if wp.abs(s.base_pos_w[i][2] - s.reference_base_pos_w[reference(s, i)][2]) > limit:
        return 1
    return 0


@termination
def base_tilt_off(s: State, i: int, limit_rad: float) -> int:
    """The base leans more than limit_rad [rad] away from the reference's."""
    want = gravity_of(s.reference_base_quat_wxyz[reference(s, i)])
    if wp.dot(s.projected_gravity_b[i], want) < wp.cos(limit_rad):
        return 1
    return 0


@termination
def body_height_off(s: State, i: int, limit: float) -> int:
    """A tracked body is more than limit [m] above or below the reference's."""
    k = reference(s, i)
    off = wp.int32(0)
    for b in range(s.tracked_site.shape[0]):
        if wp.abs(s.site_pos_w[i, s.tracked_site[b]][2] - s.reference_body_pos_w[k, b][2]) > limit:
            off = 1
    return off


# -- metrics ---------------------------------------------------------------------------------------------------------


@metric(unit="rad", better="smaller")
def joint_error(s: State, i: int) -> float:
    """Root of the mean squared error of the joints' positions."""
    return wp.sqrt(joint_error_sq(s, i))


@metric(unit="m", better="smaller")
def body_error(s: State, i: int) -> float:
    """Mean distance of the tracked bodies from the reference's, relative to the base, heights in the world."""
    k = reference(s, i)
    twist = twist_between(s, i, k)
    total = float(0.0)
    for b in range(s.tracked_site.shape[0]):
        total = total + wp.length(body_offset(s, i, k, b, twist))
    return total / float(s.tracked_site.shape[0])


@metric(better="larger")
def contact_agreement(s: State, i: int) -> float:
    """Share of feet that are in contact where the reference's are."""
    return contacts_alike(s, i)

"""One control step from predicted changes, as Warp functions with an adjoint: ``a`` is before it, ``s`` after it.

Changes are in the base frame before the step, so a prediction knows neither place nor heading: of the linear velocity
[m/s] and the angular velocity [rad/s], and the change of position [m] and rotation beyond the mean of the velocities
before and after. Joints alike, in their own units; of an object the angular velocity and the rotation are in its own
frame. A rotation r stands for the quaternion (1, r / 2), normalized: the
angle is 2 atan(|r| / 2), it is regular below half a turn, and its inverse is 2 v / w.
"""

from typing import Any

import warp as wp

from robot_rl_envs.quat import quat_multiply, quat_rotate, quat_rotate_inverse

FREE_CHANGES = 12
"""Numbers that the change of a free joint has: linear velocity, angular velocity, position, rotation."""


@wp.func
def pose_of(s: Any, i: int, q: int, d: int):
    """Return position, orientation, linear (world) and angular velocity (own frame) of the free joint at q and d."""
    pos = wp.vec3(s.qpos[i, q], s.qpos[i, q + 1], s.qpos[i, q + 2])
    quat = wp.normalize(wp.vec4(s.qpos[i, q + 3], s.qpos[i, q + 4], s.qpos[i, q + 5], s.qpos[i, q + 6]))
    vel = wp.vec3(s.qvel[i, d], s.qvel[i, d + 1], s.qvel[i, d + 2])
    rate = wp.vec3(s.qvel[i, d + 3], s.qvel[i, d + 4], s.qvel[i, d + 5])
    return pos, quat, vel, rate


@wp.func
def advance_free(
    a: Any, s: Any, change: wp.array2d(dtype=wp.float32), i: int, q: int, d: int, frame: wp.vec4, first: int
):
    """Fill row i's free joint at q and d; its change begins at a column, the linear parts in a frame (a quaternion)."""
    pos, quat, vel, rate = pose_of(a, i, q, d)
    dv = wp.vec3(change[i, first], change[i, first + 1], change[i, first + 2])
    dw = wp.vec3(change[i, first + 3], change[i, first + 4], change[i, first + 5])
    dp = wp.vec3(change[i, first + 6], change[i, first + 7], change[i, first + 8])
    dr = wp.vec3(change[i, first + 9], change[i, first + 10], change[i, first + 11])
    half = 0.5 * s.step_dt
    after = vel + quat_rotate(frame, dv)
    turning = rate + dw
    place = pos + half * (vel + after) + quat_rotate(frame, dp)
    turn = half * (rate + turning) + dr
    faced = wp.normalize(quat_multiply(quat, wp.vec4(1.0, 0.5 * turn[0], 0.5 * turn[1], 0.5 * turn[2])))
    for n in range(3):
        s.qpos[i, q + n] = place[n]
        s.qvel[i, d + n] = after[n]
        s.qvel[i, d + 3 + n] = turning[n]
    for n in range(4):
        s.qpos[i, q + 3 + n] = faced[n]


@wp.func
def difference_free(
    a: Any, s: Any, change: wp.array2d(dtype=wp.float32), i: int, q: int, d: int, frame: wp.vec4, first: int
):
    """Fill the change by which `advance_free` leads from a to s."""
    pos, quat, vel, rate = pose_of(a, i, q, d)
    place, faced, after, turning = pose_of(s, i, q, d)
    half = 0.5 * s.step_dt
    dv = quat_rotate_inverse(frame, after - vel)
    dp = quat_rotate_inverse(frame, place - pos - half * (vel + after))
    turn = quat_multiply(wp.vec4(quat[0], -quat[1], -quat[2], -quat[3]), faced)
    for n in range(3):
        change[i, first + n] = dv[n]
        change[i, first + 3 + n] = turning[n] - rate[n]
        change[i, first + 6 + n] = dp[n]
        change[i, first + 9 + n] = 2.0 * turn[1 + n] / turn[0] - half * (rate[n] + turning[n])


@wp.func
def advance_joints(
    a: Any,
    s: Any,
    change: wp.array2d(dtype=wp.float32),
    i: int,
    qs: wp.array(dtype=wp.int32),
    ds: wp.array(dtype=wp.int32),
    first: int,
):
    """Fill row i's joints at the addresses; their changes begin at a column: velocities, then positions."""
    count = qs.shape[0]
    for j in range(count):
        q = qs[j]
        d = ds[j]
        after = a.qvel[i, d] + change[i, first + j]
        s.qvel[i, d] = after
        s.qpos[i, q] = a.qpos[i, q] + 0.5 * s.step_dt * (a.qvel[i, d] + after) + change[i, first + count + j]


@wp.func
def difference_joints(
    a: Any,
    s: Any,
    change: wp.array2d(dtype=wp.float32),
    i: int,
    qs: wp.array(dtype=wp.int32),
    ds: wp.array(dtype=wp.int32),
    first: int,
):
    """Fill the changes by which `advance_joints` leads from a to s."""
    count = qs.shape[0]
    for j in range(count):
        q = qs[j]
        d = ds[j]
        change[i, first + j] = s.qvel[i, d] - a.qvel[i, d]
        mean = 0.5 * s.step_dt * (a.qvel[i, d] + s.qvel[i, d])
        change[i, first + count + j] = s.qpos[i, q] - a.qpos[i, q] - mean


@wp.func
def advance_forces(s: Any, change: wp.array2d(dtype=wp.float32), i: int, first: int):
    """Take row i's actuator forces [N m or N] as they are predicted."""
    for u in range(s.actuator_force.shape[1]):
        s.actuator_force[i, u] = change[i, first + u]


@wp.func
def difference_forces(s: Any, change: wp.array2d(dtype=wp.float32), i: int, first: int):
    """Fill what `advance_forces` takes."""
    for u in range(s.actuator_force.shape[1]):
        change[i, first + u] = s.actuator_force[i, u]


@wp.func
def advance_touches(s: Any, change: wp.array2d(dtype=wp.float32), i: int, first: int):
    """Take the forces [N] of row i's contact sensors as they are predicted, and none below zero."""
    for k in range(s.contact_force.shape[1]):
        s.contact_force[i, k] = wp.max(change[i, first + k], 0.0)


@wp.func
def difference_touches(s: Any, change: wp.array2d(dtype=wp.float32), i: int, first: int):
    """Fill what `advance_touches` takes."""
    for k in range(s.contact_force.shape[1]):
        change[i, first + k] = s.contact_force[i, k]


@wp.func
def advance_contacts(a: Any, s: Any, change: wp.array2d(dtype=wp.float32), i: int, first: int):
    """Take contacts and forces of row i's feet as predicted, and advance their times as `update_contacts` does.

    Contacts are numbers from 0 to 1, of which the terms see the gradient; times change if one passes 0.5.
    """
    count = s.foot_contact.shape[1]
    for f in range(count):
        touching = change[i, first + f]
        s.foot_contact[i, f] = touching
        s.foot_force[i, f] = change[i, first + count + f]
        s.foot_touchdown[i, f] = touching * (1.0 - a.foot_contact[i, f])
        stood = a.foot_contact[i, f] > 0.5
        stands = touching > 0.5
        air = a.foot_air_time_s[i, f]
        peak = a.foot_peak_height_w[i, f]
        s.foot_air_time_s[i, f] = wp.where(stood and stands, air, wp.where(stood, 0.0, air) + s.step_dt)
        s.foot_peak_height_w[i, f] = wp.where(
            stood and stands, peak, wp.max(wp.where(stood, 0.0, peak), s.foot_height_w[i, f])
        )
        s.foot_contact_time_s[i, f] = wp.where(stands, a.foot_contact_time_s[i, f] + s.step_dt, 0.0)


@wp.func
def difference_contacts(s: Any, change: wp.array2d(dtype=wp.float32), i: int, first: int):
    """Fill what `advance_contacts` takes."""
    count = s.foot_contact.shape[1]
    for f in range(count):
        change[i, first + f] = s.foot_contact[i, f]
        change[i, first + count + f] = s.foot_force[i, f]

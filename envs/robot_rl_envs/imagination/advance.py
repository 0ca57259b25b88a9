"""One control step from predicted changes, as Warp functions with an adjoint: ``a`` is before it, ``s`` after it.

Changes are in the base frame before the step, so a prediction knows neither place nor heading: of the linear velocity
[m/s] and the angular velocity [rad/s], and what position [m] and rotation have moved beyond the mean of the velocities
before and after. Joints alike, in their own units. A rotation r stands for the quaternion (1, r / 2), normalized: the
angle is 2 atan(|r| / 2), it has no singularity below half a turn, and its inverse is 2 v / w.
"""

from typing import Any

import warp as wp

from robot_rl_envs.quat import quat_multiply, quat_rotate, quat_rotate_inverse

BASE_CHANGES = 12
"""Numbers that a base's change has: linear velocity, angular velocity, position, rotation."""


@wp.func
def pose_of(s: Any, i: int):
    """Return position, orientation, linear (world) and angular velocity (base frame) from row i's free joint."""
    q, d = s.base_qpos, s.base_dof
    pos = wp.vec3(s.qpos[i, q], s.qpos[i, q + 1], s.qpos[i, q + 2])
    quat = wp.normalize(wp.vec4(s.qpos[i, q + 3], s.qpos[i, q + 4], s.qpos[i, q + 5], s.qpos[i, q + 6]))
    vel = wp.vec3(s.qvel[i, d], s.qvel[i, d + 1], s.qvel[i, d + 2])
    rate = wp.vec3(s.qvel[i, d + 3], s.qvel[i, d + 4], s.qvel[i, d + 5])
    return pos, quat, vel, rate


@wp.func
def advance_base(a: Any, s: Any, change: wp.array2d(dtype=wp.float32), i: int):
    """Fill row i's free joint."""
    pos, quat, vel, rate = pose_of(a, i)
    dv = wp.vec3(change[i, 0], change[i, 1], change[i, 2])
    dw = wp.vec3(change[i, 3], change[i, 4], change[i, 5])
    dp = wp.vec3(change[i, 6], change[i, 7], change[i, 8])
    dr = wp.vec3(change[i, 9], change[i, 10], change[i, 11])
    half = 0.5 * s.step_dt
    after = vel + quat_rotate(quat, dv)
    turning = rate + dw
    place = pos + half * (vel + after) + quat_rotate(quat, dp)
    turn = half * (rate + turning) + dr
    faced = wp.normalize(quat_multiply(quat, wp.vec4(1.0, 0.5 * turn[0], 0.5 * turn[1], 0.5 * turn[2])))
    q, d = s.base_qpos, s.base_dof
    for n in range(3):
        s.qpos[i, q + n] = place[n]
        s.qvel[i, d + n] = after[n]
        s.qvel[i, d + 3 + n] = turning[n]
    for n in range(4):
        s.qpos[i, q + 3 + n] = faced[n]


@wp.func
def difference_base(a: Any, s: Any, change: wp.array2d(dtype=wp.float32), i: int):
    """Fill the change by which `advance_base` leads from a to s."""
    pos, quat, vel, rate = pose_of(a, i)
    place, faced, after, turning = pose_of(s, i)
    half = 0.5 * s.step_dt
    dv = quat_rotate_inverse(quat, after - vel)
    dp = quat_rotate_inverse(quat, place - pos - half * (vel + after))
    turn = quat_multiply(wp.vec4(quat[0], -quat[1], -quat[2], -quat[3]), faced)
    for n in range(3):
        change[i, n] = dv[n]
        change[i, 3 + n] = turning[n] - rate[n]
        change[i, 6 + n] = dp[n]
        change[i, 9 + n] = 2.0 * turn[1 + n] / turn[0] - half * (rate[n] + turning[n])


@wp.func
def advance_joints(a: Any, s: Any, change: wp.array2d(dtype=wp.float32), i: int, first: int):
    """Fill positions and velocities of row i's joints; their changes begin at a column: velocities, then positions."""
    count = s.joint_qpos.shape[0]
    for j in range(count):
        q = s.joint_qpos[j]
        d = s.joint_dof[j]
        after = a.qvel[i, d] + change[i, first + j]
        s.qvel[i, d] = after
        s.qpos[i, q] = a.qpos[i, q] + 0.5 * s.step_dt * (a.qvel[i, d] + after) + change[i, first + count + j]


@wp.func
def difference_joints(a: Any, s: Any, change: wp.array2d(dtype=wp.float32), i: int, first: int):
    """Fill the changes by which `advance_joints` leads from a to s."""
    count = s.joint_qpos.shape[0]
    for j in range(count):
        q = s.joint_qpos[j]
        d = s.joint_dof[j]
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
def advance_contacts(a: Any, s: Any, change: wp.array2d(dtype=wp.float32), i: int, first: int):
    """Take contacts and forces of row i's feet as predicted, and advance their times as `update_contacts` does.

    Contacts are numbers from 0 to 1, of which the terms see the gradient; times change where one passes 0.5.
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

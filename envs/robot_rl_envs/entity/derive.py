"""What terms read, computed from qpos and qvel for one world: base, joints, feet.

Engines leave their own derived fields one substep behind the state; this is current, and after a reset it needs no
engine call. Contact comes from the sensors of the last substep and is none after a reset.
"""

from typing import Any

import warp as wp

from robot_rl_envs import engine
from robot_rl_envs.quat import quat_from_axis_angle, quat_multiply, quat_rotate, quat_rotate_inverse
from robot_rl_envs.terrain.lookup import terrain_height

CONTACT_FORCE_N = 1.0
"""A foot is in contact from this net force on [N]."""
BAD_STATE, BAD_ACTION = wp.constant(engine.FAULT_STATE), wp.constant(engine.FAULT_ACTION)
RAISED, OVERFLOWED = wp.constant(engine.FAULT_RAISED), wp.constant(engine.FAULT_OVERFLOW)
RAISED_BIT, OVERFLOWED_BITS = wp.constant(engine.OVERFLOW_RAISED), wp.constant(engine.OVERFLOW_BITS)
TOO_FAST = wp.constant(engine.MAX_SPEED)


@wp.func
def derive_base(s: Any, i: int):
    """Fill the base's pose and velocities of world i from its free joint."""
    q, d = s.base_qpos, s.base_dof
    pos = wp.vec3(s.qpos[i, q], s.qpos[i, q + 1], s.qpos[i, q + 2])
    quat = wp.normalize(wp.vec4(s.qpos[i, q + 3], s.qpos[i, q + 4], s.qpos[i, q + 5], s.qpos[i, q + 6]))
    vel = wp.vec3(s.qvel[i, d], s.qvel[i, d + 1], s.qvel[i, d + 2])
    s.base_pos_w[i] = pos
    s.base_quat_wxyz[i] = quat
    s.base_lin_vel_w[i] = vel
    s.base_lin_vel_b[i] = quat_rotate_inverse(quat, vel)
    s.base_ang_vel_b[i] = wp.vec3(s.qvel[i, d + 3], s.qvel[i, d + 4], s.qvel[i, d + 5])
    s.projected_gravity_b[i] = quat_rotate_inverse(quat, wp.vec3(0.0, 0.0, -1.0))


@wp.func
def derive_joints(s: Any, i: int):
    """Copy world i's joint positions, velocities and torques into the robot's own order."""
    for j in range(s.joint_pos.shape[1]):
        s.joint_pos[i, j] = s.qpos[i, s.joint_qpos[j]]
        s.joint_vel[i, j] = s.qvel[i, s.joint_dof[j]]
        torque = float(0.0)
        if s.joint_ctrl[j] >= 0:
            torque = s.actuator_force[i, s.joint_ctrl[j]]
        s.joint_torque[i, j] = torque


@wp.func
def pass_node(s: Any, c: Any, i: int, n: int, pos: wp.vec3, quat: wp.vec4, vel: wp.vec3, ang: wp.vec3):
    """Return pose and velocities of world i's node n of the chain from those of the node above it."""
    arm = quat_rotate(quat, c.pos[n])
    pos = pos + arm
    vel = vel + wp.cross(ang, arm)
    quat = quat_multiply(quat, c.quat[n])
    if c.kind[n] == 1:
        rate = s.qvel[i, c.dof[n]] * quat_rotate(quat, c.axis[n])
        anchor = quat_rotate(quat, c.anchor[n])
        quat = quat_multiply(quat, quat_from_axis_angle(c.axis[n], s.qpos[i, c.qpos[n]] - c.ref[n]))
        lever = anchor - quat_rotate(quat, c.anchor[n])
        pos = pos + lever
        # the body's origin turns about the anchor
        vel = vel + wp.cross(ang, lever) + wp.cross(rate, lever - anchor)
        ang = ang + rate
    if c.kind[n] == 2:
        axis = quat_rotate(quat, c.axis[n])
        slide = (s.qpos[i, c.qpos[n]] - c.ref[n]) * axis
        pos = pos + slide
        vel = vel + wp.cross(ang, slide) + s.qvel[i, c.dof[n]] * axis
    return pos, quat, vel, ang


@wp.func
def derive_feet(s: Any, c: Any, i: int):
    """Walk from the base down to each foot: its position, velocity and clearance in the world.

    What `pass_node` does is written out: called here, it costs the observe kernel of a Go2 two spilled registers.
    """
    for f in range(c.foot_pos.shape[0]):
        pos = wp.vec3(0.0, 0.0, 0.0)
        quat = wp.vec4(1.0, 0.0, 0.0, 0.0)
        vel = wp.vec3(0.0, 0.0, 0.0)
        ang = wp.vec3(0.0, 0.0, 0.0)
        if c.floating == 1:
            pos = s.base_pos_w[i]
            quat = s.base_quat_wxyz[i]
            vel = s.base_lin_vel_w[i]
            ang = quat_rotate(quat, s.base_ang_vel_b[i])
        for n in range(c.start[f], c.start[f + 1]):
            arm = quat_rotate(quat, c.pos[n])
            pos = pos + arm
            vel = vel + wp.cross(ang, arm)
            quat = quat_multiply(quat, c.quat[n])
            if c.kind[n] == 1:
                rate = s.qvel[i, c.dof[n]] * quat_rotate(quat, c.axis[n])
                anchor = quat_rotate(quat, c.anchor[n])
                quat = quat_multiply(quat, quat_from_axis_angle(c.axis[n], s.qpos[i, c.qpos[n]] - c.ref[n]))
                lever = anchor - quat_rotate(quat, c.anchor[n])
                pos = pos + lever
                # the body's origin turns about the anchor
                vel = vel + wp.cross(ang, lever) + wp.cross(rate, lever - anchor)
                ang = ang + rate
            if c.kind[n] == 2:
                axis = quat_rotate(quat, c.axis[n])
                slide = (s.qpos[i, c.qpos[n]] - c.ref[n]) * axis
                pos = pos + slide
                vel = vel + wp.cross(ang, slide) + s.qvel[i, c.dof[n]] * axis
        arm = quat_rotate(quat, c.foot_pos[f])
        center = pos + arm
        s.foot_pos_w[i, f] = center
        s.foot_vel_w[i, f] = vel + wp.cross(ang, arm)
        s.foot_height_w[i, f] = pos[2] + arm[2] - c.foot_radius - terrain_height(s, center[0], center[1])


@wp.func
def derive_objects(s: Any, i: int):
    """Fill pose and velocity of world i's free objects from their free joints; fixed ones keep theirs."""
    for k in range(s.object_qpos.shape[0]):
        q, d = s.object_qpos[k], s.object_dof[k]
        if q >= 0:
            quat = wp.normalize(wp.vec4(s.qpos[i, q + 3], s.qpos[i, q + 4], s.qpos[i, q + 5], s.qpos[i, q + 6]))
            s.object_pos_w[i, k] = wp.vec3(s.qpos[i, q], s.qpos[i, q + 1], s.qpos[i, q + 2])
            s.object_quat_wxyz[i, k] = quat
            s.object_lin_vel_w[i, k] = wp.vec3(s.qvel[i, d], s.qvel[i, d + 1], s.qvel[i, d + 2])
            rate = wp.vec3(s.qvel[i, d + 3], s.qvel[i, d + 4], s.qvel[i, d + 5])
            s.object_ang_vel_w[i, k] = quat_rotate(quat, rate)


@wp.func
def derive_object_joints(s: Any, i: int):
    """Copy positions and velocities of the joints of world i's articulated objects."""
    for j in range(s.object_joint_qpos.shape[0]):
        s.object_joint_pos[i, j] = s.qpos[i, s.object_joint_qpos[j]]
        s.object_joint_vel[i, j] = s.qvel[i, s.object_joint_dof[j]]


@wp.func
def derive_site(s: Any, c: Any, i: int, k: int, pos: wp.vec3, quat: wp.vec4, vel: wp.vec3, ang: wp.vec3):
    """Walk from a pose and its velocities down to world i's site k."""
    first = c.foot_pos.shape[0] + k
    for n in range(c.start[first], c.start[first + 1]):
        pos, quat, vel, ang = pass_node(s, c, i, n, pos, quat, vel, ang)
    arm = quat_rotate(quat, c.site_pos[k])
    s.site_pos_w[i, k] = pos + arm
    s.site_quat_wxyz[i, k] = quat_multiply(quat, c.site_quat[k])
    s.site_lin_vel_w[i, k] = vel + wp.cross(ang, arm)
    s.site_ang_vel_w[i, k] = ang


@wp.func
def derive_sites(s: Any, c: Any, i: int):
    """Fill pose and velocity of each named site of world i's robot."""
    zero = wp.vec3(0.0, 0.0, 0.0)
    for k in range(c.site_object.shape[0]):
        if c.site_object[k] < 0 and c.floating == 1:
            rate = quat_rotate(s.base_quat_wxyz[i], s.base_ang_vel_b[i])
            derive_site(s, c, i, k, s.base_pos_w[i], s.base_quat_wxyz[i], s.base_lin_vel_w[i], rate)
        if c.site_object[k] < 0 and c.floating == 0:
            derive_site(s, c, i, k, zero, wp.vec4(1.0, 0.0, 0.0, 0.0), zero, zero)


@wp.func
def derive_object_sites(s: Any, c: Any, i: int):
    """Fill pose and velocity of each named site of world i's objects, from the objects' current poses."""
    for k in range(c.site_object.shape[0]):
        o = c.site_object[k]
        if o >= 0:
            pos, quat = s.object_pos_w[i, o], s.object_quat_wxyz[i, o]
            derive_site(s, c, i, k, pos, quat, s.object_lin_vel_w[i, o], s.object_ang_vel_w[i, o])


@wp.func
def read_contact_sensors(s: Any, i: int):
    """Copy the size of the net force [N] of each of world i's contact sensors in the last substep."""
    for k in range(s.contact_at.shape[0]):
        at = s.contact_at[k]
        s.contact_force[i, k] = wp.length(
            wp.vec3(s.sensordata[i, at + 1], s.sensordata[i, at + 2], s.sensordata[i, at + 3])
        )


@wp.func
def clear_contact_sensors(s: Any, i: int):
    """Clear the contact forces from before world i's episode."""
    for k in range(s.contact_at.shape[0]):
        s.contact_force[i, k] = 0.0


@wp.func
def derive(s: Any, c: Any, i: int):
    """Fill everything that follows from qpos and qvel of world i."""
    if c.floating == 1:
        derive_base(s, i)
    derive_joints(s, i)
    derive_feet(s, c, i)


@wp.func
def update_contacts(s: Any, c: Any, i: int):
    """Read the feet's contact sensors once a control step and advance air and contact times."""
    for f in range(c.foot_sensor.shape[0]):
        at = c.foot_sensor[f]
        force = wp.length(wp.vec3(s.sensordata[i, at + 1], s.sensordata[i, at + 2], s.sensordata[i, at + 3]))
        touching = float(0.0)
        if force > CONTACT_FORCE_N:
            touching = 1.0
        before = s.foot_contact[i, f]
        s.foot_touchdown[i, f] = touching * (1.0 - before)
        if before > 0.5 and touching < 0.5:
            s.foot_air_time_s[i, f] = 0.0
            s.foot_peak_height_w[i, f] = 0.0
        if touching < 0.5 or before < 0.5:
            s.foot_air_time_s[i, f] = s.foot_air_time_s[i, f] + s.step_dt
            s.foot_peak_height_w[i, f] = wp.max(s.foot_peak_height_w[i, f], s.foot_height_w[i, f])
        if touching > 0.5:
            s.foot_contact_time_s[i, f] = s.foot_contact_time_s[i, f] + s.step_dt
        else:
            s.foot_contact_time_s[i, f] = 0.0
        s.foot_contact[i, f] = touching
        s.foot_force[i, f] = force


@wp.func
def clear_world(s: Any, i: int):
    """Clear an episode's bookkeeping in world i."""
    for f in range(s.foot_contact.shape[1]):
        s.foot_contact[i, f] = 0.0
        s.foot_touchdown[i, f] = 0.0
        s.foot_force[i, f] = 0.0
        s.foot_air_time_s[i, f] = 0.0
        s.foot_contact_time_s[i, f] = 0.0
        s.foot_peak_height_w[i, f] = 0.0
    for j in range(s.action.shape[1]):
        s.action[i, j] = 0.0
        s.prev_action[i, j] = 0.0
        s.prev_prev_action[i, j] = 0.0
    for j in range(s.actuator_force.shape[1]):
        s.actuator_force[i, j] = 0.0
    for j in range(s.sensordata.shape[1]):
        s.sensordata[i, j] = 0.0
    for j in range(s.joint_vel.shape[1]):
        s.last_joint_vel[i, j] = s.qvel[i, s.joint_dof[j]]
    s.episode_return[i] = 0.0
    s.episode_length[i] = 0
    s.step_count[i] = 0


@wp.func
def place_on_terrain(s: Any, i: int):
    """Move world i's robot, in its default pose about the origin, to the start of its terrain tile."""
    origin = s.terrain_origins[s.terrain_level[i], s.terrain_column[i]]
    s.env_origin_w[i] = origin
    for k in range(3):
        at = s.base_qpos + k
        s.qpos[i, at] = s.qpos[i, at] + origin[k]


@wp.func
def place_objects_on_terrain(s: Any, i: int):
    """Move world i's free objects to the start of its terrain tile."""
    for j in range(s.object_qpos.shape[0]):
        for k in range(3):
            at = s.object_qpos[j] + k
            s.qpos[i, at] = s.qpos[i, at] + s.env_origin_w[i][k]


@wp.func
def couple_joints(s: Any, i: int):
    """Set positions and speeds of world i's joints that follow another one by an equality of the model."""
    for j in range(s.joint_follows.shape[0]):
        leader = int(s.joint_follows[j][0])
        if leader >= 0:
            factor, offset = s.joint_follows[j][1], s.joint_follows[j][2]
            s.qpos[i, s.joint_qpos[j]] = offset + factor * s.qpos[i, s.joint_qpos[leader]]
            s.qvel[i, s.joint_dof[j]] = factor * s.qvel[i, s.joint_dof[leader]]


@wp.func
def clear_wrench(s: Any, i: int):
    """Remove the forces on every body of world i."""
    for b in range(s.wrench_left_s.shape[1]):
        s.wrench_left_s[i, b] = 0.0
        for k in range(6):
            s.xfrc_applied[i, b, k] = 0.0


@wp.func
def world_faults(s: Any, i: int) -> int:
    """Return the FAULT_* bits of world i before anything is computed from it; 0 if it is fine.

    FAULT_STATE and FAULT_ACTION if its state or action is not finite, or a velocity is too large; FAULT_RAISED and
    FAULT_OVERFLOW if the engine reported them.
    """
    faults = wp.int32(0)
    if (s.overflow[i] & RAISED_BIT) != 0:
        faults = faults | RAISED
    if (s.overflow[i] & OVERFLOWED_BITS) != 0:
        faults = faults | OVERFLOWED
    for k in range(s.qpos.shape[1]):
        if not wp.isfinite(s.qpos[i, k]):
            faults = faults | BAD_STATE
    for k in range(s.qvel.shape[1]):
        if not wp.isfinite(s.qvel[i, k]) or wp.abs(s.qvel[i, k]) > TOO_FAST:
            faults = faults | BAD_STATE
    for k in range(s.action.shape[1]):
        if not wp.isfinite(s.action[i, k]):
            faults = faults | BAD_ACTION
    return faults


@wp.func
def park_world(s: Any, i: int):
    """Put world i at rest in its default pose until its reset: no term ever computes with, or indexes by, a NaN."""
    for k in range(s.qpos.shape[1]):
        s.qpos[i, k] = s.default_qpos[k]
    for k in range(s.qvel.shape[1]):
        s.qvel[i, k] = 0.0
    for k in range(s.sensordata.shape[1]):
        s.sensordata[i, k] = 0.0
    for k in range(s.actuator_force.shape[1]):
        s.actuator_force[i, k] = 0.0
    for k in range(s.action.shape[1]):
        s.action[i, k] = 0.0

"""What follows from qpos and qvel, as `robot_rl_envs.entity.derive` has it, in a form with an adjoint.

Warp's adjoint of a loop needs every value that an iteration read as it was: a variable that a loop multiplies has only
its last value left. So the pose of every node of a chain is kept in an array.
"""

from typing import Any

import warp as wp

from robot_rl_envs.entity.derive import pass_node
from robot_rl_envs.quat import quat_multiply, quat_rotate
from robot_rl_envs.terrain.lookup import terrain_height


@wp.struct
class Nodes:
    """Pose and velocities of the nodes of all chains, in the order of `Chain`, (rows, nodes) each, world frame.

    Attributes:
        pos, quat: position [m] and orientation, w x y z.
        vel, ang: linear [m/s] and angular velocity [rad/s].
    """

    pos: wp.array2d(dtype=wp.vec3)  # pyright: ignore[reportInvalidTypeForm]
    quat: wp.array2d(dtype=wp.vec4)  # pyright: ignore[reportInvalidTypeForm]
    vel: wp.array2d(dtype=wp.vec3)  # pyright: ignore[reportInvalidTypeForm]
    ang: wp.array2d(dtype=wp.vec3)  # pyright: ignore[reportInvalidTypeForm]


def make_nodes(rows: int, nodes: int, device: str) -> Any:
    """Return `Nodes` for so many rows, with gradients."""
    made = Nodes()
    for name, dtype in (("pos", wp.vec3), ("quat", wp.vec4), ("vel", wp.vec3), ("ang", wp.vec3)):
        setattr(made, name, wp.zeros((rows, nodes), dtype=dtype, device=device, requires_grad=True))
    return made


@wp.func
def walk(s: Any, c: Any, k: Nodes, i: int, chain: int, pos: wp.vec3, quat: wp.vec4, vel: wp.vec3, ang: wp.vec3):
    """Walk down a chain from a pose and its velocities, keep row i's nodes, and return those of the last one."""
    first = c.start[chain]
    last = c.start[chain + 1] - 1
    for n in range(first, last + 1):
        above_pos = pos
        above_quat = quat
        above_vel = vel
        above_ang = ang
        if n > first:
            above_pos = k.pos[i, n - 1]
            above_quat = k.quat[i, n - 1]
            above_vel = k.vel[i, n - 1]
            above_ang = k.ang[i, n - 1]
        own_pos, own_quat, own_vel, own_ang = pass_node(s, c, i, n, above_pos, above_quat, above_vel, above_ang)
        k.pos[i, n] = own_pos
        k.quat[i, n] = own_quat
        k.vel[i, n] = own_vel
        k.ang[i, n] = own_ang
    if last >= first:
        return k.pos[i, last], k.quat[i, last], k.vel[i, last], k.ang[i, last]
    return pos, quat, vel, ang


@wp.func
def trace_feet(s: Any, c: Any, k: Nodes, i: int):
    """Fill position, velocity and clearance of row i's feet."""
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
        last_pos, last_quat, last_vel, last_ang = walk(s, c, k, i, f, pos, quat, vel, ang)
        arm = quat_rotate(last_quat, c.foot_pos[f])
        centre = last_pos + arm
        s.foot_pos_w[i, f] = centre
        s.foot_vel_w[i, f] = last_vel + wp.cross(last_ang, arm)
        s.foot_height_w[i, f] = centre[2] - c.foot_radius - terrain_height(s, centre[0], centre[1])


@wp.func
def trace_site(s: Any, c: Any, k: Nodes, i: int, site: int, pos: wp.vec3, quat: wp.vec4, vel: wp.vec3, ang: wp.vec3):
    """Fill pose and velocity of a named site of row i; its chain begins at a pose with its velocities."""
    chain = c.foot_pos.shape[0] + site
    last_pos, last_quat, last_vel, last_ang = walk(s, c, k, i, chain, pos, quat, vel, ang)
    arm = quat_rotate(last_quat, c.site_pos[site])
    s.site_pos_w[i, site] = last_pos + arm
    s.site_quat_wxyz[i, site] = quat_multiply(last_quat, c.site_quat[site])
    s.site_lin_vel_w[i, site] = last_vel + wp.cross(last_ang, arm)
    s.site_ang_vel_w[i, site] = last_ang


@wp.func
def trace_sites(s: Any, c: Any, k: Nodes, i: int):
    """Fill pose and velocity of the named sites of row i's robot."""
    zero = wp.vec3(0.0, 0.0, 0.0)
    for site in range(c.site_object.shape[0]):
        if c.site_object[site] < 0 and c.floating == 1:
            rate = quat_rotate(s.base_quat_wxyz[i], s.base_ang_vel_b[i])
            trace_site(s, c, k, i, site, s.base_pos_w[i], s.base_quat_wxyz[i], s.base_lin_vel_w[i], rate)
        if c.site_object[site] < 0 and c.floating == 0:
            trace_site(s, c, k, i, site, zero, wp.vec4(1.0, 0.0, 0.0, 0.0), zero, zero)


@wp.func
def trace_object_sites(s: Any, c: Any, k: Nodes, i: int):
    """Fill pose and velocity of the named sites of row i's objects."""
    for site in range(c.site_object.shape[0]):
        o = c.site_object[site]
        if o >= 0:
            pos = s.object_pos_w[i, o]
            quat = s.object_quat_wxyz[i, o]
            trace_site(s, c, k, i, site, pos, quat, s.object_lin_vel_w[i, o], s.object_ang_vel_w[i, o])

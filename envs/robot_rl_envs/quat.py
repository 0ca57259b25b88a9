"""Rotations by quaternions stored w, x, y, z, as MuJoCo stores them.

Warp's own quaternion functions read x, y, z, w; they are used nowhere in this package.
"""

from typing import TYPE_CHECKING

import warp as wp

if TYPE_CHECKING:
    import torch


@wp.func
def quat_rotate(q: wp.vec4, v: wp.vec3) -> wp.vec3:
    """Rotate v by unit quaternion q (w, x, y, z): from the body frame to the world's."""
    u = wp.vec3(q[1], q[2], q[3])
    t = 2.0 * wp.cross(u, v)
    return v + q[0] * t + wp.cross(u, t)


@wp.func
def quat_rotate_inverse(q: wp.vec4, v: wp.vec3) -> wp.vec3:
    """Rotate v by the inverse of unit quaternion q (w, x, y, z): from the world's frame to the body's."""
    u = wp.vec3(q[1], q[2], q[3])
    t = 2.0 * wp.cross(u, v)
    return v - q[0] * t + wp.cross(u, t)


@wp.func
def quat_multiply(a: wp.vec4, b: wp.vec4) -> wp.vec4:
    """Hamilton product a * b of quaternions (w, x, y, z): rotate by b, then by a."""
    return wp.vec4(
        a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
        a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
        a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
        a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
    )


@wp.func
def quat_from_axis_angle(axis: wp.vec3, angle: float) -> wp.vec4:
    """Quaternion (w, x, y, z) of a turn by angle [rad] about a unit axis."""
    half = 0.5 * angle
    u = wp.sin(half) * axis
    return wp.vec4(wp.cos(half), u[0], u[1], u[2])


@wp.func
def yaw_of(q: wp.vec4) -> float:
    """Heading [rad] of a body with orientation q (w, x, y, z)."""
    return wp.atan2(2.0 * (q[0] * q[3] + q[1] * q[2]), 1.0 - 2.0 * (q[2] * q[2] + q[3] * q[3]))


def multiply(a: "torch.Tensor", b: "torch.Tensor") -> "torch.Tensor":
    """Return the Hamilton product of quaternions w x y z, (N, 4)."""
    import torch

    aw, bw, av, bv = a[:, :1], b[:, :1], a[:, 1:], b[:, 1:]
    vector = aw * bv + bw * av + torch.linalg.cross(av, bv)
    return torch.cat([aw * bw - (av * bv).sum(dim=1, keepdim=True), vector], dim=1)


def rotate_inverse(q: "torch.Tensor", v: "torch.Tensor") -> "torch.Tensor":
    """Return vectors (N, 3) in the frame that q (N, 4) rotates into theirs."""
    import torch

    t = 2.0 * torch.linalg.cross(q[:, 1:], v)
    return v - q[:, :1] * t + torch.linalg.cross(q[:, 1:], t)

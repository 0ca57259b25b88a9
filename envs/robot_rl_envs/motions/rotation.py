"""Rotations of whole trajectories in NumPy: unit quaternions w, x, y, z in the last axis."""

import numpy as np

Array = np.ndarray


def multiply(a: Array, b: Array) -> Array:
    """Return the Hamilton product (..., 4): rotate by b, then by a."""
    aw, ax, ay, az = np.moveaxis(a, -1, 0)
    bw, bx, by, bz = np.moveaxis(b, -1, 0)
    parts = (
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    )
    return np.stack(parts, axis=-1)


def conjugate(q: Array) -> Array:
    """Return the inverse rotation (..., 4)."""
    return q * np.array([1.0, -1.0, -1.0, -1.0])


def rotate(q: Array, v: Array) -> Array:
    """Rotate vectors (..., 3) by q."""
    u, w = q[..., 1:], q[..., :1]
    t = 2.0 * np.cross(u, v)
    return v + w * t + np.cross(u, t)


def normalize(q: Array) -> Array:
    """Return q with length 1."""
    return q / np.linalg.norm(q, axis=-1, keepdims=True)


def from_rotvec(v: Array) -> Array:
    """Return the quaternion (..., 4) of a rotation vector (..., 3): axis times angle [rad]."""
    half = 0.5 * np.linalg.norm(v, axis=-1, keepdims=True)
    return np.concatenate([np.cos(half), 0.5 * np.sinc(half / np.pi) * v], axis=-1)


def to_rotvec(q: Array) -> Array:
    """Return the rotation vector (..., 3) of at most half a turn."""
    q = np.where(q[..., :1] < 0.0, -q, q)
    sine = np.linalg.norm(q[..., 1:], axis=-1, keepdims=True)
    angle = 2.0 * np.arctan2(sine, q[..., :1])
    return q[..., 1:] * np.where(sine > 1e-9, angle / np.maximum(sine, 1e-9), 2.0)


def slerp(a: Array, b: Array, t: Array) -> Array:
    """Return the rotations at share t (...,) of the shorter way from a to b."""
    step = to_rotvec(multiply(conjugate(a), b))
    return normalize(multiply(a, from_rotvec(t[..., None] * step)))


def angular_velocity(q: Array, dt: float, *, body: bool) -> Array:
    """Return angular velocities [rad/s] of orientations (T, ..., 4) by central differences, one-sided at the ends.

    Args:
        q: orientations at equal steps in time.
        dt: time between them [s].
        body: in the body's own frame; else in the world's.
    """
    before, after, span = _neighbors(q, dt)
    there = conjugate(before)
    return to_rotvec(multiply(there, after) if body else multiply(after, there)) / span


def velocity(x: Array, dt: float) -> Array:
    """Return rates of values (T, ...) by central differences, one-sided at the ends."""
    before, after, span = _neighbors(x, dt)
    return (after - before) / span


def _neighbors(x: Array, dt: float) -> tuple[Array, Array, Array]:
    """Return the values before and after each frame, and the time between these two [s]."""
    k = np.arange(len(x))
    low, high = np.maximum(k - 1, 0), np.minimum(k + 1, len(x) - 1)
    return x[low], x[high], ((high - low) * dt).reshape(-1, *([1] * (x.ndim - 1)))

"""Left-right mirrors of MuJoCo's own arrays: its state and its bodies' spatial vectors.

The mirror is y -> -y. A vector's y changes sign; of an axial vector (an angular velocity, a torque) x and z do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import mujoco

POLAR, AXIAL = (1.0, -1.0, 1.0), (-1.0, 1.0, -1.0)
QUATERNION = (1.0, -1.0, 1.0, -1.0)
"""The mirror image of a rotation turns about the mirrored axis the other way."""
SPATIAL = (*AXIAL, *POLAR)
"""Of MuJoCo's spatial vectors: rotation, then translation."""
INERTIA = (1.0, 1.0, 1.0, -1.0, 1.0, -1.0, *POLAR, 1.0)
"""Of MuJoCo's ten numbers: Ixx Iyy Izz Ixy Ixz Iyz, mass times offset, mass."""
NEAR_M = 0.05
"""How far a body's center of mass may be from its partner's mirror image: sides are seldom exactly alike."""

Mirror = tuple[list[int], list[float]]
"""Permutation and sign: ``mirrored[k] = sign[k] * x[permutation[k]]``."""


def positions(scene: Any) -> Mirror:
    """Return the mirror of all generalized positions (nq)."""
    return _coordinates(scene, scene.model.jnt_qposadr, (*POLAR, *QUATERNION))


def velocities(scene: Any) -> Mirror:
    """Return the mirror of all generalized velocities (nv), and of generalized forces."""
    return _coordinates(scene, scene.model.jnt_dofadr, (*POLAR, *AXIAL))


def without(first: int, mirror: Mirror) -> Mirror:
    """Return a mirror of everything after the first components, which must be mirrored among themselves."""
    return [k - first for k in mirror[0][first:]], mirror[1][first:]


def bodies(scene: Any, signs: tuple[float, ...]) -> Mirror:
    """Return the mirror of ``len(signs)`` numbers a body, over all bodies except the world.

    Raises:
        ValueError: a body lacks a partner on the other side.
    """
    partner, width = partners(scene.model), len(signs)
    perm = [(b - 1) * width + k for b in partner[1:] for k in range(width)]
    return perm, list(signs) * (len(partner) - 1)


def _coordinates(scene: Any, address: np.ndarray, floating: tuple[float, ...]) -> Mirror:
    import mujoco

    model = scene.model
    indices, signs = scene.robot.joint_mirror()
    names = scene.robot.joint_names
    perm, sign = [], []
    for joint in range(model.njnt):
        start = int(address[joint])
        if model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE:
            perm += range(start, start + len(floating))
            sign += floating
            continue
        name = model.joint(joint).name
        if name in names:
            k = names.index(name)
            perm.append(int(address[model.joint(names[indices[k]]).id]))
            sign.append(signs[k])
        else:
            perm.append(start)
            sign.append(1.0)
    return perm, sign


def partners(model: mujoco.MjModel) -> list[int]:
    """Return the body on the other side for every body, by the centers of mass in the model's own pose."""
    import mujoco

    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    centers = data.xipos
    found = [0]
    for body in range(1, model.nbody):
        image = centers[body] * (1.0, -1.0, 1.0)
        distance = np.linalg.norm(centers[1:] - image, axis=1) + np.abs(model.body_mass[1:] - model.body_mass[body])
        nearest = 1 + int(distance.argmin())
        if distance[nearest - 1] > NEAR_M:
            raise ValueError(f"body {model.body(body).name or body!r} lacks a partner on the other side of the mirror")
        found.append(nearest)
    if any(found[found[b]] != b for b in range(model.nbody)):
        raise ValueError("the bodies are not in pairs on both sides of the mirror")
    return found

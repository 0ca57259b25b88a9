"""Constants that derive from masses, inertias and armature, recomputed only in the worlds in which these were written.

MuJoCo Warp's own ``set_const`` computes them for all worlds in some 250 launches, in every step of a CUDA graph.
Here are five launches, in which a world without changes returns at once.

At qpos0 positions and axes are the same in every world; masses, centers of mass, inertias and armature differ. With
J the Jacobian of body b's origin, r its center of mass from there and I its inertia, in the world's axes::

    M = extra + diag(armature) + sum_b m (Jp + Jr x r)' (Jp + Jr x r) + Jr' I Jr
    dof_invweight0 = mean of diag(M^-1) over a joint's dofs
    body_invweight0 = mean of diag(J M^-1 J') over three translations of the center of mass, over three rotations

as mj_setConst has them; ``extra`` is the rest of the model's M, e.g. armature of actuators.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import warp as wp

if TYPE_CHECKING:
    import mujoco


@wp.struct
class Pose0:
    """What is the same in every world at qpos0."""

    jac: wp.array3d(dtype=wp.float32)  # (nbody, 6, nv) of each body's origin: translation, rotation
    xmat: wp.array(dtype=wp.mat33)  # (nbody,) axes of each body
    extra: wp.array2d(dtype=wp.float32)  # (nv, nv)
    first: wp.array(dtype=wp.int32)  # (nv,) first dof of those averaged with a dof
    count: wp.array(dtype=wp.int32)  # (nv,) and how many they are
    moving: wp.array(dtype=wp.int32)  # (nbody,) 0: fixed to the world
    subtree: wp.array(dtype=wp.int32)  # (nbody,) bodies from this one down


@wp.struct
class Masses:
    """The model's fields, one row a world, or one for all."""

    mass: wp.array2d(dtype=wp.float32)
    inertia: wp.array2d(dtype=wp.vec3)
    ipos: wp.array2d(dtype=wp.vec3)
    iquat: wp.array2d(dtype=wp.quat)  # w, x, y, z
    armature: wp.array2d(dtype=wp.float32)


@wp.func
def com_column(c: Pose0, b: int, k: int, r: wp.vec3) -> wp.vec3:
    """Velocity of body b's center of mass, r [m] from its origin, at a unit velocity of dof k."""
    turn = wp.vec3(c.jac[b, 3, k], c.jac[b, 4, k], c.jac[b, 5, k])
    return wp.vec3(c.jac[b, 0, k], c.jac[b, 1, k], c.jac[b, 2, k]) + wp.cross(turn, r)


@wp.kernel(enable_backward=False)
def assemble(dirty: wp.array(dtype=wp.int32), bit: int, c: Pose0, m: Masses, inertia_out: wp.array3d(dtype=wp.float32)):
    """The lower triangle of M."""
    i, row, column = wp.tid()
    if (dirty[i] & bit) == 0 or column > row:
        return
    total = c.extra[row, column]
    if row == column:
        total = total + m.armature[i % m.armature.shape[0], row]
    for b in range(1, c.xmat.shape[0]):
        mass = m.mass[i % m.mass.shape[0], b]
        r = c.xmat[b] * m.ipos[i % m.ipos.shape[0], b]
        total = total + mass * wp.dot(com_column(c, b, row, r), com_column(c, b, column, r))
        one = wp.vec3(c.jac[b, 3, row], c.jac[b, 4, row], c.jac[b, 5, row])
        two = wp.vec3(c.jac[b, 3, column], c.jac[b, 4, column], c.jac[b, 5, column])
        wxyz = m.iquat[i % m.iquat.shape[0], b]
        # Warp's own quaternions are x, y, z, w
        axes = c.xmat[b] * wp.quat_to_matrix(wp.quat(wxyz[1], wxyz[2], wxyz[3], wxyz[0]))
        turned = wp.cw_mul(m.inertia[i % m.inertia.shape[0], b], wp.transpose(axes) * two)
        total = total + wp.dot(wp.transpose(axes) * one, turned)
    inertia_out[i, row, column] = total


@wp.kernel(enable_backward=False)
def factor(dirty: wp.array(dtype=wp.int32), bit: int, inertia: wp.array3d(dtype=wp.float32)):
    """M = L L', in place."""
    i = wp.tid()
    if (dirty[i] & bit) == 0:
        return
    for j in range(inertia.shape[1]):
        pivot = inertia[i, j, j]
        for k in range(j):
            pivot = pivot - inertia[i, j, k] * inertia[i, j, k]
        inertia[i, j, j] = wp.sqrt(pivot)
        for row in range(j + 1, inertia.shape[1]):
            total = inertia[i, row, j]
            for k in range(j):
                total = total - inertia[i, row, k] * inertia[i, j, k]
            inertia[i, row, j] = total / inertia[i, j, j]


@wp.kernel(enable_backward=False)
def invert(
    dirty: wp.array(dtype=wp.int32),
    bit: int,
    lower: wp.array3d(dtype=wp.float32),
    # outputs
    inverse_out: wp.array3d(dtype=wp.float32),
):
    """A column of L^-1."""
    i, column = wp.tid()
    if (dirty[i] & bit) == 0:
        return
    for row in range(lower.shape[1]):
        total = float(0.0)
        if row == column:
            total = 1.0
        for k in range(column, row):
            total = total - lower[i, row, k] * inverse_out[i, k, column]
        if row < column:
            inverse_out[i, row, column] = 0.0
        else:
            inverse_out[i, row, column] = total / lower[i, row, row]


@wp.kernel(enable_backward=False)
def weigh_dofs(
    dirty: wp.array(dtype=wp.int32),
    bit: int,
    c: Pose0,
    inverse: wp.array3d(dtype=wp.float32),
    # outputs
    dof_invweight0_out: wp.array2d(dtype=wp.float32),
):
    """The mean of diag(M^-1) = diag(L^-T L^-1) over a joint's dofs."""
    i, dof = wp.tid()
    if (dirty[i] & bit) == 0:
        return
    total = float(0.0)
    for k in range(c.first[dof], c.first[dof] + c.count[dof]):
        for row in range(k, inverse.shape[1]):
            total = total + inverse[i, row, k] * inverse[i, row, k]
    dof_invweight0_out[i, dof] = total / float(c.count[dof])


@wp.kernel(enable_backward=False)
def weigh_bodies(
    dirty: wp.array(dtype=wp.int32),
    bit: int,
    c: Pose0,
    m: Masses,
    inverse: wp.array3d(dtype=wp.float32),
    # outputs
    body_subtreemass_out: wp.array2d(dtype=wp.float32),
    body_invweight0_out: wp.array2d(dtype=wp.vec2),
):
    """The mean of diag(J M^-1 J') for a body's center of mass and for its rotation; the mass from it down."""
    i, b = wp.tid()
    if (dirty[i] & bit) == 0:
        return
    weight = float(0.0)
    for k in range(b, b + c.subtree[b]):
        weight = weight + m.mass[i % m.mass.shape[0], k]
    body_subtreemass_out[i, b] = weight
    r = c.xmat[b] * m.ipos[i % m.ipos.shape[0], b]
    moves = float(0.0)
    turns = float(0.0)
    for row in range(inverse.shape[1]):
        move = wp.vec3(0.0, 0.0, 0.0)
        turn = wp.vec3(0.0, 0.0, 0.0)
        for k in range(row + 1):
            move = move + inverse[i, row, k] * com_column(c, b, k, r)
            turn = turn + inverse[i, row, k] * wp.vec3(c.jac[b, 3, k], c.jac[b, 4, k], c.jac[b, 5, k])
        moves = moves + wp.dot(move, move) / 3.0
        turns = turns + wp.dot(turn, turn) / 3.0
    if c.moving[b] == 0:
        moves = 0.0
        turns = 0.0
    body_invweight0_out[i, b] = wp.vec2(moves, turns)


def make_pose0(model: mujoco.MjModel, device: str) -> Any:
    """Compute positions and axes at qpos0, on ``device``."""
    import mujoco

    own = copy.copy(model)
    data = mujoco.MjData(own)
    data.qpos[:] = own.qpos0
    mujoco.mj_forward(own, data)
    nb, nv = own.nbody, own.nv
    jac = np.zeros((nb, 6, nv))
    total = np.diag(own.dof_armature)
    for b in range(1, nb):
        mujoco.mj_jac(own, data, jac[b, :3], jac[b, 3:], data.xpos[b], b)
        move, turn = np.zeros((3, nv)), np.zeros((3, nv))
        mujoco.mj_jacBodyCom(own, data, move, turn, b)
        axes = data.ximat[b].reshape(3, 3)
        total = total + own.body_mass[b] * move.T @ move
        total = total + turn.T @ axes @ np.diag(own.body_inertia[b]) @ axes.T @ turn
    full = np.zeros((nv, nv))
    mujoco.mj_fullM(own, data, full)
    joints = own.dof_jntid
    sizes = {int(mujoco.mjtJoint.mjJNT_FREE): 3, int(mujoco.mjtJoint.mjJNT_BALL): 3}
    count = np.array([sizes.get(int(own.jnt_type[joint]), 1) for joint in joints])
    from_start = np.arange(nv) - own.jnt_dofadr[joints]
    first = own.jnt_dofadr[joints] + from_start // count * count
    last = np.arange(nb)
    for b in range(nb - 1, 0, -1):
        last[own.body_parentid[b]] = max(last[own.body_parentid[b]], last[b])
    pose = Pose0()
    pose.jac = wp.array(jac, dtype=wp.float32, device=device)
    pose.xmat = wp.array(data.xmat.reshape(nb, 3, 3), dtype=wp.mat33, device=device)
    pose.extra = wp.array(np.tril(full - total), dtype=wp.float32, device=device)
    pose.first = wp.array(first, dtype=wp.int32, device=device)
    pose.count = wp.array(count, dtype=wp.int32, device=device)
    pose.moving = wp.array(own.body_weldid != 0, dtype=wp.int32, device=device)
    pose.subtree = wp.array(last - np.arange(nb) + 1, dtype=wp.int32, device=device)
    return pose


class DerivedConstants:
    """Recomputes body_subtreemass, body_invweight0 and dof_invweight0 of MuJoCo Warp's model; capturable.

    Raises:
        ValueError: the model has tendons or flexes, which have constants beyond these.
    """

    def __init__(self, model: mujoco.MjModel, warp_model: Any, num_envs: int, device: str):
        if model.ntendon or model.nflex:
            raise ValueError(
                "engine='mujoco_warp': masses, inertias and armature of a model with tendons or flexes can be drawn at "
                "mode=startup only; use that, or engine=mujoco"
            )
        self._pose, self._model, self._num_envs, self._device = make_pose0(model, device), warp_model, num_envs, device
        masses = self._masses = Masses()
        masses.mass, masses.inertia = warp_model.body_mass, warp_model.body_inertia
        masses.ipos, masses.iquat = warp_model.body_ipos, warp_model.body_iquat
        masses.armature = warp_model.dof_armature
        nv = self._nv = model.nv
        self._nbody = model.nbody
        self._lower, self._inverse = (wp.zeros((num_envs, nv, nv), dtype=wp.float32, device=device) for _ in range(2))

    def recompute(self, dirty: wp.array, bit: int) -> None:
        """Recompute the constants of the worlds with ``bit`` in ``dirty`` (num_envs,)."""
        n, nv, nb, device = self._num_envs, self._nv, self._nbody, self._device
        c, m, lower, inverse = self._pose, self._masses, self._lower, self._inverse
        own = self._model
        wp.launch(assemble, dim=(n, nv, nv), inputs=[dirty, bit, c, m], outputs=[lower], device=device)
        wp.launch(factor, dim=n, inputs=[dirty, bit, lower], device=device)
        wp.launch(invert, dim=(n, nv), inputs=[dirty, bit, lower], outputs=[inverse], device=device)
        wp.launch(weigh_dofs, dim=(n, nv), inputs=[dirty, bit, c, inverse], outputs=[own.dof_invweight0], device=device)
        wp.launch(
            weigh_bodies,
            dim=(n, nb),
            inputs=[dirty, bit, c, m, inverse],
            outputs=[own.body_subtreemass, own.body_invweight0],
            device=device,
        )

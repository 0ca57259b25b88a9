"""Shapes of a robot that was read: those that are seen and those that touch, and boxes and capsules for meshes.

Masses and inertias stay those of the source, even if its shapes change.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from robot_rl.errors import UserError
from robot_rl.robots.parts import Source, remove_all

VISUAL, COLLISION = 2, 3
STRETCH = 1.5
"""A box longer than so many times its other sides becomes a capsule."""


def compile_source(source: Source, *, without_meshes: bool = False) -> Any:
    """Compile the robot that was read, or a copy of it without meshes.

    Raises:
        UserError: the model does not compile; the line is MuJoCo's.
    """
    spec = source.spec.copy() if without_meshes else source.spec
    if without_meshes:
        _drop_meshes(spec)
    try:
        return spec.compile()
    except ValueError as error:
        raise UserError("from", source.path, " ".join(str(error).split())) from None


def _drop_meshes(spec: Any) -> int:
    count = remove_all(spec, [geom for geom in spec.geoms if geom.meshname])
    remove_all(spec, spec.meshes)
    return count


def state_inertias(spec: Any, model: Any) -> None:
    """Write every body's inertia, so that shapes may be replaced without a change of dynamics."""
    import mujoco

    for body in spec.bodies:
        if body.name == "world":
            continue
        one = model.body(body.name)
        body.explicitinertial = True
        body.mass, body.ipos, body.iquat = float(one.mass[0]), one.ipos, one.iquat
        if not body.mass:  # Its center of mass is of no use, and MuJoCo compiles an empty link's to its offset.
            body.ipos, body.iquat = np.zeros(3), [1.0, 0.0, 0.0, 0.0]
        body.ialt.type = mujoco.mjtOrientation.mjORIENTATION_QUAT
        # A file has six digits: the triangle inequality must also hold after rounding.
        inertia = np.array(one.inertia)
        most = inertia.sum() - inertia.max()
        body.inertia = np.minimum(inertia, most * (1.0 - 1e-5))
        body.fullinertia = [math.nan, 0, 0, 0, 0, 0]
    compiler = spec.compiler
    compiler.inertiafromgeom, compiler.inertiagrouprange = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_AUTO, [0, 5]
    compiler.settotalmass = -1.0


def replace_shapes(source: Source, model: Any, collision: str) -> None:
    """Divide shapes into those that are seen and those that touch the ground, and replace meshes."""
    spec, notes = source.spec, source.notes
    touching = [bool(geom.contype or geom.conaffinity) for geom in spec.geoms]
    if collision == "boxes":
        touching = [touches for touches, geom in zip(touching, spec.geoms, strict=True) if not geom.meshname]
        if count := _drop_meshes(spec):
            notes.append(f"shapes: {count} meshes are replaced by boxes of the inertia of bodies without another shape")
    elif collision == "primitives":
        meshes = [(k, geom) for k, geom in enumerate(spec.geoms) if geom.meshname]
        for k, geom in meshes:
            _fit(geom, model, k)
        remove_all(spec, spec.meshes)
        if meshes:
            notes.append(f"shapes: {len(meshes)} meshes are replaced by boxes and capsules around them")
    for touches, geom in zip(touching, spec.geoms, strict=True):
        geom.group, geom.contype, geom.conaffinity = (COLLISION, 0, 1) if touches else (VISUAL, 0, 0)
        geom.classname = spec.default
    for body in spec.bodies:
        if body.name != "world" and not any(geom.group == VISUAL for geom in body.geoms):
            _add_inertia_box(spec.default, body, group=VISUAL)
    if not any(touching):
        for body in spec.bodies:
            if body.name != "world" and body.joints:
                _add_inertia_box(spec.default, body, group=COLLISION)
        notes.append("shapes: no shape touched anything; boxes of the bodies' inertia do")


def _add_inertia_box(default: Any, body: Any, *, group: int) -> None:
    """Add the box of uniform density with a body's mass and principal moments of inertia."""
    import mujoco

    inertia = np.array(body.inertia)
    squares = 1.5 * (inertia.sum() - 2.0 * inertia) / max(float(body.mass), 1e-9)
    half = [float(max(0.004, math.sqrt(max(square, 0.0)))) for square in squares]
    placed = {"type": mujoco.mjtGeom.mjGEOM_BOX, "size": half, "pos": body.ipos, "quat": body.iquat}
    body.add_geom(default, **placed, group=group, contype=0, conaffinity=int(group == COLLISION))


def _fit(geom: Any, model: Any, index: int) -> None:
    """Make a mesh's shape the box around it, a capsule if it is long, or a cylinder if it turns as one."""
    import mujoco

    turn = np.zeros(9)
    mujoco.mju_quat2Mat(turn, model.geom_quat[index])
    center, half = model.geom_aabb[index, :3], np.maximum(model.geom_aabb[index, 3:], 0.002)
    pos, quat = model.geom_pos[index] + turn.reshape(3, 3) @ center, model.geom_quat[index].copy()
    longest = int(np.argmax(half))
    others = np.delete(half, longest)
    geom.meshname = ""
    geom.fromto = [math.nan, 0, 0, 0, 0, 0]
    geom.alt.type = mujoco.mjtOrientation.mjORIENTATION_QUAT
    if geom.frame is not None:  # What was compiled is in the frame of the body.
        geom.set_frame(geom.parent.add_frame())
    if (wheel := round_about_joint(model, index)) is not None:
        radius, low, high, axis, anchor = wheel
        geom.type, geom.size = mujoco.mjtGeom.mjGEOM_CYLINDER, [radius, max(0.5 * (high - low), 0.002), 0.0]
        pos, quat = anchor + 0.5 * (low + high) * axis, np.zeros(4)
        mujoco.mju_quatZ2Vec(quat, axis)
    elif half[longest] > STRETCH * others.max() and others.max() < STRETCH * others.min():
        radius = float(others.mean())
        to_z = np.array([[0.70710678, 0.0, -0.70710678, 0.0], [0.70710678, 0.70710678, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
        turned = np.zeros(4)
        mujoco.mju_mulQuat(turned, quat, to_z[longest])
        geom.type, geom.size, quat = mujoco.mjtGeom.mjGEOM_CAPSULE, [radius, float(half[longest]) - radius, 0.0], turned
    else:
        geom.type, geom.size = mujoco.mjtGeom.mjGEOM_BOX, half.tolist()
    geom.pos, geom.quat = pos, quat


def round_about_joint(model: Any, geom: int) -> tuple[float, float, float, np.ndarray, np.ndarray] | None:
    """Return (radius, low, high, axis, anchor) of a shape that is round about the endless hinge of its body.

    low and high are its ends along the axis from the anchor [m], all in the frame of the body. A mesh is round if it
    reaches as far in every direction across the axis, to 5 %. A sphere or a capsule is sure to be a wheel only as the
    single shape of its body that touches, centered on the axis. None for a shape that is not round or does not turn.
    """
    import mujoco

    kinds, kind = mujoco.mjtGeom, int(model.geom_type[geom])
    body, mesh = int(model.geom_bodyid[geom]), int(model.geom_dataid[geom])
    joint = int(model.body_jntadr[body])
    is_hinge = model.body_jntnum[body] == 1 and model.jnt_type[joint] == int(mujoco.mjtJoint.mjJNT_HINGE)
    if not is_hinge or model.jnt_limited[joint]:
        return None
    axis, anchor = model.jnt_axis[joint], model.jnt_pos[joint]
    turn = np.zeros(9)
    mujoco.mju_quat2Mat(turn, model.geom_quat[geom])
    turn, pos = turn.reshape(3, 3), model.geom_pos[geom] - anchor
    if kind in (int(kinds.mjGEOM_CYLINDER), int(kinds.mjGEOM_SPHERE), int(kinds.mjGEOM_CAPSULE)):
        is_cylinder, is_sphere = kind == int(kinds.mjGEOM_CYLINDER), kind == int(kinds.mjGEOM_SPHERE)
        radius, half = (float(value) for value in model.geom_size[geom, :2])
        half = half if is_cylinder else radius if is_sphere else half + radius
        along = float(pos @ axis)
        aside = float(np.linalg.norm(pos - along * axis))
        is_round = (is_sphere or abs(float(turn[:, 2] @ axis)) > 0.99) and aside < 0.05 * radius
        is_single = is_cylinder or np.sum(model.geom_conaffinity[model.geom_bodyid == body] != 0) == 1
        return (radius, along - half, along + half, axis, anchor) if is_round and is_single else None
    if kind != int(kinds.mjGEOM_MESH):
        return None
    first = int(model.mesh_vertadr[mesh])
    points = model.mesh_vert[first : first + int(model.mesh_vertnum[mesh])] @ turn.T + pos
    across = np.linalg.svd(axis[None])[2][1:]
    angles = np.linspace(0.0, 2.0 * math.pi, 32, endpoint=False)
    reach = (points @ across.T @ np.array([np.cos(angles), np.sin(angles)])).max(0)
    along = points @ axis
    if reach.max() - reach.min() > 0.05 * reach.mean():
        return None
    return float(reach.mean()), float(along.min()), float(along.max()), axis, anchor

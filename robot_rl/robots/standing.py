"""Standing of a drafted robot: turned as its source is, and whether it holds its default pose on a floor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from robot_rl_deploy.plausible import ONE_DEGREE, STIFF_DAMPING_S

from robot_rl.robots.parts import Draft, Source, rounded

LEVEL = 0.05
"""A base that leans by less stands level [rad]."""
UPRIGHT = math.pi / 4
"""A base that leans by less has its own up and its own heading; it is turned about the vertical as it likes [rad]."""


def turn_base(source: Source, model: Any) -> tuple[float, ...]:
    """Turn the contents of a floating base so that it stands, with the base itself not turned, as in its source.

    In robots of this project the base is level in the default pose. That of the source is turned by its first keyframe,
    else by its body. A turn about the vertical only, as of its place in a scene, is omitted.

    Args:
        source: the robot that was read; shapes and inertias are those of the model.
        model: the source, compiled.

    Returns:
        The rotation of its elements, a quaternion w x y z.
    """
    import mujoco

    level = (1.0, 0.0, 0.0, 0.0)
    if source.base is None:
        return level
    body, own = source.spec.body(source.base), model.body(source.base)
    quat = np.array(source.turned.get(source.base, own.quat), dtype=float)
    mujoco.mju_normalize4(quat)
    body.set_frame(source.spec.worldbody.add_frame())
    body.pos, body.quat, body.alt.type = own.pos, level, mujoco.mjtOrientation.mjORIENTATION_QUAT
    turn = np.zeros(9)
    mujoco.mju_quat2Mat(turn, quat)
    turn = turn.reshape(3, 3)
    lean = math.acos(min(1.0, max(-1.0, float(turn[2, 2]))))
    if lean < LEVEL:
        return level
    if lean < UPRIGHT:
        heading = 0.5 * math.atan2(turn[1, 0], turn[0, 0])
        back, straight = np.array([math.cos(heading), 0.0, 0.0, -math.sin(heading)]), np.zeros(4)
        mujoco.mju_mulQuat(straight, back, quat)
        quat = straight
    place, inertia = np.zeros(3), np.zeros(4)
    mujoco.mju_rotVecQuat(place, body.ipos, quat)
    mujoco.mju_mulQuat(inertia, quat, body.iquat)
    body.ipos, body.iquat = place, inertia
    inside = [*body.bodies, *body.geoms, *body.sites, *body.frames]
    frame = body.add_frame(quat=quat)
    for element in inside:
        if element.frame is None:
            element.set_frame(frame)
    source.notes.append(f"base: leans by {math.degrees(lean):.0f} degrees in the file; '{source.base}' is level here")
    return tuple(float(value) for value in quat)


def settle(draft: Draft, source: Source) -> None:
    """Let a floating robot stand on a floor in its default pose; stiffen it if it sinks far, and say how far.

    One with three feet or more is also stiffened if it falls, because soft legs do not bear it.
    """
    if draft.base is None:
        return
    sunk = tilt = math.inf
    before = {name: dict(joint) for name, joint in draft.joints.items()}
    for _ in range(4):
        sunk, tilt = _stand(draft, source)
        if (sunk < 0.1 * draft.height and tilt <= 0.5) or (tilt > 0.5 and len(draft.feet) < 3):
            break
        for name, joint in draft.joints.items():
            kp, kd = 2.0 * joint["kp"], math.sqrt(2.0) * joint["kd"]
            if not kp or (kp * ONE_DEGREE > joint["effort_limit"] and kd < STIFF_DAMPING_S * kp):
                continue  # A wheel holds no position; a bundle with such a gain would be refused.
            joint["kp"], joint["kd"] = rounded(kp), rounded(kd)
            if name in source.limits and source.limits[name].effort:
                joint["action_scale"] = rounded(0.5 * joint["action_scale"])
    else:
        if tilt > 0.5:
            draft.joints |= before
        else:
            tilt = 0.0
    if abs(sunk) > draft.height:
        way = f"sinks by {100 * sunk:.1f} cm" if sunk > 0 else f"rises by {-100 * sunk:.1f} cm"
        way = way if math.isfinite(sunk) else "does not stay at a finite place"
        line = (
            f"base '{draft.base}' {way} in a second in its default pose, with a height of {100 * draft.height:.1f} cm"
        )
        draft.problems.append(f"standing: {line}; check its shapes, masses and limits in the file")
    elif tilt > 0.5:
        draft.notes.append("standing: it falls within a second in its default pose; a policy has to balance it")
    else:
        draft.notes.append(f"standing: it holds its default pose and sinks by {100 * sunk:.1f} cm with its gains")


def _stand(draft: Draft, source: Source) -> tuple[float, float]:
    """Return how far the base sinks in a second [m], and how far it tilts [rad]."""
    import mujoco

    spec = source.spec.copy()
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1], contype=1, conaffinity=0)
    spec.option.timestep = 0.001
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    model = spec.compile()
    data = mujoco.MjData(model)
    base = int(model.jnt_qposadr[model.body_jntadr[model.body(draft.base).id]])
    ids = [model.joint(name).id for name in draft.joints]
    at, dofs = model.jnt_qposadr[ids], model.jnt_dofadr[ids]
    column = {
        key: np.array([joint[key] for joint in draft.joints.values()])
        for key in ("default_pos", "kp", "kd", "effort_limit")
    }
    data.qpos[at] = column["default_pos"]
    data.qpos[base : base + 7] = [0, 0, draft.height, 1, 0, 0, 0]
    for _ in range(1000):
        effort = column["kp"] * (column["default_pos"] - data.qpos[at]) - column["kd"] * data.qvel[dofs]
        data.qfrc_applied[dofs] = np.clip(effort, -column["effort_limit"], column["effort_limit"])
        mujoco.mj_step(model, data)
        if not np.isfinite(data.qpos).all():
            return math.inf, math.pi
    up = 1.0 - 2.0 * (data.qpos[base + 4] ** 2 + data.qpos[base + 5] ** 2)
    return draft.height - float(data.qpos[base + 2]), math.acos(min(1.0, max(-1.0, float(up))))

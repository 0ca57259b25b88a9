"""Motors of joints: read from a model's actuators, with limits and gains that are guessed if it has none."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from robot_rl_deploy.plausible import EFFORT_MARGIN, MAX_SPEED

from robot_rl.errors import UserError
from robot_rl.robots.parts import Draft, Gains, Limits, Reasons, Source, rounded

if TYPE_CHECKING:
    from robot_rl.robots.guess import Pose

SCALE = 0.25
"""Offset of a joint's target for an action of 1 [rad or m], if its effort limit does not say more."""
SPEED = 20.0
"""Speed limit of a joint without one in the source [rad/s or m/s]."""
PLACEHOLDER = 10.0
"""A limit of a hinge larger than so many times the effort that lifts the whole robot by its size is a placeholder."""
WHOLE_EFFORT_AT = 1.0
"""Largest error at which a hinge has its whole effort [rad], if that does not make it faster than `FASTEST`."""
FASTEST = 25.0
"""Natural frequency up to which the effort limit makes a joint stiffer [Hz]."""
FRICTION_ERROR = 0.05
"""Largest error that a joint's dry friction leaves [rad], and of a slide the largest share of its range."""
LEAST_DAMPING = 0.1
"""Least share of the damping that the motor adds, in addition to the joint's damping."""
LOAD_MARGIN = 3.0
"""Effort limit without one in the source, in efforts that hold the default pose."""
LEG_LOAD_MARGIN = 8.0
"""The same of a robot with feet: in a trot two of four carry it, and throw it up. Unitree's Go1 has 8 to 13."""


def note_motors(source: Source) -> list[str]:
    """Take the limits of motors from actuators and joints; return the names of the joints that are driven.

    Several actuators of a joint add up, as their forces do; the joint's own limit is that of their sum. What a tendon
    couples to a driven joint is driven as well: tendons are removed later.

    Raises:
        UserError: an actuator drives a joint that is not there.
    """
    spec, driven = source.spec, {}
    efforts: dict[str, list[float | None]] = {}
    speeds: dict[str, float] = {}
    for actuator in spec.actuators:
        joints = _driven_joints(spec, actuator)
        if spec.joints and any(joint is None for joint, _ in joints):
            line = f"an actuator of '{actuator.target}' drives a joint that is not there"
            raise UserError("from", source.path, f"{line}; correct its name")
        joints = [(joint, coefficient) for joint, coefficient in joints if joint is not None]
        driven |= dict.fromkeys(joint.name for joint, _ in joints)
        for joint, coefficient in joints[:1]:
            effort, speed = _limits(actuator)
            efforts.setdefault(joint.name, []).append(None if effort is None else effort * coefficient)
            if speed is not None:
                speeds[joint.name] = speed / coefficient
    for name, found in efforts.items():
        known = [effort for effort in found if effort is not None]
        if known:
            source.limits.setdefault(name, Limits()).effort = sum(known)
        if len(found) == 1 and name in speeds:
            source.limits.setdefault(name, Limits()).velocity = speeds[name]
        if len(found) > 1:
            total = f"{sum(known):g}, the sum of those with a limit" if known else "none"
            source.notes.append(f"effort limit: joint '{name}' has {len(found)} actuators; its limit is {total}")
    for joint in spec.joints:
        if own := _largest(joint.actfrcrange, joint.actfrclimited):
            limits = source.limits.setdefault(joint.name, Limits())
            limits.effort = min(own, limits.effort or own)
    for tendon in spec.tendons:
        names = [joint.name for joint, _ in _wrapped(tendon) if joint is not None]
        driven |= dict.fromkeys(names) if driven.keys() & set(names) else {}
    return list(driven)


def _driven_joints(spec: Any, actuator: Any) -> list[tuple[Any, float]]:
    """Return the joints that an actuator drives, those of a fixed tendon with their coefficients; others drive none.

    None stands for a joint that is not there.
    """
    import mujoco

    transmission = mujoco.mjtTrn
    if actuator.trntype in (transmission.mjTRN_JOINT, transmission.mjTRN_JOINTINPARENT):
        return [(spec.joint(actuator.target), 1.0)]
    if actuator.trntype != transmission.mjTRN_TENDON or (tendon := spec.tendon(actuator.target)) is None:
        return []
    return _wrapped(tendon)


def _wrapped(tendon: Any) -> list[tuple[Any, float]]:
    """Return the joints of a fixed tendon, with their coefficients; those of another one are none."""
    import mujoco

    wraps = [wrap for wrap in tendon.path if wrap.type == mujoco.mjtWrap.mjWRAP_JOINT and wrap.coef]
    return [(wrap.target, abs(float(wrap.coef))) for wrap in wraps]


def _limits(actuator: Any) -> tuple[float | None, float | None]:
    """Return the largest effort [N m or N] and speed [rad/s or m/s] of an actuator at its joint, None without one.

    The control of a motor is an effort, that of a velocity servo a speed, and that of a position servo neither.
    """
    import mujoco

    gear = abs(float(actuator.gear[0]))
    effort, speed = _largest(actuator.forcerange, actuator.forcelimited), None
    control = _largest(actuator.ctrlrange, actuator.ctrllimited)
    if control and gear and actuator.gaintype == mujoco.mjtGain.mjGAIN_FIXED:
        gain = abs(float(actuator.gainprm[0]))
        bias = [float(value) for value in actuator.biasprm[:3]]
        if actuator.biastype == mujoco.mjtBias.mjBIAS_NONE and gain:
            effort = min(control * gain, effort or control * gain)
        is_servo = actuator.biastype == mujoco.mjtBias.mjBIAS_AFFINE and actuator.dyntype == mujoco.mjtDyn.mjDYN_NONE
        if is_servo and not bias[1] and bias[2]:
            speed = control * gain / abs(bias[2]) / gear
    return (effort * gear if effort else None), speed


def _largest(bounds: Any, limited: Any) -> float | None:
    """Return the larger magnitude of a range; None if it is empty or does not count."""
    import mujoco

    largest = max(abs(float(bounds[0])), abs(float(bounds[1])))
    return largest if largest and limited != mujoco.mjtLimited.mjLIMITED_FALSE else None


def guess_limits(draft: Draft, source: Source, pose: Pose) -> tuple[dict[str, Limits], Reasons]:
    """Guess the limits of joints: the file's, else those of the other side; a side that differs is reported.

    A limit in the file that no motor of such a robot has is a placeholder, and counts as none.
    """
    reasons = _drop_placeholders(draft, source, pose)
    limits = {name: replace(source.limits.get(name, Limits())) for name in draft.joints}
    limits |= {name: Limits(0.0, limits[name].velocity) for name in (*source.passive, *source.coupled)}
    taken: dict[str, list[str]] = {"effort": [], "velocity": []}
    for name, joint in draft.joints.items():
        partner = joint.get("mirror") or name
        for key, names in taken.items():
            own, other = getattr(limits[name], key), getattr(limits[partner], key)
            if own is None and other:
                setattr(limits[name], key, other)
                names.append(name)
            elif own and other and name < partner and abs(own - other) > 1e-3 * max(own, other):
                line = f"'{name}' has {own:g} and '{partner}' {other:g}, as in the file"
                reasons.append(f"{key} limit: two sides differ: {line}; correct one that is wrong")
    for key, names in taken.items():
        if names:
            reasons.append(f"{key} limit: the file has none for {', '.join(names)}; that of the other side is there")
    return limits, reasons


def _drop_placeholders(draft: Draft, source: Source, pose: Pose) -> Reasons:
    """Remove limits that no motor has: an effort that lifts the robot many times, and a speed beyond all; say which."""
    model, found = pose.model, []
    most = PLACEHOLDER * 9.81 * float(model.body_mass.sum()) * 2.0 * float(model.stat.extent)
    for name, limits in source.limits.items():
        is_hinge = name in draft.joints and pose.data.joint(name).qpos.size == 1 and model.joint(name).type[0] == 3
        if is_hinge and limits.effort is not None and limits.effort > most:
            found.append(f"{name} ({limits.effort:g})")
            limits.effort = None
        if limits.velocity is not None and limits.velocity > MAX_SPEED:
            limits.velocity = None
    if not found:
        return []
    line = f"effort limit: more than {most:.4g} N m, which no motor of a robot of this mass and size has"
    return [f"{line}, is taken as a placeholder: {', '.join(found)}"]


def guess_gains(
    draft: Draft, pose: Pose, limits: dict[str, Limits], gains: Gains
) -> tuple[dict[str, dict[str, float]], Reasons]:
    """Guess limits without one in the file, and gains, by joint.

    The stiffness is I (2 pi f)^2 and the damping 2 d I (2 pi f), less the joint's own, for the natural frequency f and
    the damping ratio d, and the inertia I that the joint moves: the inverse of its element on the diagonal of the
    inverse mass matrix in the default pose. A joint that would give way by more than 0.1 rad under its load is stiffer,
    and damped alike; so is one whose own damping or dry friction would keep it from following, and one whose motor is
    strong for the little that it moves.
    """
    from robot_rl_envs.entity.robot_checks import moved_inertia

    model, data, found, why = pose.model, pose.data, {}, {}
    moved = moved_inertia(model, data)
    loads = np.maximum(np.abs(data.qfrc_bias), _standing_load(draft, pose))
    margin = LEG_LOAD_MARGIN if draft.feet else LOAD_MARGIN
    omega = 2.0 * math.pi * gains.frequency
    for name in draft.joints:
        dof = int(model.joint(name).dofadr[0])
        inertia, weight, known = float(moved[dof]), float(loads[dof]), limits[name].effort
        effort = max(margin * weight, margin * inertia * omega**2 * 0.1) if known is None else known
        own = model.joint(name)
        is_hinge, reach = own.type[0] == 3, float(np.ptp(own.range)) if own.limited[0] else 0.0
        damping, friction = float(model.dof_damping[dof]), float(model.dof_frictionloss[dof])
        error = FRICTION_ERROR * (1.0 if is_hinge or not reach else reach)
        strong = known if is_hinge else None
        rules = _stiffnesses(gains, inertia, load=weight, damping=damping, friction=friction / error, strong=strong)
        if reach > 0:  # With less the strong motor of a light link would never be used, and its export be refused.
            rules["effort limit and narrow range"] = effort / (0.9 * EFFORT_MARGIN * reach)
        why[name], kp = max(rules.items(), key=lambda rule: rule[1])
        wanted = 2.0 * gains.damping * math.sqrt(kp * inertia)
        kd = max(LEAST_DAMPING * wanted, wanted - damping)
        # An action of 1 takes a quarter of the effort, if that is known; an arm also has to move far.
        scale = 0.25 * known / kp if known and (draft.base or kp * SCALE < 0.25 * known) else SCALE
        scale = min(scale, 0.5 * reach or 0.5 * math.pi)
        speed = limits[name].velocity or SPEED
        if name in draft.wheels:  # Its target is a speed: an error of a quarter of the largest takes all its effort.
            grip = 9.81 * float(model.body_mass.sum()) * draft.wheels[name] / len(draft.wheels)
            effort, scale = (max(effort, grip) if known is None else known), 0.25 * speed
            kp, kd = 0.0, effort / scale
        elif known == 0.0:
            kp, kd = 0.0, 0.0
        fields = {"effort_limit": effort, "velocity_limit": speed, "kp": kp, "kd": kd, "action_scale": scale}
        found[name] = {key: rounded(value) for key, value in fields.items()}
    _share(draft, limits, found)
    reasons = []
    for key, rule in (("effort", f"{margin:g} times what holds the default pose"), ("velocity", f"{SPEED:g}")):
        names = [name for name in found if getattr(limits[name], key) is None and found[name]["effort_limit"]]
        if names:
            which = "all joints" if len(names) == len(found) else ", ".join(names)
            reasons.append(f"{key} limit: the file has none for {which}; guessed as {rule}; put the motor's there")
    if any(joint["kp"] for joint in found.values()):
        line = f"{gains.frequency:g} Hz and a damping ratio of {gains.damping:g}"
        reasons.append(f"gains: {line} with the inertia of each joint" + _stiffened(found, why))
    return found, reasons


def _stiffnesses(
    gains: Gains, inertia: float, *, load: float, damping: float, friction: float, strong: float | None
) -> dict[str, float]:
    """Return the stiffness that a joint needs, by the reason; that of its inertia has an empty one.

    Args:
        gains: natural frequency and damping ratio.
        inertia: that it moves.
        load: that it carries.
        damping: its own.
        friction: its dry friction over the error that may remain.
        strong: the known effort limit of a hinge.
    """
    omega = 2.0 * math.pi * gains.frequency
    rules = {
        "": inertia * omega**2,
        "load": load / 0.1,
        # Its own damping alone may take as long to follow as the gains would without it.
        "damping": damping * omega / (2.0 * gains.damping),
        "dry friction": friction,
    }
    if strong:
        rules["strong motor"] = min(strong / WHOLE_EFFORT_AT, inertia * (2.0 * math.pi * FASTEST) ** 2)
    return rules


def _stiffened(found: dict[str, dict[str, float]], why: dict[str, str]) -> str:
    """Return the end of the note on gains: the joints that are stiffer than their inertia asks for, by the reason."""
    groups: dict[str, list[str]] = {}
    for name, joint in found.items():
        if joint["kp"] and why[name]:
            groups.setdefault(why[name], []).append(name)
    driven = sum(bool(joint["kp"]) for joint in found.values())
    parts = [
        f"{'all joints' if len(names) == driven else ', '.join(names)} ({reason})" for reason, names in groups.items()
    ]
    return f"; stiffer than that: {'; '.join(parts)}" if parts else ""


def _standing_load(draft: Draft, pose: Pose) -> np.ndarray:
    """Return the load of feet's and wheels' shares of the weight on each degree of freedom (nv,) [N m or N]."""
    model, load = pose.model, np.zeros(pose.model.nv)
    places = [(int(model.geom(foot).bodyid[0]), pose.data.geom(foot).xpos) for foot in draft.feet]
    wheels = [int(model.joint(name).bodyid[0]) for name in draft.wheels]
    places += [(body, pose.data.xpos[body]) for body in wheels]
    weight = 9.81 * float(model.body_mass.sum()) / max(1, len(places))
    for body, point in places:
        jacobian = np.zeros((3, model.nv))
        pose.mj.mj_jac(model, pose.data, jacobian, None, point, body)
        load += np.abs(weight * jacobian[2])
    return load


def _share(draft: Draft, limits: dict[str, Limits], found: dict[str, dict[str, float]]) -> None:
    """Give both of a pair the mean of gains and guessed limits, which differ by small asymmetries of the model."""
    for name, joint in found.items():
        partner = found.get(draft.joints[name].get("mirror") or name, joint)
        if not (joint["effort_limit"] and partner["effort_limit"]) or bool(joint["kp"]) != bool(partner["kp"]):
            continue  # One is not driven, or only one is a wheel.
        known = [f"{key}_limit" for key in ("effort", "velocity") if getattr(limits[name], key) is not None]
        for key in (key for key in joint if key not in known):
            joint[key] = partner[key] = rounded(0.5 * (joint[key] + partner[key]))

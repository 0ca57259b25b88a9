"""Reads the motors of a model from its actuators: which joints they drive, and their limits."""

from __future__ import annotations

from typing import Any

from robot_rl.errors import UserError
from robot_rl.robots.parts import Limits, Source


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
    """Return the larger magnitude of a range; None where it is empty or does not count."""
    import mujoco

    largest = max(abs(float(bounds[0])), abs(float(bounds[1])))
    return largest if largest and limited != mujoco.mjtLimited.mjLIMITED_FALSE else None

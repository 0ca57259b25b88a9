"""A robot's measured motors as randomization: files of ``robot-rl latency`` and ``robot-rl identify``.

A file is read when the task is made. Then its figures are settings, and the file is not needed again.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from robot_rl_assets.robot import Dynamics, Joint

from robot_rl_envs.actuation import draws
from robot_rl_envs.actuation.latency import read_latency
from robot_rl_envs.term_config import MeasuredEvent
from robot_rl_envs.terms.checks import require

FORMAT, VERSION = "robot_rl.identified", 1
MOST_BYTES = 64 * 2**20
JOINT_VALUES = ("gain", "armature", "damping", "friction")
PREFIX = "identified_"
"""Names of the events that draw around a file's values begin with it."""
DRAWN = {"armature": draws.joint_armature, "friction": draws.joint_friction}
"""Events that multiply a value of every joint."""
GAINS = ("motor_strength", "motor_gains", "explicit_gains", "dc_motor_gains")
REPLACED = (*GAINS, *(fn.func.__name__ for fn in DRAWN.values()))
"""Events of a task that those of an identified robot replace."""


@dataclass(kw_only=True, slots=True)
class Randomize:
    """Randomization that is read from files, and the figures in them.

    Attributes:
        latency_from: A file of ``robot-rl latency``, or a report of ``robot-rl-infer``: the actuators' delay is drawn
            from this measurement, on top of their ``delay_s``. Then its figures are the actuator's
            ``delay_quantiles_s`` and ``jitter_quantiles_s``, and this is empty.
        latency_read: The file that was read; for information, not to be set.
        identified_from: A file of ``robot-rl identify``: the joints move as it says, and the task's events draw around
            that. Then its figures are the fields below, and this is empty.
        identified_read: The file that was read; for information, not to be set.
        gain: Of each joint, in the robot's order: the factor on kp. Empty: 1.
        armature: The same of the armature [kg m^2]. Empty: the model's.
        damping: The same of the viscous damping [N m s/rad]; below 0 it lowers the motor's kd.
        friction: The same of the dry friction [N m].
        gain_range: (lo, hi) of the factor by which a world's kp differs from that, or from the robot's without it.
            Empty: the task's own event.
        armature_range: The same of the armature.
        damping_range: (lo, hi) of the factor on kd.
        friction_range: The same of the dry friction.
    """

    latency_from: str = ""
    latency_read: str = ""
    identified_from: str = ""
    identified_read: str = ""
    gain: tuple[float, ...] = field(default=())
    armature: tuple[float, ...] = field(default=())
    damping: tuple[float, ...] = field(default=())
    friction: tuple[float, ...] = field(default=())
    gain_range: tuple[float, ...] = field(default=())
    armature_range: tuple[float, ...] = field(default=())
    damping_range: tuple[float, ...] = field(default=())
    friction_range: tuple[float, ...] = field(default=())


def apply_measured(task: Any) -> None:
    """Give a task the figures of its files: the delay of its actuator, the dynamics of its joints, and its events.

    Raises:
        ValueError: A file cannot be used, or is of another robot; the line names the setting.
    """
    if task.randomize.latency_from:
        path = task.randomize.latency_from
        delay, jitter = read_latency(path)
        actuator = replace(task.actions.actuator, delay_quantiles_s=delay, jitter_quantiles_s=jitter)
        task.actions = replace(task.actions, actuator=actuator)
        task.randomize = replace(task.randomize, latency_from="", latency_read=path)
    if task.randomize.identified_from:
        _read(task, task.randomize.identified_from)
    if any(getattr(task.randomize, key) for name in JOINT_VALUES for key in (name, f"{name}_range")):
        _apply_identified(task)


def _read(task: Any, path: str) -> None:
    """Put the figures of an identification into a task's settings; those of the fit whose timestep is nearest."""
    where = f"randomize.identified_from={path!r}"
    data = _load(path, where)
    require(not task.robots, "randomize.identified_from", path, "is for a task of one robot")
    robot, fits = task.robot, data.get("training") or [{}]
    if data.get("robot") != robot.name:
        raise ValueError(f"{where}: is of robot {data.get('robot')!r}, the task's is {robot.name!r}")
    try:
        fit = min(fits, key=lambda one: abs(math.log(one["timestep"] / task.sim.timestep)))
        names = list(fit["joints"])
        if names != list(robot.joint_names):
            raise ValueError(f"{where}: its joints are not those of {robot.name!r}")
        rows = [_at_kd(joint, fit["joints"][joint.name]) for joint in robot.joints]
        values = {name: tuple(row[name] for row in rows) for name in JOINT_VALUES}
        ranges = {f"{name}_range": tuple(map(float, fit["ranges"].get(name, ()))) for name in JOINT_VALUES}
        delay = tuple(map(float, fit["delay_s"]))
    except (KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise ValueError(f"{where}: is damaged ({error}); make it again with robot-rl identify") from None
    numbers = [*sum(values.values(), ()), *sum(ranges.values(), ()), *delay]
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"{where}: has a value that is not finite; make it again with robot-rl identify")
    task.randomize = replace(task.randomize, identified_from="", identified_read=path, **values, **ranges)
    actuator = task.actions.actuator
    if delay and not actuator.measured:  # A measured distribution says more than an interval.
        steps = math.ceil(delay[1] / task.sim.timestep) + 1
        actuator = replace(actuator, delay_s=delay, delay_history=max(actuator.delay_history, steps))
        task.actions = replace(task.actions, actuator=actuator)


def _at_kd(joint: Joint, row: dict[str, Any]) -> dict[str, float]:
    """Return a joint's values for the task's kd.

    The fitted damping includes that of the motor, whose strength multiplies the commanded kd as it multiplies kp.
    """
    found = {name: float(row[name]) for name in JOINT_VALUES}
    found["damping"] = max(found["damping"] + (found["gain"] - 1.0) * (joint.kd - float(row["kd"])), -joint.kd)
    return found


def _load(path: str, where: str) -> dict[str, Any]:
    """Return the content of a file of robot-rl identify."""
    file = Path(path).expanduser()
    try:
        if file.stat().st_size > MOST_BYTES:
            raise ValueError(f"{where}: is larger than 64 MiB; name a file of robot-rl identify")
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        line = (error.strerror or "cannot be read").lower()
        raise ValueError(f"{where}: {line}; robot-rl identify makes one") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError(f"{where}: is not JSON; name a file that robot-rl identify wrote") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"{where}: is not a file of robot-rl identify; make one with robot-rl identify <log>")
    if data.get("version") != VERSION:
        raise ValueError(f"{where}: version={data.get('version')!r}, this program reads {VERSION}")
    return data


def _apply_identified(task: Any) -> None:
    """Give the robot the settings' dynamics, and replace the events that draw the same."""
    cfg, robot = task.randomize, task.robot
    require(not task.robots, "randomize.gain", "...", "is for a task of one robot")
    require(not robot.complete, "randomize.gain", "...", f"{robot.name!r} is a whole scene; its model has its motors")
    kind = type(task.actions.actuator).__name__
    require(kind != "ActuatorNet", "randomize.gain", "...", "a learned actuator has its own gains; use another")
    count = len(robot.joints)
    for name in JOINT_VALUES:
        values, limits = getattr(cfg, name), getattr(cfg, f"{name}_range")
        require(len(values) in (0, count), f"randomize.{name}", values, f"must be empty or {count} numbers")
        right = "must be empty or (lo, hi) with 0 < lo <= hi"
        fits = not limits or (len(limits) == 2 and 0 < limits[0] <= limits[1])
        require(fits, f"randomize.{name}_range", limits, right)
    columns = [getattr(cfg, name) or (None,) * count for name in JOINT_VALUES]
    try:
        joints = tuple(
            _with_dynamics(joint, *row) for joint, row in zip(robot.joints, zip(*columns, strict=True), strict=True)
        )
    except ValueError as error:
        raise ValueError(f"randomize: {error}") from None
    task.robot = replace(robot, joints=joints)
    found = {
        f"{PREFIX}{name}": MeasuredEvent(fn, lo=limits[0], hi=limits[1])
        for name, fn in DRAWN.items()
        if (limits := getattr(cfg, f"{name}_range"))
    }
    if (cfg.gain_range or cfg.damping_range) and task.actions.kind == "position":
        found[f"{PREFIX}gain"] = _gains(kind, cfg.gain_range or (1.0, 1.0), cfg.damping_range or (1.0, 1.0))
    drawn = {event.info.name for event in found.values()} | (set(GAINS) if f"{PREFIX}gain" in found else set())
    kept = {name: event for name, event in task.events.items() if event.info.name not in drawn}
    task.events = {**kept, **found}


def _with_dynamics(
    joint: Joint, gain: float | None, armature: float | None, damping: float | None, friction: float | None
) -> Joint:
    dynamics = Dynamics(gain=1.0 if gain is None else gain, armature=armature, damping=damping, friction=friction)
    return replace(joint, dynamics=dynamics)


def _gains(kind: str, kp: tuple[float, ...], kd: tuple[float, ...]) -> MeasuredEvent:
    """Return the event that draws gains around the identified ones, of an actuator of this kind."""
    limits: dict[str, Any] = {"kp_lo": kp[0], "kp_hi": kp[1], "kd_lo": kd[0], "kd_hi": kd[1]}
    if kind == "PositionPd":
        return MeasuredEvent(draws.motor_gains, **limits)
    fn = draws.dc_motor_gains if kind == "DcMotor" else draws.explicit_gains
    return MeasuredEvent(fn, **limits, strength_lo=1.0, strength_hi=1.0)

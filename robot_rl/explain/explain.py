"""Why a log differs from its simulation: checks, discrete causes, then motors, delay and mass together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from robot_rl_assets.robot import Robot

from robot_rl.errors import UserError
from robot_rl.explain.causes import Cause, causes
from robot_rl.explain.checks import Finding, check
from robot_rl.explain.motors import Motors, Part, fit_motors
from robot_rl.explain.rank import MARGIN, WINDOW_S, Scored, make_problem, rank, repaired, residuals, windows_of
from robot_rl.identify.plant_model import PlantModel
from robot_rl.identify.result import Identified
from robot_rl.identify.robot_log import RobotLog, check_arrays, make_log
from robot_rl.identify.walking import Odometry
from robot_rl.identify.windows import Window, cut_windows

Array = NDArray[np.float64]
BASES = ("auto", "fixed", "free")
STANDS = 0.5
"""A robot whose feet carry more than this share of its weight stands."""
MOST_TIMESTEP = 0.0025
FIT_WINDOW_S, FIT_WINDOWS = 0.06, 48
MOST_DRAWN = 200
"""Windows that are compared over time."""
LEAST_S, LEAST_ROWS = 0.3, 20
"""A shorter log cannot be simulated [s]."""
PARTED = 4.0
"""Log and simulation part if the residuals are so many times as large as they usually are without the cause."""
WORDS = {
    "gain": ("motors weaker or stronger than the model's", "set kp or the motor's strength"),
    "friction": ("dry friction", "set the joints' friction"),
    "damping": ("damping, or kd", "set the joints' damping"),
    "armature": ("rotor inertia", "set the joints' armature"),
    "delay": ("delay from the command to the torque, plus the age of the states", "set actions.actuator.delay_s"),
    "mass": ("mass of the base", "weigh the robot with its payload, and set the base's mass"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Named:
    """A named cause.

    Attributes:
        cause: In words.
        size: How large it is.
        advice: What to do.
        score: Of the log without it, None: found by a check.
    """

    cause: str
    size: str
    advice: str
    score: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Parting:
    """Log and simulation over time, of windows that follow one another.

    Attributes:
        first_s: The first time at which they part [s], None: they do not.
        time: (N,) [s]; an empty row is between windows.
        distance: (2, N) size of the residuals, of the log as it is and without the cause.
        measured: (N, J) positions [rad].
        simulated: (N, J) of the log as it is [rad].
    """

    first_s: float | None
    time: Array
    distance: Array
    measured: Array
    simulated: Array


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """The explanation of a log.

    Attributes:
        robot: The robot.
        log: The log, until an encoder freezes.
        findings: What the checks found.
        named: The named causes, the most important first; none: nothing was found.
        base: "fixed" or "free"; "": the log is too short for a simulation, as all that follows.
        ranked: The discrete causes by their scores; one without a cause is the log as it is.
        alike: Discrete causes that are not told apart from the first.
        motors: The joint fit.
        parting: Log and simulation over time.
        notes: Lines for the user.
    """

    robot: Robot
    log: RobotLog
    findings: Sequence[Finding]
    named: Sequence[Named]
    base: str = ""
    ranked: Sequence[Scored] = ()
    alike: Sequence[str] = ()
    motors: Motors | None = None
    parting: Parting | None = None
    notes: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ExplainCfg:
    """Settings of an explanation.

    Attributes:
        against: Identified parameters, from which the simulation starts; None: the model's.
        base: "fixed", "free" or "auto".
        threads: Of the rollouts; the result has the same bits with any number.
        with_motors: Whether motors, delay and mass are fitted.
    """

    against: Identified | None = None
    base: str = "auto"
    threads: int = 1
    with_motors: bool = True


def explain(
    log: tuple[str, str, Mapping[str, Any]],
    robot: Robot,
    cfg: ExplainCfg | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Explanation:
    """Explain why a log differs from its simulation.

    Args:
        log: Its name, sha256 and arrays: those of `robot_rl.identify.robot_log.NAMES`; orientation, gyro and
            accelerometer if it walks.
        robot: The robot.
        cfg: The settings.
        say: Called with lines of progress.

    Raises:
        UserError: The log cannot be used.
    """
    cfg = cfg or ExplainCfg()
    if cfg.base not in BASES:
        raise UserError("base", cfg.base, f"must be one of {', '.join(BASES)}")
    if cfg.against is not None and cfg.against.robot != robot.name:
        raise UserError(f"against: is of {cfg.against.robot}, the log is of {robot.name}")
    name, sha256, arrays = log
    whole = _finite(check_arrays(name, arrays, robot))
    findings, good = check(whole, robot)
    if len(good["time"]) < LEAST_ROWS or good["time"][-1] - good["time"][0] < LEAST_S:
        found = make_log(name, sha256, whole, robot, strict=False)
        notes = ["too little is left of the log for a simulation"]
        return Explanation(robot=robot, log=found, findings=findings, named=_checked(findings), notes=notes)
    return _simulate(make_log(name, sha256, good, robot, strict=False), robot, cfg, findings, say)


def _simulate(
    log: RobotLog,
    robot: Robot,
    cfg: ExplainCfg,
    findings: Sequence[Finding],
    say: Callable[[str], None],
) -> Explanation:
    """Rank the discrete causes, fit motors, delay and mass without the best of them, and compare over time."""
    model, named = _model(robot, cfg, log), _checked(findings)
    windows, nominal = windows_of(log, model.base), model.parameters.nominal
    known = [cause for cause in causes(robot) if model.base == "free" or not cause.imu]
    say(f"{len(windows)} stretches of {WINDOW_S[model.base]:g} s, {len(known)} hypotheses")
    ranked = rank(model, windows, known, nominal)
    cause, alike = _discrete(ranked)
    if cause is not None:
        named.append(cause)
    which = None if cause is None else ranked[0].cause
    motors = None
    if cfg.with_motors:
        say("motors, delay and mass are fitted together")
        motors = fit_motors(model, _fit_windows(repaired(windows, which)[0].log, model.base))
        named += [_motor(part, cfg.against is not None) for part in motors.parts if part.unusual]
    theta = nominal if motors is None else motors.theta
    parting = part_of(model, log, which, theta, len(named) > sum(row.breaks for row in findings))
    since = [row.first_s for row in findings if row.breaks and row.first_s is not None]
    if since and parting.first_s is None:
        parting = replace(parting, first_s=min(since))
    return Explanation(
        robot=robot,
        log=log,
        base=model.base,
        findings=findings,
        ranked=ranked,
        named=named,
        alike=alike,
        motors=motors,
        parting=parting,
        notes=log.notes,
    )


def _checked(findings: Sequence[Finding]) -> list[Named]:
    """Return the findings that explain a failure."""
    return [Named(cause=row.cause, size=row.size, advice=row.advice) for row in findings if row.breaks]


def _finite(arrays: dict[str, Array]) -> dict[str, Array]:
    """Return the rows that are without NaN; a signal that is mostly NaN is omitted."""
    optional = ("quat", "gyro", "accel", "feet", "torque", "voltage")
    rows = len(arrays["time"])
    use = {
        key: values
        for key, values in arrays.items()
        if key not in optional or np.isfinite(values.reshape(rows, -1)).all(1).mean() > 0.5
    }
    whole = np.isfinite(np.concatenate([values.reshape(rows, -1) for values in use.values()], 1)).all(1)
    return {key: values[whole] for key, values in use.items()}


def _model(robot: Robot, cfg: ExplainCfg, log: RobotLog) -> PlantModel:
    """Return the model of a robot that hangs or stands, with the identified parameters."""
    sees = log.quat is not None and log.gyro is not None
    if cfg.base == "free" and not sees:
        raise UserError(f"{log.name}: base=free needs the arrays quat and gyro")
    timestep = float(log.period / np.ceil(log.period / MOST_TIMESTEP - 0.01))
    model = None
    if cfg.base != "fixed" and sees and (cfg.base == "free" or (robot.base_body is not None and robot.feet)):
        model = PlantModel(robot, timestep, base="free", threads=cfg.threads)
    if model is not None and cfg.base == "auto":
        rows = np.unique(np.linspace(0, len(log.time) - 1, 200).astype(int))
        carried = np.abs(Odometry(model).feet(log, rows).force).sum(1)
        model = model if np.median(carried) > STANDS else None
    model = model or PlantModel(robot, timestep, threads=cfg.threads)
    if cfg.against is not None:
        model.parameters = replace(model.parameters, nominal=cfg.against.vector(model.parameters))
    return model


def _fit_windows(log: RobotLog, base: str) -> list[Window]:
    """Return the windows of the joint fit: shorter ones, in which the base's error matters less."""
    if base == "fixed":
        return windows_of(log, base)
    return windows_of(log, base, FIT_WINDOW_S, FIT_WINDOWS)


def _discrete(ranked: Sequence[Scored]) -> tuple[Named | None, list[str]]:
    """Return the discrete cause that beats the log as it is by the margin, and those not told apart from it."""
    plain, first = next(row.score for row in ranked if row.cause is None), ranked[0]
    if first.cause is None or plain - first.score < MARGIN:
        return None, []
    size = f"the residuals are {np.exp(plain - first.score):.1f} times as large with it"
    alike = [row.cause.name for row in ranked[1:] if row.cause and row.score - first.score < MARGIN]
    return Named(cause=first.cause.name, size=size, advice=first.cause.advice, score=first.score), alike


def _motor(part: Part, identified: bool) -> Named:
    """Return a parameter of the joint fit as a named cause."""
    words, advice = WORDS[part.name]
    scale, unit = (1e3, "ms") if part.unit == "s" else (1.0, part.unit)
    size = f"{scale * part.value:.3g} {unit}, the model has {scale * part.nominal:.3g}".replace(" ,", ",")
    if part.name != "mass":
        again = "identify the hanging robot again" if identified else "identify the hanging robot"
        advice += f"; or {again} and train with randomize.identified_from="
    return Named(cause=words, size=size, advice=advice, score=part.explains)


def part_of(model: PlantModel, log: RobotLog, cause: Cause | None, theta: Array, differs: bool) -> Parting:
    """Return log and simulation over time.

    Args:
        model: The model.
        log: The log as it is.
        cause: The discrete cause, None without.
        theta: The parameters without the cause.
        differs: Whether anything was found.
    """
    seconds = WINDOW_S[model.base]
    windows = cut_windows([log], seconds, skip=0.0)[:MOST_DRAWN]
    plain, right = (make_problem(model, repaired(windows, which)) for which in (None, cause))
    off = [residuals(plain, [model.parameters.nominal])[0], residuals(right, [theta])[0]]
    scale = np.maximum(1.4826 * np.median(np.abs(off[1]), axis=0), 0.3)
    distance = np.array([np.sqrt(np.mean(np.minimum(np.abs(rows) / scale, 1e2) ** 2, axis=1)) for rows in off])
    time = np.concatenate([w.log.time[w.rows] for w in windows]) - log.time[0]
    usual = float(np.median(distance[1]))
    kernel = np.ones(5) / 5
    smooth = np.convolve(distance[0], kernel, "same") if len(time) > 5 else distance[0]
    apart = np.flatnonzero(smooth > PARTED * usual) if differs else []
    joints = plain.channels["q"]
    measured, simulated = plain.measured[:, joints], plain.predict([model.parameters.nominal])[0][:, joints]
    # An empty row parts windows.
    gaps = plain.first[1:]
    return Parting(
        first_s=float(time[apart[0]]) if len(apart) else None,
        time=np.insert(time, gaps, time[gaps]),
        distance=np.insert(distance, gaps, np.nan, axis=1),
        measured=np.insert(measured, gaps, np.nan, axis=0),
        simulated=np.insert(simulated, gaps, np.nan, axis=0),
    )

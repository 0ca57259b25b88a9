"""Why a log differs from its simulation: checks, discrete causes, then motors, delay and mass together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
LEAST_S = 0.3
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
        base: "fixed" or "free".
        findings: What the checks found.
        ranked: The discrete causes by their scores; one without a cause is the log as it is.
        named: The named causes, the most important first; none: nothing was found.
        alike: Discrete causes that are not told apart from the first.
        motors: The joint fit, None: the log is too short.
        parting: Log and simulation over time, None: the log is too short.
        notes: Lines for the user.
    """

    robot: Robot
    log: RobotLog
    base: str
    findings: Sequence[Finding]
    ranked: Sequence[Scored]
    named: Sequence[Named]
    alike: Sequence[str]
    motors: Motors | None
    parting: Parting | None
    notes: Sequence[str] = field(default=())


def explain(
    name: str,
    sha256: str,
    arrays: Mapping[str, Any],
    robot: Robot,
    *,
    against: Identified | None = None,
    base: str = "auto",
    threads: int = 1,
    with_motors: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> Explanation:
    """Explain why a log differs from its simulation.

    Args:
        name: Of the log.
        sha256: Of it.
        arrays: Those of `robot_rl.identify.robot_log.NAMES`; an orientation, gyro and accelerometer if it walks.
        robot: The robot.
        against: Identified parameters, from which the simulation starts; None: the model's.
        base: "fixed", "free" or "auto".
        threads: Of the rollouts.
        with_motors: Whether motors, delay and mass are fitted.
        say: Called with lines of progress.

    Raises:
        UserError: The log cannot be used.
    """
    if base not in BASES:
        raise UserError("base", base, f"must be one of {', '.join(BASES)}")
    if against is not None and against.robot != robot.name:
        raise UserError(f"against: is of {against.robot}, the log is of {robot.name}")
    findings, good = check(_finite(check_arrays(name, arrays, robot)), robot)
    notes: list[str] = []
    named = [Named(cause=row.cause, size=row.size, advice=row.advice) for row in findings if row.breaks]
    if len(good["time"]) < 20 or good["time"][-1] - good["time"][0] < LEAST_S:
        log = make_log(name, sha256, check_arrays(name, arrays, robot), robot, strict=False)
        notes.append("too little is left of the log for a simulation")
        found = Explanation(
            robot=robot,
            log=log,
            base=base,
            findings=findings,
            ranked=(),
            named=named,
            alike=(),
            motors=None,
            parting=None,
            notes=notes,
        )
        return found
    log = make_log(name, sha256, good, robot, strict=False)
    notes += log.notes
    step = log.period / np.ceil(log.period / MOST_TIMESTEP - 0.01)
    model = _model(robot, float(step), base, threads, log)
    if against is not None:
        model.parameters = replace(model.parameters, nominal=against.vector(model.parameters))
    windows, nominal = windows_of(log, model.base), model.parameters.nominal
    known = [cause for cause in causes(robot) if model.base == "free" or not cause.imu]
    say(f"{len(windows)} stretches of {WINDOW_S[model.base]:g} s, {len(known)} hypotheses")
    ranked = rank(model, windows, known, nominal)
    cause, alike = _discrete(ranked)
    if cause is not None and cause.cause is not None:
        plain = next(row.score for row in ranked if row.cause is None)
        size = f"the residuals are {np.exp(plain - cause.score):.1f} times as large with it"
        named.append(Named(cause=cause.cause.name, size=size, advice=cause.cause.advice, score=cause.score))
    right = repaired(windows, cause.cause if cause else None)
    motors = None
    if with_motors:
        say("motors, delay and mass are fitted together")
        motors = fit_motors(model, _fit_windows(right[0].log, model.base))
        named += [_motor(part, against is not None) for part in motors.parts if part.unusual]
    theta = nominal if motors is None else motors.theta
    differs = len(named) > sum(row.breaks for row in findings)
    parting = part_of(model, log, cause.cause if cause else None, theta, differs)
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
        notes=notes,
    )


def _finite(arrays: dict[str, Array]) -> dict[str, Array]:
    """Return the rows without NaN in what the checks compare; a signal that is mostly NaN is omitted."""
    optional = ("quat", "gyro", "accel", "feet", "torque", "voltage")
    rows = len(arrays["time"])
    use = {
        key: values
        for key, values in arrays.items()
        if key not in optional or np.isfinite(values.reshape(rows, -1)).all(1).mean() > 0.5
    }
    whole = np.isfinite(np.concatenate([values.reshape(rows, -1) for values in use.values()], 1)).all(1)
    return {key: values[whole] for key, values in use.items()}


def _model(robot: Robot, timestep: float, base: str, threads: int, log: RobotLog) -> PlantModel:
    """Return the model of a robot that hangs or stands."""
    sees = log.quat is not None and log.gyro is not None
    if base == "free" and not sees:
        raise UserError(f"{log.name}: base=free needs the arrays quat and gyro")
    if base == "fixed" or robot.base_body is None or not robot.feet or not sees:
        return PlantModel(robot, timestep, threads=threads)
    model = PlantModel(robot, timestep, base="free", threads=threads)
    rows = np.unique(np.linspace(0, len(log.time) - 1, 200).astype(int))
    carried = np.abs(Odometry(model).feet(log, rows).force).sum(1)
    return model if base == "free" or np.median(carried) > STANDS else PlantModel(robot, timestep, threads=threads)


def _fit_windows(log: RobotLog, base: str) -> list[Window]:
    """Return the windows of the joint fit: shorter ones, in which the base's error matters less."""
    if base == "fixed":
        return windows_of(log, base)
    return windows_of(log, base, FIT_WINDOW_S, FIT_WINDOWS)


def _discrete(ranked: Sequence[Scored]) -> tuple[Scored | None, list[str]]:
    """Return the discrete cause that beats the log as it is by the margin, and those not told apart from it."""
    plain = next(row.score for row in ranked if row.cause is None)
    first = ranked[0]
    if first.cause is None or plain - first.score < MARGIN:
        return None, []
    return first, [row.cause.name for row in ranked[1:] if row.cause and row.score - first.score < MARGIN]


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

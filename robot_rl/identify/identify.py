"""Identification: checks, start values, fit, intervals, and the errors on a log that was held out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from robot_rl_assets.robot import Robot
from robot_rl_envs.actuation import NetFile

from robot_rl.errors import UserError
from robot_rl.identify.fit import Fit, fit
from robot_rl.identify.network import Network, can_train, compare, fits, read_network, train
from robot_rl.identify.parameters import BODY, DEFAULT_FIT, DELAY, FIELDS, WALKING_FIT, Parameters
from robot_rl.identify.plant_model import PlantModel
from robot_rl.identify.result import UNITS, Estimate, Identified, Refit
from robot_rl.identify.robot_log import RobotLog, check_excitation
from robot_rl.identify.spread import NORMAL, Spread, spread
from robot_rl.identify.start_values import alike_start, start_values
from robot_rl.identify.walking import WalkingProblem, walking_windows
from robot_rl.identify.windows import Problem, Window, cut_windows

Array = NDArray[np.float64]
LEAST_PRIOR = 0.05
"""A prior by another log is at least this share of the usual one: a walking robot's motors are warm."""
MOST_TIMESTEP = 0.0025
"""A log's rows are this far apart at most in the simulation [s]; more steps lie between those of a slower log."""
HELD_SHARE = 1.0 / 3.0
"""Of a single log its last third is held out."""
ALIKE = 0.95
"""A correlation of two joints' targets above this leaves little to tell them apart."""
ROUGH = 0.05
"""A derivative that depends on its step by a larger share is rough."""
GOOD = 0.0005
"""A model with this error predicts as well as encoders measure; a fit need not be better [rad]."""
LITTLE, LARGE = 0.7, 0.005
UNEXPLAINED = (
    "the fit explains little of the held-out log: a foot or hand may touch something, or the base may move, or the "
    "wiring be wrong; hang the robot free, and ask robot-rl explain"
)
"""Said if more than this share of the model's error is left, and more than this much [rad]."""
ENOUGH = "the model predicts the held-out log as well as the fit does"
FAR = 3.0
"""Standard deviations of the prior."""
WINDOW_S = {"fixed": 0.5, "free": 0.04}
MOST_WALKING = 80
"""Windows of a robot on its feet that are fitted: each joint has its own columns there."""
STILL = 0.3
"""A base whose gyro reads more (RMS) is not bolted [rad/s]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IdentifyCfg:
    """Settings of an identification.

    Attributes:
        fit: The parameters to fit, of `robot_rl.identify.parameters.FIELDS`, the delay and `BODY`; (): the usual ones.
        omit: Joints that keep their nominal values.
        base: "fixed": the robot is bolted or hangs, without contacts; "free": it walks.
        prior: Values and intervals by another log, such as of the hanging robot, around which the fit stays.
        window_s: Length of the windows that are predicted from their first state [s]; 0: that of `WINDOW_S`.
        every_s: Distance of their starts [s]; 0: their length.
        timestep: Of the simulation [s]; 0: the logs' rows, divided until it is at most 2.5 ms.
        task_timesteps: At which the values are also fitted, since parameters absorb the integrator's error [s].
        rated_voltage: Supply at which kp and the effort limit hold [V]; 0: a logged voltage is not used.
        net: "auto": compare with a network if torques were logged; "no": never; else a network's file.
        threads: Of the rollouts; the result has the same bits with any number.
    """

    fit: tuple[str, ...] = ()
    omit: tuple[str, ...] = ()
    base: str = "fixed"
    prior: Identified | None = None
    window_s: float = 0.0
    every_s: float = 0.0
    timestep: float = 0.0
    task_timesteps: tuple[float, ...] = ()
    rated_voltage: float = 0.0
    net: str = "auto"
    threads: int = 1


@dataclass(kw_only=True, slots=True)
class Identification:
    """An identification that ran: the result, and the fit behind it.

    Attributes:
        result: The result.
        fit: The fit.
        spread: Its intervals.
        model: The model.
        problem: The fitted windows.
        held: The held-out windows.
        network: The network that was compared with the fit.
    """

    result: Identified
    fit: Fit
    spread: Spread
    model: PlantModel
    problem: Problem
    held: Problem = field(repr=False)
    network: Network | None = field(default=None, repr=False)


def identify(
    logs: Sequence[RobotLog],
    held: RobotLog | None,
    robot: Robot,
    cfg: IdentifyCfg,
    say: Callable[[str], None] = lambda _: None,
) -> Identification:
    """Identify a robot's parameters.

    Args:
        logs: The logs to fit.
        held: The log that is predicted only; None: the last log, or the last third of a single one.
        robot: The robot.
        cfg: The settings.
        say: Called with lines of progress.

    Raises:
        UserError: A log cannot be used, or the fit predicts the held-out log worse than the nominal model.
    """
    logs, held = split(logs, held)
    check_logs(logs, held, robot, cfg)
    given = None if cfg.net in ("auto", "no") else read_network(cfg.net, robot, cfg.task_timesteps)
    timestep = cfg.timestep or logs[0].period / np.ceil(logs[0].period / MOST_TIMESTEP - 0.01)
    model, finer = (PlantModel(robot, step, base=cfg.base, threads=cfg.threads) for step in (timestep, timestep / 2))
    parameters, free = model.parameters, _free(model, robot, cfg)
    model.parameters = finer.parameters = _with_prior(parameters, cfg.prior)
    windows, tested = _windows(logs, cfg), _windows([held], cfg)
    problem, test = _problem(model, windows, cfg), _problem(model, tested, cfg, adapt=False)
    seconds = cfg.window_s or WINDOW_S[cfg.base]
    say(f"{len(windows)} windows of {seconds:g} s, {len(free)} parameters")
    found = fit(problem, _starts(problem, logs, free), free, say)
    wide = spread(problem, found, _problem(finer, windows, cfg))
    model.parameters, nominal = parameters, parameters.nominal
    parts = (("fit", problem), ("held", test))
    errors = {key: {"before": one.errors(nominal), "after": one.errors(found.theta)} for key, one in parts}
    before, after = errors["held"]["before"]["q"], errors["held"]["after"]["q"]
    if after >= before and after > GOOD:
        line = f"the fit predicts it worse than the model, {1e3 * before:.2f} -> {1e3 * after:.2f} mrad"
        raise UserError(f"{held.name}: {line}; nothing is written; compare gains and joints of the logs")
    result = Identified(
        robot=robot.name,
        base=cfg.base,
        timestep=float(timestep),
        window_s=seconds,
        logs=[_describe(log, "fit") for log in logs] + [_describe(held, "held")],
        model=_model(parameters, problem.mean_kd),
        joints=_joints(parameters, found, wide),
        delay=_tail(parameters, found, wide).pop(DELAY, None),
        body={name: row for name, row in _tail(parameters, found, wide).items() if name in BODY},
        errors=errors,
        refits=_refits(problem, test, cfg, found, say),
        notes=_notes(logs, found, wide, parameters)
        + [UNEXPLAINED] * (after > max(LITTLE * before, LARGE))
        + [ENOUGH] * (after >= before),
        figures=_figures(found),
    )
    done = Identification(result=result, fit=found, spread=wide, model=model, problem=problem, held=test)
    _try_network(done, [*logs, held], given, cfg, say)
    return done


def _try_network(
    done: Identification,
    logs: Sequence[RobotLog],
    given: NetFile | None,
    cfg: IdentifyCfg,
    say: Callable[[str], None],
) -> None:
    """Compare the fit with a network: a given one, or one that all logs but the last train if they have torques."""
    robot, result = done.model.robot, done.result
    steps = [step for step in cfg.task_timesteps if given is None or fits(given, step)]
    step = (*steps, result.timestep)[0]
    if given is None:
        if cfg.net == "no" or cfg.base != "fixed" or not can_train(logs, robot):
            return
        say("a network of the logged torques")
    net, windows = given or train(logs[:-1], step, robot), (done.problem.windows, done.held.windows)
    errors = [fit.errors for fit in result.refits if fit.timestep == step] or [result.errors["held"]]
    than, file = errors[0]["after"]["q"], cfg.net if given else ""
    done.network = compare(net, PlantModel(robot, step), windows, done.fit.theta, than=than, file=file)
    done.result = replace(result, net=done.network.entry)


def _refits(problem: Problem, test: Problem, cfg: IdentifyCfg, found: Fit, say: Callable[[str], None]) -> list[Refit]:
    """Return fits of the same windows at the timesteps of tasks, if the base is fixed."""
    used = problem.model
    steps = [step for step in dict.fromkeys(cfg.task_timesteps) if abs(step / used.timestep - 1.0) > 0.01]
    if cfg.base != "fixed":
        return []
    return [_refit(PlantModel(used.robot, step, threads=cfg.threads), problem, test, found, say) for step in steps]


def _refit(model: PlantModel, problem: Problem, test: Problem, found: Fit, say: Callable[[str], None]) -> Refit:
    """Fit the same windows at another timestep, from a fit."""
    say(f"the same at a task's timestep, {1e3 * model.timestep:.3g} ms")
    parameters, voltage = model.parameters, problem.rated_voltage
    theta = fit(Problem(model, problem.windows, rated_voltage=voltage), [found.theta], found.free, say).theta
    held = Problem(model, test.windows, rated_voltage=voltage)
    values: dict[str, dict[str, float]] = {name: {} for name in parameters.joints}
    for index in found.free:
        joint, name = parameters.name(int(index))
        if joint:
            values[joint][name] = float(theta[index])
    return Refit(
        timestep=model.timestep,
        values=values,
        delay=float(theta[parameters.delay]) if parameters.delay in found.free else None,
        errors={"before": held.errors(parameters.nominal), "after": held.errors(theta)},
    )


def _model(parameters: Parameters, kd: NDArray[np.float64]) -> dict[str, dict[str, float]]:
    """Return the commanded kd and the nominal values of each joint."""
    found = {name: {"kd": float(value)} for name, value in zip(parameters.joints, kd, strict=True)}
    for index, value in enumerate(parameters.nominal):
        joint, name = parameters.name(index)
        if joint:
            found[joint][name] = float(value)
    return found


def split(logs: Sequence[RobotLog], held: RobotLog | None) -> tuple[list[RobotLog], RobotLog]:
    """Return the logs to fit and the one that is held out; refuse one that would be both."""
    if held is not None:
        if any(log.sha256 == held.sha256 for log in logs):
            raise UserError("held", held.name, "is also fitted", "name a log that is not")
        return list(logs), held
    if len({log.sha256 for log in logs}) < len(logs):
        raise UserError(f"{logs[-1].name}: is the same log as another; name each once")
    if len(logs) > 1:
        return list(logs[:-1]), logs[-1]
    return [logs[0].cut(0.0, 1.0 - HELD_SHARE)], logs[0].cut(1.0 - HELD_SHARE, 1.0)


def check_logs(logs: Sequence[RobotLog], held: RobotLog, robot: Robot, cfg: IdentifyCfg) -> None:
    """Raise UserError if the logs cannot be fitted with these settings."""
    if cfg.base == "free" and ("load_friction" in cfg.fit or cfg.rated_voltage):
        key, value = ("fit", "load_friction") if "load_friction" in cfg.fit else ("voltage", f"{cfg.rated_voltage:g}")
        raise UserError(key, value, "is for a robot that hangs or is bolted", "omit it with base=free")
    if cfg.base == "free" and cfg.net not in ("auto", "no"):
        raise UserError("net", cfg.net, "is for a robot that hangs or is bolted", "omit it with base=free")
    for log in (*logs, held):
        if cfg.base == "free" and (robot.base_body is None or log.quat is None or log.gyro is None):
            line = f"{log.name} is without quat and gyro" if robot.base_body else f"{robot.name} is bolted"
            raise UserError("base", "free", line, "use base=fixed")
        if cfg.base == "fixed" and log.gyro is not None and robot.base_body is not None:
            turn = float(np.sqrt(np.mean((log.gyro - log.gyro.mean(0)) ** 2)))
            if turn > STILL:
                raise UserError(
                    f"{log.name}: its base turns ({turn:.2f} rad/s), so it is not bolted; hang it without slack, "
                    "or use base=free if it walks"
                )
    check_excitation(logs, robot, cfg.omit)


def _free(model: PlantModel, robot: Robot, cfg: IdentifyCfg) -> NDArray[np.int64]:
    """Return the indices to fit: joints without a motor have neither gain nor offset."""
    passive = tuple(joint.name for joint in robot.joints if joint.passive)
    free = model.parameters.free(cfg.fit or (WALKING_FIT if cfg.base == "free" else DEFAULT_FIT), cfg.omit)
    if not len(free):
        raise UserError("fit", ",".join(cfg.fit), "nothing is left to fit", f"some of {', '.join(DEFAULT_FIT)}")
    by_motor = {"gain", "offset", "load_friction"}
    keep = [model.parameters.name(i)[0] not in passive or model.parameters.name(i)[1] not in by_motor for i in free]
    return free[np.array(keep)]


def _with_prior(parameters: Parameters, prior: Identified | None) -> Parameters:
    """Return the parameters with values and standard deviations of an earlier result as their prior."""
    if prior is None:
        return parameters
    if set(prior.joints) - set(parameters.joints):
        raise UserError(f"prior: is of {prior.robot}, whose joints are others")
    spread = parameters.prior.copy()
    for joint, rows in prior.joints.items():
        for name, row in rows.items():
            if name in FIELDS and row.seen:
                at = parameters.indices(name)[parameters.joints.index(joint)]
                spread[at] = min(max(0.5 * (row.hi - row.lo) / NORMAL, LEAST_PRIOR * spread[at]), spread[at])
    return replace(parameters, nominal=prior.vector(parameters), prior=spread)


def _windows(logs: Sequence[RobotLog], cfg: IdentifyCfg) -> list[Window]:
    seconds = cfg.window_s or WINDOW_S[cfg.base]
    if cfg.base == "fixed":
        return cut_windows(logs, seconds, cfg.every_s)
    total = sum(log.seconds for log in logs)
    found = walking_windows(logs, seconds, cfg.every_s or max(seconds, total / MOST_WALKING))
    if not found:
        raise UserError(f"{logs[0].name}: its gains change in each stretch of {seconds:g} s")
    return found


def _problem(model: PlantModel, windows: Sequence[Window], cfg: IdentifyCfg, *, adapt: bool = True) -> Problem:
    """Return the windows; with `adapt`, the base's error at their starts counts less, and rows are not as measured."""
    if cfg.base == "free":
        return WalkingProblem(model, windows, rated_voltage=cfg.rated_voltage, adapt=adapt)
    return Problem(model, windows, rated_voltage=cfg.rated_voltage)


def _starts(problem: Problem, logs: Sequence[RobotLog], free: NDArray[np.int64]) -> list[Array]:
    """Return start values."""
    model = problem.model
    if model.base == "free":
        return [alike_start(problem, free)]
    start, plain = start_values(model, logs, free), model.parameters.nominal.copy()
    plain[model.parameters.delay] = start[model.parameters.delay]
    return [start, plain]


def _tail(parameters: Parameters, found: Fit, wide: Spread) -> dict[str, Estimate]:
    """Return the estimates of delay and base."""
    rows = [(parameters.name(int(i))[1], n) for n, i in enumerate(found.free) if i >= parameters.delay]
    return {name: _estimate(parameters, found, wide, n) for name, n in rows}


def _estimate(parameters: Parameters, found: Fit, wide: Spread, n: int) -> Estimate:
    index = int(found.free[n])
    value, half = float(found.theta[index]), float(wide.half[n])
    return Estimate(
        nominal=float(parameters.nominal[index]),
        value=value,
        lo=max(value - half, float(parameters.lower[index])),
        hi=value + half,
        seen=bool(wide.seen[n]),
        ratio=float(wide.ratio[n]),
        unit=UNITS[parameters.name(index)[1]],
    )


def _joints(parameters: Parameters, found: Fit, wide: Spread) -> dict[str, dict[str, Estimate]]:
    """Return the estimates by joint, in the robot's order, each with the line of its scale."""
    joints: dict[str, dict[str, Estimate]] = {name: {} for name in parameters.joints}
    for n, index in enumerate(found.free):
        joint, name = parameters.name(int(index))
        if joint:
            joints[joint][name] = _estimate(parameters, found, wide, n)
    for rows in joints.values():
        if "gain" in rows and len(rows.keys() & {"armature", "damping", "friction"}) > 0:
            gain = rows["gain"]
            share = (gain.hi - gain.value) / gain.value
            rows["scale"] = Estimate(nominal=1.0, value=1.0, lo=1.0 - share, hi=1.0 + share, seen=gain.seen)
    return {name: rows for name, rows in joints.items() if rows}


def _describe(log: RobotLog, part: str) -> dict[str, Any]:
    return {
        "name": log.name,
        "sha256": log.sha256,
        "part": part,
        "from_s": float(log.time[0]),
        "seconds": log.seconds,
        "rows": len(log.time),
        "notes": list(log.notes),
    }


def _notes(logs: Sequence[RobotLog], found: Fit, wide: Spread, parameters: Parameters) -> list[str]:
    """Return lines about the fit that a user should know."""
    notes = []
    target = np.concatenate([log.target for log in logs])
    moving = np.ptp(target, axis=0) > 0
    if moving.sum() > 1:
        alike = np.abs(np.corrcoef(target[:, moving].T))
        share = np.mean(alike[np.triu_indices(len(alike), 1)] > ALIKE)
        if share > 0.3:
            line = f"{100 * share:.0f} % of the pairs of joints move alike"
            notes.append(f"{line}; robot-rl identify excite moves each differently")
    rough = [parameters.name(int(i)) for i, off in zip(found.free, found.column_errors, strict=True) if off > ROUGH]
    if rough:
        words = ", ".join(" ".join(filter(None, name)) for name in rough[:3])
        notes.append(
            f"derivatives of {words} depend on their step by more than {100 * ROUGH:.0f} %: their intervals are rough"
        )
    if not found.converged:
        notes.append("the fit still improved when it ended")
    pulled = np.abs(found.theta - parameters.nominal)[found.free] > FAR * parameters.prior[found.free]
    far = [
        parameters.name(int(i)) for i, off, seen in zip(found.free, pulled, wide.seen, strict=True) if off and not seen
    ]
    if far:
        words = ", ".join(" of ".join(reversed(name)) for name in far[:3])
        notes.append(
            f"{words}: not seen and yet far from the model, so the fit puts something else into it; omit it from fit="
        )
    bound = [i for i in found.free if found.theta[i] <= parameters.lower[i] and parameters.name(int(i))[1] in FIELDS]
    for index in bound[:3]:
        joint, name = parameters.name(int(index))
        notes.append(f"{name} of {joint} is at its bound, {found.theta[index]:.4g}")
    return notes


def _figures(found: Fit) -> dict[str, Any]:
    return {
        "iterations": found.iterations,
        "converged": found.converged,
        "dependence": float(np.median(found.dependence)),
        "column_error": float(found.column_errors.max(initial=0.0)),
        "rms_residual": float(np.sqrt(np.mean(found.residual**2))),
    }

"""Start values: by linear regression on inverse dynamics, or by a fit in which limbs are alike.

The regression needs no rollout, and a base that does not move:

    kp g (target(t - delay) - q + offset) - kd dq = tau + armature ddq + damping dq + friction sign(dq)

is linear in the joint's parameters; the delay is the best of a grid. Both sides go through the same low-pass filter.
Filters and the differences of the integrator bias the result, so a fit only begins with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from robot_rl_assets.robot import Robot

from robot_rl.identify.fit import fit
from robot_rl.identify.plant_model import PlantModel
from robot_rl.identify.robot_log import RobotLog
from robot_rl.identify.windows import Problem

Array = NDArray[np.float64]
FILTER_S = 0.03
"""Length of the low-pass filter [s]."""
DELAYS = np.arange(0.0, 0.0305, 0.0015)
SLOW = 0.05
"""Speed at which friction's sign is smoothed [rad/s]."""
MOST_ROWS = 5000
FIRST_DELAYS, ROUNDS = (0.0, 0.005, 0.01, 0.02), (3,)
"""Of the fit in which limbs are alike: delays that it starts from [s], and its iterations."""


def start_values(model: PlantModel, logs: Sequence[RobotLog], free: NDArray[np.int64]) -> Array:
    """Return a vector of parameters: the free ones by regression, the others nominal.

    Args:
        model: The model.
        logs: The logs that will be fitted.
        free: Indices of the free parameters.
    """
    parameters = model.parameters
    tables = [_prepare(model, log) for log in logs]
    best, found = np.inf, parameters.nominal.copy()
    delays = DELAYS if parameters.delay in free else DELAYS[:1]
    for delay in delays:
        total, theta = 0.0, parameters.nominal.copy()
        theta[parameters.delay] = delay
        for joint in range(len(parameters.joints)):
            rows = [_rows(log, table, joint, float(delay)) for log, table in zip(logs, tables, strict=True)]
            x, y = np.concatenate([row[0] for row in rows]), np.concatenate([row[1] for row in rows])
            left = _solve(model, theta, free, joint, x=x, y=y)
            total += left
        if total < best:
            best, found = total, theta
    return found


def alike_start(problem: Problem, free: NDArray[np.int64]) -> Array:
    """Return a vector of parameters by a short fit in which the joints of limbs with as many joints are alike.

    Args:
        problem: The windows.
        free: Indices of the free parameters.
    """
    parameters = problem.model.parameters
    groups = list(limbs(problem.model.robot).values())
    tied = list(range(len(parameters.joints)))
    for group in groups:
        for n, leader in zip(group, next(other for other in groups if len(other) == len(group)), strict=True):
            tied[n] = leader
    alike = problem.part(problem.windows, tied=tied)
    starts = [parameters.nominal.copy() for _ in FIRST_DELAYS]
    for start, delay in zip(starts, FIRST_DELAYS, strict=True):
        start[parameters.delay] += delay if parameters.delay in free else 0.0
    leaders = set(tied)
    led = [i for i in free if i >= parameters.delay or int(i) % len(tied) in leaders]
    if not led:
        return parameters.nominal.copy()
    theta = alike.expand(fit(alike, starts, np.array(led), rounds=ROUNDS).theta)
    found = parameters.nominal.copy()
    found[free] = theta[free]
    return found


def limbs(robot: Robot) -> dict[str, tuple[int, ...]]:
    """Return the joints of each limb by its name, from the base outwards."""
    model = robot.load_model().compile()
    found: dict[int, list[tuple[int, int]]] = {}
    base = 0 if robot.base_body is None else model.body(robot.base_body).id
    for n, name in enumerate(robot.joint_names):
        body, depth = int(model.joint(name).bodyid[0]), 0
        while model.body_parentid[body] not in (0, base):
            body, depth = int(model.body_parentid[body]), depth + 1
        found.setdefault(body, []).append((depth, n))
    groups = [tuple(n for _, n in sorted(members)) for members in found.values()]
    return {_common([robot.joint_names[n] for n in group]): group for group in groups}


def _common(names: Sequence[str]) -> str:
    """Return the part that names begin with alike, else the first name."""
    if len(names) == 1:
        return names[0]
    columns = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    return "".join(letters[0] for letters in columns).strip("_") or names[0]


def _prepare(model: PlantModel, log: RobotLog) -> dict[str, Array]:
    """Return a log on an even grid and filtered: q, dq, ddq, the links' torque, and the rows' times."""
    step = max(log.period, log.seconds / MOST_ROWS)
    time = np.arange(log.time[0], log.time[-1], step)
    keep = ~log.repeated
    q, dq = (_at(time, log.time[keep], values[keep]) for values in (log.joint_pos, log.joint_vel))
    width = max(1, round(FILTER_S / step))
    q, dq = _filter(q, width), _filter(dq, width)
    ddq = np.gradient(dq, step, axis=0)
    return {"time": time, "width": np.array(width), "q": q, "dq": dq, "ddq": ddq, "tau": model.link_torques(q, dq, ddq)}


def _rows(log: RobotLog, table: dict[str, Array], joint: int, delay: float) -> tuple[Array, Array]:
    """Return the regressors (N, 5), gain, offset, armature, damping and friction, and the torque (N,)."""
    width, dq = int(table["width"]), table["dq"][:, joint]
    row = np.clip(np.searchsorted(log.time, table["time"] - delay + 1e-9) - 1, 0, None)
    kp, kd = log.kp[row, joint], log.kd[row, joint]
    error = _filter((log.target[row, joint])[:, None], width)[:, 0] - table["q"][:, joint]
    grip = _filter(np.tanh(dq / SLOW)[:, None], width)[:, 0]
    x = np.stack([kp * error, kp, -table["ddq"][:, joint], -dq, -grip], 1)
    y = table["tau"][:, joint] + kd * dq
    inner = slice(2 * width, -2 * width)
    return x[inner], y[inner]


def _solve(model: PlantModel, theta: Array, free: NDArray[np.int64], joint: int, *, x: Array, y: Array) -> float:
    """Write one joint's free parameters into `theta`; return the squared error that is left."""
    parameters = model.parameters
    at = np.array([parameters.indices(name)[joint] for name in ("gain", "offset", "armature", "damping", "friction")])
    use = np.isin(at, free)
    rest = y - x[:, ~use] @ theta[at[~use]]
    if not use.any() or len(rest) < 20:
        return float(rest @ rest)
    width = parameters.prior[at[use]]
    center, scale = parameters.nominal[at[use]], np.sqrt(np.mean((rest - rest.mean()) ** 2)) + 1e-9
    # The prior counts as a row for each parameter: it holds those that the log does not show.
    left = np.concatenate([x[:, use], np.diag(scale / width)])
    value = np.linalg.lstsq(left, np.concatenate([rest, scale * center / width]), rcond=None)[0]
    value = np.maximum(value, parameters.lower[at[use]])
    if use[0] and value[0] <= parameters.lower[at[0]]:  # With such a gain the joint hardly follows its target.
        value = center
    off = rest - x[:, use] @ value
    theta[at[use]] = value
    return float(off @ off / (scale * scale))


def _at(time: Array, rows: Array, values: Array) -> Array:
    return np.stack([np.interp(time, rows, column) for column in values.T], 1)


def _filter(values: Array, width: int) -> Array:
    """Return values (N, J) after a smooth window of 2 width + 1 rows."""
    window = np.hanning(2 * width + 3)[1:-1]
    padded = np.pad(values, ((width, width), (0, 0)), mode="edge")
    return np.stack([np.convolve(column, window / window.sum(), "valid") for column in padded.T], 1)

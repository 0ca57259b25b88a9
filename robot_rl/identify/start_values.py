"""Start values by linear regression on inverse dynamics, without a rollout.

    kp g (target(t - delay) - q + offset) - kd dq = tau + armature ddq + damping dq + friction sign(dq)

is linear in the joint's parameters; the delay is the best of a grid. Both sides go through the same low-pass filter.
Filters and the differences of the integrator bias the result, so a fit only begins with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from robot_rl.identify.plant_model import PlantModel
from robot_rl.identify.robot_log import RobotLog

Array = NDArray[np.float64]
FILTER_S = 0.03
"""Length of the low-pass filter [s]."""
DELAYS = np.arange(0.0, 0.0305, 0.0015)
SLOW = 0.05
"""Speed at which friction's sign is smoothed [rad/s]."""
MOST_ROWS = 5000


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

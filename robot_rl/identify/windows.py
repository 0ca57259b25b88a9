"""Windows of logs, predicted from their first state: the residuals and derivatives of a fit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import UserError
from robot_rl.identify.parameters import FIELDS
from robot_rl.identify.plant_model import Drive, PlantModel
from robot_rl.identify.robot_log import RobotLog

Array = NDArray[np.float64]
SMOOTH_S = 0.01
"""A window's first state is a cubic through the rows within this time."""
NOISE = (0.002, 0.05)
"""Weights of positions [rad] and speeds [rad/s] in it."""
STEP = 0.005
"""Step of a derivative, as a share of the prior's standard deviation."""
EPS = 1e-9
SIGMAS = {"q": (0.003, 2e-5), "dq": (0.1, 2e-3), "gyro": (0.1, 2e-3), "gravity": (0.004, 1e-4)}
"""Standard deviations of positions [rad], speeds [rad/s], gyro [rad/s] and direction of gravity: first and least."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window: a log, its first row, and the rows that are compared."""

    log: RobotLog
    first: int
    rows: NDArray[np.int64]


def cut_windows(logs: Sequence[RobotLog], seconds: float, every: float = 0.0, *, skip: float = 0.1) -> list[Window]:
    """Return the windows of logs, one after another.

    Args:
        logs: The logs.
        seconds: Length [s].
        every: Distance of their starts [s]; 0: the length.
        skip: Time at the start of a log that is omitted [s].
    """
    found = []
    for log in logs:
        time, start = log.time, log.time[0] + skip
        while start + seconds <= time[-1] + EPS:
            first = int(np.searchsorted(time, start - EPS))
            while log.repeated[first] and first < len(time) - 1:
                first += 1
            rows = np.arange(first + 1, np.searchsorted(time, time[first] + seconds + EPS))
            rows = rows[~log.repeated[rows]]
            # At least one row per 50 ms, and a servo that acts somewhere in it.
            if len(rows) >= 20 * seconds and (log.kp[first : rows[-1]] > 0).any():
                found.append(Window(log, first, rows))
            start += every or seconds
    if not found:
        why = f"is shorter than a window of {seconds:g} s"
        if logs and max(log.seconds for log in logs) > skip + seconds:
            why = f"in each stretch of {seconds:g} s kp is 0, so it is all damping, or most rows repeat the one before"
        raise UserError(f"{logs[0].name if logs else 'no log'}: {why}")
    return found


class Problem:
    """Windows to be predicted by a model.

    Attributes:
        model: The model.
        windows: The windows.
        measured: (M, K) positions [rad] and speeds [rad/s] of all compared rows, window after window.
        channels: The columns of each kind of measurement.
        first: (W,) where each window's rows begin in them.
        rated_voltage: Supply at which kp and the effort limit hold [V]; 0: a log's voltage is not used.
        tied: For each joint the one that it follows: its difference from the nominal values is the other's, in standard
            deviations of the priors. None: each joint has its own parameters.
    """

    def __init__(
        self,
        model: PlantModel,
        windows: Sequence[Window],
        *,
        rated_voltage: float = 0.0,
        tied: Sequence[int] | None = None,
    ) -> None:
        self.model, self.windows, self.rated_voltage, self.tied = model, tuple(windows), rated_voltage, tied
        logs = [w.log for w in windows]
        joints = len(model.robot.joints)
        self.channels = {"q": slice(0, joints), "dq": slice(joints, 2 * joints)}
        self.measured = np.concatenate([self._read(w.log, w.rows) for w in windows])
        counts = [len(w.rows) for w in windows]
        self.first = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
        self._window = np.repeat(np.arange(len(windows)), counts)
        after = np.concatenate([w.log.time[w.rows] - w.log.time[w.first] for w in windows]) / model.timestep
        self._low = np.floor(after + 1e-6).astype(np.int64)
        self._share = np.clip(after - self._low, 0.0, 1.0)[:, None]
        self.steps = int(self._low.max() + (self._share[self._low == self._low.max()] > 1e-6).any())
        starts = [initial_state(w.log, w.first) for w in windows]
        self._q, self._dq = (np.array([start[k] for start in starts]) for k in (0, 1))
        self._sums = {id(log): _cumulative(log) for log in logs}
        self._drives: dict[float, Drive] = {}

    def _read(self, log: RobotLog, rows: NDArray[np.int64]) -> Array:
        """Return the measurements in rows of a log, (N, K)."""
        return np.concatenate([log.joint_pos[rows], log.joint_vel[rows]], 1)

    def _simulate(self, thetas: Sequence[Array], drives: Sequence[Drive]) -> tuple[Array, ...]:
        """Return the same of rollouts: parts of (C, W, T + 1, ...)."""
        return self.model.simulate(thetas, self._q, self._dq, drives)

    def sigmas(self, which: int) -> Array:
        """Return standard deviations of `SIGMAS`, (K,): the first ones (0) or the least (1)."""
        sizes = [(name, part.stop - part.start) for name, part in self.channels.items()]
        return np.concatenate([np.full(size, SIGMAS[name][which]) for name, size in sizes])

    @property
    def mean_kd(self) -> Array:
        """Return the mean kd of the windows, (J,)."""
        return np.mean([w.log.kd[w.first] for w in self.windows], axis=0)

    def drive(self, delay: float) -> Drive:
        """Return the commands of all windows that come `delay` late."""
        if delay not in self._drives:
            if len(self._drives) > 4:
                self._drives.clear()
            self._drives[delay] = self._make_drive(delay)
        return self._drives[delay]

    def _make_drive(self, delay: float) -> Drive:
        dt, parts = self.model.timestep, []
        for w in self.windows:
            log, edges = w.log, w.log.time[w.first] - delay + self.model.timestep * np.arange(self.steps + 1)
            row = np.clip(np.searchsorted(log.time, edges + EPS) - 1, 0, len(log.time) - 1)
            sums = self._sums[id(log)][row] + (edges - log.time[row])[:, None] * log.target[row]
            kp, kd, limit = (
                log.kp[row[1:]],
                log.kd[row[1:]],
                np.broadcast_to(self.model.effort_limit, log.kp[row[1:]].shape),
            )
            if self.rated_voltage and log.voltage is not None:
                supply = (log.voltage[row[1:]] / self.rated_voltage)[:, None]
                kp, limit = kp * supply, limit * supply
            parts.append((np.diff(sums, axis=0) / dt, kp, kd, limit))
        target, kp, kd, limit = (np.array([part[k] for part in parts]) for k in range(4))
        constant = all((values == values[:, :1]).all() for values in (kp, kd, limit))
        return Drive(target=target, kp=kp, kd=kd, limit=limit, constant=constant and not self.rated_voltage)

    def predict(self, thetas: Sequence[Array]) -> Array:
        """Return the predictions of vectors of parameters at the compared rows, (C, M, K)."""
        thetas = [self.expand(theta) for theta in thetas]
        drives = [self.drive(float(theta[self.model.parameters.delay])) for theta in thetas]
        states = self._simulate(thetas, drives)
        upper = np.minimum(self._low + 1, self.steps)
        parts = []
        for values in states:
            low, high = values[:, self._window, self._low], values[:, self._window, upper]
            parts.append(low + self._share * (high - low))
        return np.concatenate(parts, -1)

    def expand(self, theta: Array) -> Array:
        """Return the vector of all joints that a vector means."""
        if self.tied is None:
            return theta
        parameters, found = self.model.parameters, theta.copy()
        for name in FIELDS:
            at = parameters.indices(name)
            led = at[list(self.tied)]
            change = (theta[led] - parameters.nominal[led]) / parameters.prior[led]
            found[at] = np.maximum(parameters.nominal[at] + change * parameters.prior[at], parameters.lower[at])
        return found

    def part(self, windows: Sequence[Window], tied: Sequence[int] | None = None) -> Problem:
        """Return the same problem of other windows."""
        return type(self)(self.model, windows, rated_voltage=self.rated_voltage, tied=tied or self.tied)

    def errors(self, theta: Array) -> dict[str, float]:
        """Return the median over windows of the RMS error by channel: "q" [rad], "dq" [rad/s]."""
        off = (self.measured - self.predict([theta])[0]) ** 2
        counts = np.diff(np.append(self.first, len(off)))
        found = {}
        for key, part in self.channels.items():
            means = np.add.reduceat(off[:, part].mean(1), self.first) / counts
            found[key] = float(np.median(np.sqrt(means)))
        return found


class Columns(NamedTuple):
    """The derivatives of predictions along directions, of one tree of the model.

    Attributes:
        index: (P,) the directions that act on it.
        channels: (C,) its columns of the measurements.
        values: (P, M, C).
    """

    index: NDArray[np.int64]
    channels: NDArray[np.int64]
    values: Array


@dataclass(frozen=True, kw_only=True, slots=True)
class Directions:
    """The directions in which a fit moves the free parameters.

    Attributes:
        free: (P,) indices of the free parameters.
        basis: (P, P) a direction in each column; one moves the parameters of one joint, or the delay, and its own
            parameter by 1.
    """

    free: NDArray[np.int64]
    basis: Array


def differentiate(
    problem: Problem, theta: Array, directions: Directions, base: Array, share: float = 1.0
) -> list[Columns]:
    """Return forward differences; joints of different trees are perturbed together.

    Args:
        problem: The windows.
        theta: The vector of parameters.
        directions: To differentiate along.
        base: The prediction at `theta`, (M, K).
        share: Of the usual step; another one shows how exact the columns are.
    """
    parameters, free = problem.model.parameters, directions.free
    tree = np.zeros_like(problem.model.tree) if problem.tied is not None else problem.model.tree
    count, step = len(tree), STEP * share * parameters.prior[free]
    rank = np.array([np.sum(tree[:n] == tree[n]) for n in range(count)])
    groups: dict[tuple[int, int], list[int]] = {}
    for n, index in enumerate(free):
        key = (-1, int(index)) if index >= parameters.delay else (int(index) // count, int(rank[index % count]))
        groups.setdefault(key, []).append(n)
    cases = []
    for members in groups.values():
        case = theta.copy()
        case[free] += directions.basis[:, members] @ step[members]
        cases.append(case)
    changes = problem.predict(cases) - base
    found = []
    for number in sorted(set(tree)):
        joints = np.flatnonzero(tree == number)
        channels = np.arange(base.shape[1]) if len(joints) == count else np.concatenate([joints, joints + count])
        index, values = [], []
        for members, change in zip(groups.values(), changes, strict=True):
            for member in members:
                if free[member] >= parameters.delay or tree[free[member] % count] == number:
                    index.append(member)
                    values.append(change[:, channels] / step[member])
        if index:
            found.append(Columns(np.array(index, np.int64), channels, np.array(values)))
    return found


def initial_state(log: RobotLog, row: int) -> tuple[Array, Array]:
    """Return positions and speeds (J,) at a row: a cubic through the rows around it, of positions and speeds."""
    reach = max(SMOOTH_S, 2.5 * log.period)
    low, high = np.searchsorted(log.time, log.time[row] + np.array([-reach, reach]) + [-EPS, EPS])
    rows = np.arange(low, high)
    rows = rows[~log.repeated[rows]]
    if len(rows) < 4:
        return log.joint_pos[row].copy(), log.joint_vel[row].copy()
    t = (log.time[rows] - log.time[row]) / reach
    place = np.stack([t**k for k in range(4)], 1) / NOISE[0]
    speed = np.stack([k * t ** max(k - 1, 0) / reach for k in range(4)], 1) / NOISE[1]
    right = np.concatenate([log.joint_pos[rows] / NOISE[0], log.joint_vel[rows] / NOISE[1]])
    curve = np.linalg.lstsq(np.concatenate([place, speed]), right, rcond=None)[0]
    return curve[0], curve[1] / reach


def _cumulative(log: RobotLog) -> Array:
    """Return the integral of the target from the first row to each row."""
    pieces = log.target[:-1] * np.diff(log.time)[:, None]
    return np.concatenate([np.zeros((1, pieces.shape[1])), np.cumsum(pieces, axis=0)])


def blocks_of(windows: Sequence[Window], most: int = 10, enough: int = 4) -> NDArray[np.int64]:
    """Return the block of each window: its log, of fewer than `enough` logs runs of neighbors, some `most` in all."""
    sizes = [len(list(group)) for _, group in itertools.groupby(windows, key=lambda w: id(w.log))]
    found, number = [], 0
    for size in sizes:
        parts = min(size, max(1, round(most * size / sum(sizes)))) if len(sizes) < enough else 1
        found.append(number + np.arange(size) * parts // size)
        number += parts
    return np.concatenate(found)

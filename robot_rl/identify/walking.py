"""Windows of a robot on its feet: the base's state at each start by leg odometry, orientation and gyro from the IMU.

A log holds neither the height nor the velocity of the base. Both follow from the feet that carry the robot: the lowest
point of such a foot is on the floor and at rest. Between the rows the accelerometer carries the velocity. The error
that is left in a window's first state is removed from its residuals: their part along the derivatives with respect to
height and velocity is weakened by the prior of these (a Schur complement with a fixed linearization).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import UserError
from robot_rl.identify.parameters import FIELDS
from robot_rl.identify.plant_model import Drive, PlantModel
from robot_rl.identify.robot_log import RobotLog
from robot_rl.identify.windows import Problem, Window, cut_windows

Array = NDArray[np.float64]
REACH_S, SHORT_REACH_S = 0.2, 0.03
"""Rows within this time of a window's start show height and velocity of the base [s]; without an accelerometer."""
ROWS = 30
"""About so many rows are used of them."""
LEAST_FORCE = 0.12
"""A foot carries if its force by the torques is at least this share of the weight."""
LEAST_AGREEMENT = 4.0
"""An accelerometer whose mean is further from gravity is not used [m/s^2]."""
NEAR = 0.015
"""And if it is at most so much above the lowest foot [m]."""
OUTLIER = (0.003, 0.05)
"""Heights [m] and velocities [m/s] of the base by single feet that are off by more count less."""
STEP = 0.2
"""Step of their derivatives, as a share of their standard deviations."""
GYRO_S = 0.005
"""A window's first gyro is a line through the rows within this time [s]."""
BROKEN = 1e3
SINK = 0.002
"""Feet that land sink into a simulated floor, on the average of their stance by so much [m]."""
OFFSET = list(FIELDS).index("offset")
START_SPREAD = (0.003, 0.03, 0.03, 0.03)
"""Standard deviations of a window's first height [m] and velocity [m/s]."""


def rotation(quat_wxyz: Array) -> Array:
    """Return the matrices (N, 3, 3) of quaternions (N, 4)."""
    w, x, y, z = np.moveaxis(quat_wxyz / np.maximum(np.linalg.norm(quat_wxyz, axis=-1, keepdims=True), 1e-9), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), (0, 1), (-2, -1))


def unit(log: RobotLog) -> tuple[Array, Array]:
    """Return orientation (N, 4) and gyro (N, 3) of a log.

    Raises:
        UserError: The log is without.
    """
    if log.quat is None or log.gyro is None:
        raise UserError(f"{log.name}: is without {'quat' if log.quat is None else 'gyro'}, so its base is unknown")
    return log.quat, log.gyro


def gravity(quat_wxyz: Array) -> Array:
    """Return the direction of gravity in the base's frame, (N, 3)."""
    return -rotation(quat_wxyz)[..., 2, :]


@dataclass(frozen=True, slots=True)
class Feet:
    """The feet of a robot in some rows of a log, in the base's frame.

    Attributes:
        point: (N, F, 3) the lowest point [m].
        velocity: (N, F, 3) of it against the base's origin [m/s].
        force: (N, F) upwards by the joints' torques, as a share of the weight.
    """

    point: Array
    velocity: Array
    force: Array


class Odometry:
    """The base's height and velocity by the feet."""

    def __init__(self, model: PlantModel) -> None:
        """Prepare for a model with a free base."""
        import mujoco

        self._model, self._robot = model, model.robot
        self._data = mujoco.MjData(model.model)
        self._geoms = [model.model.geom(name).id for name in model.robot.feet]
        self._weight = float(model.model.body_mass.sum() * np.linalg.norm(model.model.opt.gravity))
        site = model.robot.imu_site
        self._imu = np.zeros(3) if site is None else model.model.site(site).pos.copy()
        at = model.dq_index - model.model.nq
        self._legs = [at[[self._moves(body, int(v)) for v in at]] for body in model.model.geom_bodyid[self._geoms]]

    def _moves(self, body: int, dof: int) -> bool:
        """Return whether a joint moves a body."""
        model = self._model.model
        while body > 0:
            if model.dof_bodyid[dof] == body:
                return True
            body = int(model.body_parentid[body])
        return False

    def feet(self, log: RobotLog, rows: NDArray[np.int64]) -> Feet:
        """Return the feet in some rows."""
        import mujoco

        model, data, count = self._model.model, self._data, len(self._geoms)
        quat, gyro = unit(log)
        down, at = gravity(quat[rows]), self._model.dq_index - model.nq
        torque, speed = np.zeros((len(rows), model.nv)), np.zeros((len(rows), model.nv))
        torque[:, at] = log.kp[rows] * (log.target[rows] - log.joint_pos[rows]) - log.kd[rows] * log.joint_vel[rows]
        speed[:, 3:6], speed[:, at] = gyro[rows], log.joint_vel[rows]
        point, jacobian = np.zeros((len(rows), count, 3)), np.zeros((len(rows), count, 3, model.nv))
        data.qpos[:7] = [0, 0, 0, 1, 0, 0, 0]
        for n, row in enumerate(rows):
            data.qpos[self._model.q_index] = log.joint_pos[row]
            mujoco.mj_kinematics(model, data)
            mujoco.mj_comPos(model, data)
            for k, geom in enumerate(self._geoms):
                point[n, k] = data.geom_xpos[geom] + self._robot.foot_radius * down[n]
                mujoco.mj_jac(model, data, jacobian[n, k], None, point[n, k], model.geom_bodyid[geom])
        velocity = np.einsum("nkiv,nv->nki", jacobian, speed)
        force = np.zeros((len(rows), count))
        for k, leg in enumerate(self._legs):
            part = jacobian[:, k][:, :, leg]
            square = np.einsum("niv,njv->nij", part, part) + 1e-6 * np.eye(3)
            pushed = np.linalg.solve(square, np.einsum("niv,nv->ni", part, -torque[:, leg])[..., None])[..., 0]
            force[:, k] = -np.einsum("ni,ni->n", pushed, down) / self._weight
        return Feet(point, velocity, force)

    def starts(self, log: RobotLog, firsts: Sequence[int]) -> Array:
        """Return height and velocity of the base, (W, 4) [m, m/s in the world], at some rows."""
        change, rise = self._carried(log)
        reach = REACH_S if change.any() else SHORT_REACH_S
        groups, every = [], max(1, round(2 * reach / ROWS / log.period))
        for first in firsts:  # Rows on one grid, so that windows share them.
            low, high = np.searchsorted(log.time, log.time[first] + np.array([-reach, reach]))
            groups.append(np.arange(-(-low // every) * every, high, every))
        rows, place = np.unique(np.concatenate(groups), return_inverse=True)
        feet, turn = self.feet(log, rows), rotation(unit(log)[0][rows])
        height = -np.einsum("nij,nkj->nki", turn, feet.point)[..., 2]
        velocity = -np.einsum("nij,nkj->nki", turn, feet.velocity)
        carries = self._carries(log, rows, feet, height)
        found, at = np.zeros((len(firsts), 4)), 0
        for w, (first, group) in enumerate(zip(firsts, groups, strict=True)):
            part = place[at : at + len(group)]
            at += len(group)
            after = log.time[group] - log.time[first]
            moved = change[group] - change[first]
            risen = rise[group] - rise[first] - change[first, 2] * after
            found[w, 1:] = _mean(velocity[part] - moved[:, None], carries[part])
            level, rising = _line(after, height[part] - risen[:, None], carries[part])
            found[w, 0], found[w, 3] = level, rising if reach == REACH_S else found[w, 3]
        return found

    def _carries(self, log: RobotLog, rows: NDArray[np.int64], feet: Feet, height: Array) -> Array:
        """Return how much each foot counts, (N, F)."""
        above = height.max(1, keepdims=True) - height  # The base is highest above the lowest foot.
        if log.feet is not None and log.feet.any():
            on = np.clip(log.feet[rows], 0.0, 1.0)
        else:
            on = ((feet.force > LEAST_FORCE) & (above < NEAR)).astype(float)
        return on + 1e-3 * np.exp(-above / NEAR)

    def _carried(self, log: RobotLog) -> tuple[Array, Array]:
        """Return the change of the base's velocity (N, 3) and height (N,) since the first row by the IMU, 0 without."""
        if log.accel is None:
            return np.zeros((len(log.time), 3)), np.zeros(len(log.time))
        quat, gyro = unit(log)
        turn, step = rotation(quat), np.diff(log.time)[:, None]
        force = np.einsum("nij,nj->ni", turn, log.accel) + self._model.model.opt.gravity
        if np.linalg.norm(force.mean(0)) > LEAST_AGREEMENT:  # It is turned against the orientation.
            return np.zeros((len(log.time), 3)), np.zeros(len(log.time))
        change = np.concatenate([np.zeros((1, 3)), np.cumsum(0.5 * (force[1:] + force[:-1]) * step, axis=0)])
        change -= np.einsum("nij,nj->ni", turn, np.cross(gyro, self._imu))
        rise = np.concatenate([[0.0], np.cumsum(0.5 * (change[1:, 2] + change[:-1, 2]) * step[:, 0])])
        return change, rise


class WalkingProblem(Problem):
    """Windows of a robot on its feet, to be predicted by a model with a free base.

    Gyro and direction of gravity are measured with positions and speeds. With `adapt`, the part of the residuals that
    other heights and velocities of the base at the windows' starts would explain is weakened.
    """

    def __init__(
        self,
        model: PlantModel,
        windows: Sequence[Window],
        *,
        rated_voltage: float = 0.0,
        tied: Sequence[int] | None = None,
        adapt: bool = True,
    ) -> None:
        """Prepare the windows."""
        super().__init__(model, windows, rated_voltage=rated_voltage, tied=tied)
        joints = len(model.robot.joints)
        self.channels |= {"gyro": slice(2 * joints, 2 * joints + 3), "gravity": slice(2 * joints + 3, 2 * joints + 6)}
        self._start = self._starts()
        self._parts: list[tuple[Array, Array]] = []
        if adapt:
            self._adapt()

    def _read(self, log: RobotLog, rows: NDArray[np.int64]) -> Array:
        quat, gyro = unit(log)
        return np.concatenate([super()._read(log, rows), gyro[rows], gravity(quat[rows])], 1)

    def _starts(self) -> Array:
        """Return MuJoCo's state at the windows' starts, (W, nq + nv)."""
        model, odometry = self.model, Odometry(self.model)
        found = np.zeros((len(self.windows), model.model.nq + model.model.nv))
        for log in {id(w.log): w.log for w in self.windows}.values():
            at = [n for n, w in enumerate(self.windows) if w.log is log]
            firsts = [self.windows[n].first for n in at]
            base, v = odometry.starts(log, firsts), model.model.nq
            found[at, 2], found[at, v : v + 3] = base[:, 0] - SINK, base[:, 1:]
            found[at, 3:7] = unit(log)[0][firsts]
            found[at, v + 3 : v + 6] = [_smooth(log, first) for first in firsts]
        found[:, model.q_index], found[:, model.dq_index] = self._q, self._dq
        return found

    def _simulate(self, thetas: Sequence[Array], drives: Sequence[Drive]) -> tuple[Array, ...]:
        model, start = self.model, np.repeat(self._start[None], len(thetas), 0)
        offset = np.array([model.by_joint(theta)[OFFSET] for theta in thetas])[:, None]
        start[..., model.q_index] -= offset
        states = np.concatenate([start[:, :, None], model.roll_out(thetas, start, drives)], 2)
        # A rollout that diverged is far from any measurement.
        states = np.clip(np.nan_to_num(states, nan=BROKEN), -BROKEN, BROKEN)
        v = model.model.nq
        parts = states[..., model.q_index] + offset[:, :, None], states[..., model.dq_index]
        return *parts, states[..., v + 3 : v + 6], gravity(states[..., 3:7])

    def predict(self, thetas: Sequence[Array]) -> Array:
        """Return the predictions, (C, M, K); see `Problem.predict`."""
        return self._weaken(super().predict(thetas))

    def _adapt(self) -> None:
        """Prepare how the residuals' part by the error of the starts is weakened.

        With residuals r = N s + e in standard deviations and s of covariance P, (I + N P N^T)^(-1/2) r is white.
        """
        nominal, sigma, start, columns = self.model.parameters.nominal, self.sigmas(0), self._start.copy(), []
        base, v = super().predict([nominal])[0], self.model.model.nq
        for at, width in zip((2, v, v + 1, v + 2), START_SPREAD, strict=True):
            self._start = start.copy()
            self._start[:, at] += STEP * width
            columns.append((super().predict([nominal])[0] - base) / STEP / sigma)
        self._start = start
        for first, end in itertools.pairwise([*self.first, len(base)]):
            block = np.stack([column[first:end].ravel() for column in columns], 1)
            basis, size, _ = np.linalg.svd(block, full_matrices=False)
            self._parts.append((basis, 1.0 - 1.0 / np.sqrt(1.0 + size**2)))
        self.measured = self._weaken(self.measured[None])[0]

    def _weaken(self, values: Array) -> Array:
        if not self._parts:
            return values
        found, sigma = values / self.sigmas(0), self.sigmas(0)
        ends = [*self.first, values.shape[1]]
        for (basis, share), first, end in zip(self._parts, ends[:-1], ends[1:], strict=True):
            flat = found[:, first:end].reshape(len(found), -1)
            part = np.einsum("cn,nk->ck", flat, basis) * share
            found[:, first:end] -= np.einsum("ck,nk->cn", part, basis).reshape(found[:, first:end].shape)
        return found * sigma


def walking_windows(logs: Sequence[RobotLog], seconds: float, every: float, skip: float = 0.1) -> list[Window]:
    """Return windows as `cut_windows`, without those in which gains change, as of a robot that gets up."""
    return [window for window in cut_windows(logs, seconds, every, skip=skip) if _constant(window)]


def _constant(window: Window) -> bool:
    rows = slice(window.first, int(window.rows[-1]) + 1)
    gains = np.concatenate([window.log.kp[rows], window.log.kd[rows]], 1)
    return bool((gains == gains[0]).all())


def _smooth(log: RobotLog, row: int) -> Array:
    """Return the gyro around a row."""
    low, high = np.searchsorted(log.time, log.time[row] + np.array([-GYRO_S, GYRO_S]))
    rows = np.arange(low, max(high, low + 1))
    gyro = unit(log)[1]
    slope = np.stack([np.ones(len(rows)), log.time[rows] - log.time[row]], 1)
    return np.linalg.lstsq(slope, gyro[rows], rcond=None)[0][0] if len(rows) > 2 else gyro[row]


def _mean(values: Array, weight: Array) -> Array:
    """Return the mean (3,) of velocities (N, F, 3), those far from it count less."""
    use = weight
    for _ in range(4):
        mean = np.einsum("nk,nki->i", use, values) / use.sum()
        use = weight / (1.0 + (np.linalg.norm(values - mean, axis=2) / OUTLIER[1]) ** 2)
    return mean


def _line(after: Array, height: Array, weight: Array) -> tuple[float, float]:
    """Return height and speed at time 0 by a line through heights (N, F), those far from it count less."""
    use, t = weight, np.broadcast_to(after[:, None], height.shape)
    level = speed = 0.0
    for _ in range(4):
        total, mean, first = use.sum(), (use * t).sum(), (use * height).sum()
        square = (use * t * t).sum() + 1e-4 * total  # Without a spread of times the speed is 0.
        speed = ((use * t * height).sum() - mean * first / total) / (square - mean**2 / total)
        level = (first - speed * mean) / total
        use = weight / (1.0 + ((height - level - speed * t) / OUTLIER[0]) ** 2)
    return float(level), float(speed)

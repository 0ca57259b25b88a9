"""A network in place of the motors: trained on logged torques, rolled out open loop, and compared with the fit.

It is the network of `robot_rl_envs.actuation.ActuatorNet`: one for all joints, from position errors and speeds at some
lags to the motor's torque. It is worth its file only if it predicts the held-out log clearly better than the fitted
parameters: a network can learn a motor that saturates, and it also learns the noise of its torques.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from robot_rl_assets.robot import Robot
from robot_rl_envs.actuation import ActuatorNet, NetFile, load_actuator_net

from robot_rl.errors import UserError, as_user_error
from robot_rl.files import read_plain
from robot_rl.identify.parameters import Parameters
from robot_rl.identify.plant_model import Drive, PlantModel
from robot_rl.identify.result import BETTER, NetEntry
from robot_rl.identify.robot_log import RobotLog
from robot_rl.identify.windows import Problem, Window

if TYPE_CHECKING:
    import torch

Array = NDArray[np.float64]
Torque = Callable[[Array, Array], Array]
"""Torques (J,) [N m] of errors [rad] and speeds [rad/s], each (J, lags)."""
LAGS, LAG_S = 3, 0.006
"""Number of lags, and about how far apart they are [s]; a lag is a whole multiple of a task's timestep."""
WIDTH, STEPS, BATCH, RATE = 32, 2000, 512, 4e-3
"""Units of the two hidden layers; iterations, rows of each and the first learning rate of the training."""
JITTER = 0.01
"""By such a share of a step, a command's time may be inexact: one that comes with a torque is not yet its cause."""
LEAST_ROWS = 100
"""A log with fewer usable rows trains no network."""
MOST_BYTES, MOST_LAG_S = 2**24, 0.5


@dataclass(kw_only=True, slots=True)
class Network:
    """A network that was compared with the fitted parameters.

    Attributes:
        net: The network.
        entry: The comparison, as the result stores it.
        held: The held-out windows, predicted with it.
        theta: The joints' parameters in these predictions.
    """

    net: NetFile
    entry: NetEntry
    held: NetworkProblem
    theta: Array


class NetworkProblem(Problem):
    """Windows that are predicted with a network's torques in place of the servos'.

    The torque is computed in every step, as in a task. Before a window's start, errors and speeds are the log's.
    """

    def __init__(self, model: PlantModel, windows: Sequence[Window], torque: Torque, lags_s: Sequence[float]) -> None:
        """See `Problem`; `lags_s` are the ages of the errors and speeds that `torque` gets [s]."""
        super().__init__(model, windows)
        self._torque, steps = torque, np.array(lags_s) / model.timestep
        older = np.floor(steps + 1e-6).astype(np.int64)
        self._older, self._blend = older, np.clip(steps - older, 0.0, 1.0)[:, None]
        self._depth, self._driven = int(older.max()) + 1, np.array([not joint.passive for joint in model.robot.joints])
        before = model.timestep * np.arange(-self._depth, 0)
        self._past = [_inputs(w.log, w.log.time[w.first] + before, model.timestep) for w in self.windows]

    def _make_drive(self, delay: float) -> Drive:
        drive = super()._make_drive(delay)
        return replace(drive, kd=np.zeros_like(drive.kd))

    def _simulate(self, thetas: Sequence[Array], drives: Sequence[Drive]) -> tuple[Array, ...]:
        return self.model.simulate(thetas, self._q, self._dq, drives, self._law)

    def _law(self, window: int) -> Callable[[Array, Array], Array]:
        """Return the torques by a step's errors and speeds, (J,) each; called once for each step of a window."""
        errors, speeds = (list(values) for values in self._past[window])

        def law(error: Array, speed: Array) -> Array:
            errors.append(error)
            speeds.append(speed.copy())
            newer = [len(errors) - 1 - older for older in self._older]
            x, v = (
                (1.0 - self._blend) * np.array([values[n] for n in newer])
                + self._blend * np.array([values[n - 1] for n in newer])
                for values in (errors, speeds)
            )
            return np.where(self._driven, self._torque(x.T, v.T), 0.0)

        return law


def compare(
    net: NetFile, model: PlantModel, windows: Sequence[Sequence[Window]], fitted: Array, *, than: float, file: str = ""
) -> Network:
    """Compare a network with fitted parameters on the held-out windows.

    Its rollouts have the model's armature, damping and friction, or the fitted ones: those that predict the fitted
    logs better.

    Args:
        net: The network.
        model: The robot, at the timestep of the rollouts.
        windows: The fitted windows, and the held-out ones.
        fitted: The fitted vector of parameters.
        than: The error of positions that the parameters have on the held-out windows at this timestep [rad].
        file: The network's file; "" for one that was trained on the fitted logs.
    """
    tests, holds = (NetworkProblem(model, some, net.torque, net.lags_s) for some in windows)
    cases = {"model": model.parameters.nominal, "fitted": _without_motors(model.parameters, fitted)}
    found = {name: tests.errors(theta)["q"] for name, theta in cases.items()}
    dynamics = min(found, key=lambda name: found[name])
    errors = holds.errors(cases[dynamics])
    ratio = errors["q"] / than
    used = ratio <= BETTER
    content = Path(file).read_bytes() if file else net.to_bytes() if used else b""
    entry = NetEntry(
        file=file,
        sha256=hashlib.sha256(content).hexdigest() if content else "",
        trained=not file,
        lags_s=list(net.lags_s),
        timestep=model.timestep,
        dynamics=dynamics,
        errors=errors,
        ratio=ratio,
        used=used,
    )
    return Network(net=net, entry=entry, held=holds, theta=cases[dynamics])


def can_train(logs: Sequence[RobotLog], robot: Robot) -> bool:
    """Return whether all logs have torques, and none of the robot's joints follows a speed."""
    usable = all(_usable(log).sum() > LEAST_ROWS for log in logs if log.torque is not None)
    return usable and all(log.torque is not None for log in logs) and not any(joint.by_speed for joint in robot.joints)


def read_network(file: str, robot: Robot, timesteps: Sequence[float]) -> NetFile:
    """Read a network's file; refuse one of another robot, or with lags that fit none of the tasks' timesteps [s].

    Raises:
        UserError: The file cannot be read, or cannot drive this robot.
    """
    if any(joint.by_speed for joint in robot.joints):
        raise UserError("net", file, f"a joint of {robot.name} follows a speed, a network only positions", "use net=no")
    try:
        read_plain(Path(file), MOST_BYTES)
    except FileNotFoundError:
        raise UserError("net", file, "no such file", "name a network of robot-rl identify, or use net=auto") from None
    with as_user_error():
        net = load_actuator_net(file)
    if net.robot not in ("", robot.name):
        raise UserError("net", file, f"is of the robot {net.robot}, the logs are of {robot.name}")
    if max(net.lags_s) > MOST_LAG_S:
        raise UserError("net", file, f"a lag of {max(net.lags_s):g} s is longer than {MOST_LAG_S:g} s")
    if timesteps and not any(fits(net, timestep) for timestep in timesteps):
        lags, steps = (", ".join(f"{1e3 * value:.3g}" for value in values) for values in (net.lags_s, timesteps))
        raise UserError(
            "net", file, f"its lags of {lags} ms are not whole timesteps of a task of {robot.name} ({steps} ms)"
        )
    return net


def fits(net: NetFile, timestep: float) -> bool:
    """Return whether a network's lags are whole multiples of a timestep [s]."""
    try:
        ActuatorNet().lag_steps(net, timestep)
    except ValueError:
        return False
    return True


def train(logs: Sequence[RobotLog], timestep: float, robot: Robot) -> NetFile:
    """Train a network on the torques of logs, with the same bits at any number of threads.

    Args:
        logs: The logs.
        timestep: Of the simulation in which it will act [s].
        robot: The robot.
    """
    import torch

    lags_s = tuple(n * timestep * max(1, round(LAG_S / timestep)) for n in range(LAGS))
    driven = np.array([not joint.passive for joint in robot.joints])
    parts = zip(*(_samples(log, lags_s, timestep, driven) for log in logs), strict=True)
    errors, speeds, torques = (np.concatenate(part) for part in parts)
    scales = [1.0 / (float(np.std(values)) + 1e-6) for values in (errors, speeds)]
    size = float(np.std(torques)) + 1e-6
    x = np.concatenate([scale * values for scale, values in zip(scales, (errors, speeds), strict=True)], 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        layers = _descend(*(torch.tensor(values, dtype=torch.float32) for values in (x, torques[:, None] / size)))
    finally:
        torch.set_num_threads(threads)
    return NetFile(
        layers=layers,
        lags_s=lags_s,
        error_scale=scales[0],
        velocity_scale=scales[1],
        output_scale=size,
        robot=robot.name,
    )


def _descend(x: torch.Tensor, y: torch.Tensor) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Return the layers of a network that was fitted to samples by Adam on the mean squared error."""
    import torch
    from torch.nn import Linear, Softsign

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            Linear(x.shape[1], WIDTH), Softsign(), Linear(WIDTH, WIDTH), Softsign(), Linear(WIDTH, 1)
        )
        optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
        decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, STEPS)
        for _ in range(STEPS):
            at = torch.randint(len(x), (BATCH,))
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(net(x[at]), y[at]).backward()
            optimizer.step()
            decay.step()
    return [(m.weight.detach().numpy(), m.bias.detach().numpy()) for m in net if isinstance(m, Linear)]


def _samples(
    log: RobotLog, lags_s: Sequence[float], timestep: float, driven: NDArray[np.bool_]
) -> tuple[Array, Array, Array]:
    """Return errors and speeds (N, lags) and torques (N,) of all driven joints in usable rows.

    A simulation holds a torque for a step, so each row is the middle of one; its state is that of half a step before,
    and a command acts on the torque after it.
    """
    assert log.torque is not None
    rows = _usable(log) & (log.time >= log.time[0] + max(lags_s) + timestep)
    pairs = [_inputs(log, log.time[rows] - 0.5 * timestep - lag, timestep) for lag in lags_s]
    errors, speeds = (np.stack([pair[k][:, driven] for pair in pairs], -1).reshape(-1, len(lags_s)) for k in (0, 1))
    return errors, speeds, log.torque[rows][:, driven].ravel()


def _usable(log: RobotLog) -> NDArray[np.bool_]:
    """Return the rows (N,) that are measured, with the log's most frequent gains of servos that act."""
    gains = np.concatenate([log.kp, log.kd], 1)
    kinds, kind, counts = np.unique(gains, axis=0, return_inverse=True, return_counts=True)
    acts = (kinds[:, : log.kp.shape[1]] > 0).any(1)
    found = (kind.ravel() == np.argmax(counts * acts)) & ~log.repeated
    return found if log.torque is None else found & np.isfinite(log.torque).all(1)


def _inputs(log: RobotLog, time: Array, timestep: float) -> tuple[Array, Array]:
    """Return errors and speeds (N, J) at the beginnings of steps; the targets are those in the middle of the steps."""
    row = np.clip(np.searchsorted(log.time, time + (0.5 - JITTER) * timestep) - 1, 0, None)
    measured = ~log.repeated
    q, dq = (
        np.stack([np.interp(time, log.time[measured], column) for column in values[measured].T], 1)
        for values in (log.joint_pos, log.joint_vel)
    )
    return log.target[row] - q, dq


def _without_motors(parameters: Parameters, theta: Array) -> Array:
    """Return a vector with the joints' own parameters; gain, delay and an error of kd belong to the network."""
    found = theta.copy()
    for name in ("gain", "delay"):
        found[parameters.indices(name)] = parameters.nominal[parameters.indices(name)]
    at = parameters.indices("damping")
    found[at] = np.maximum(found[at], 0.0)
    return found

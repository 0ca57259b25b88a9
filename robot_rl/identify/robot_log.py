"""A robot's log as arrays: read from the binary's .mcap or from an .npz, and checked."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from robot_rl_assets.robot import Robot

from robot_rl.errors import UserError
from robot_rl.identify.plant_model import joint_limits

Array = NDArray[np.float64]
NAMES = ("time", "q", "dq", "target", "kp", "kd")
"""The arrays that an .npz needs; `OPTIONAL` are read if they are there, and "joints", the joints' names."""
OPTIONAL = ("torque", "voltage", "quat", "gyro", "accel", "feet")
MOST_REPEATED = 0.2
MOST_BYTES = 2**31
LAG_SPAN_S = 0.06
LEAST_MOTION, LEAST_SHARE = 0.01, 0.05
"""A joint that moves less than this [rad or m], or than this share of its range, is not excited."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RobotLog:
    """States and commands of a robot with J joints, N rows; joints in the robot's order.

    A row's command holds from its time until the next row's.

    Attributes:
        name: The file's name.
        sha256: Of the file.
        time: (N,) increasing [s].
        joint_pos: (N, J) measured [rad].
        joint_vel: (N, J) measured [rad/s].
        target: (N, J) of the position [rad].
        kp: (N, J) [N m/rad].
        kd: (N, J) [N m s/rad].
        repeated: (N,) rows whose state is the previous row's again although the robot moves: it was not measured then.
        torque: (N, J) measured [N m], None without.
        voltage: (N,) of the supply [V], None without.
        quat: (N, 4) of the base, w first, None without.
        gyro: (N, 3) [rad/s], None without.
        accel: (N, 3) [m/s^2], None without.
        feet: (N, F) contact 0 or 1, None without.
        notes: Properties of the log that a user should know, one line each.
    """

    name: str
    sha256: str
    time: Array
    joint_pos: Array
    joint_vel: Array
    target: Array
    kp: Array
    kd: Array
    repeated: NDArray[np.bool_]
    torque: Array | None = None
    voltage: Array | None = None
    quat: Array | None = None
    gyro: Array | None = None
    accel: Array | None = None
    feet: Array | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def period(self) -> float:
        """Return the median time between rows [s]."""
        return float(np.median(np.diff(self.time)))

    @property
    def seconds(self) -> float:
        """Return the length [s]."""
        return float(self.time[-1] - self.time[0])

    def cut(self, begin: float, end: float) -> RobotLog:
        """Return the rows from `begin` to before `end`, shares of the log's time."""
        first, last = np.searchsorted(self.time, self.time[0] + np.array([begin, end]) * self.seconds)
        rows = slice(int(first), len(self.time) if end >= 1.0 else int(last))
        arrays = ("time", "joint_pos", "joint_vel", "target", "kp", "kd", "repeated", *OPTIONAL)
        found = {key: getattr(self, key) for key in arrays}
        return replace(self, **{key: None if value is None else value[rows] for key, value in found.items()})


def read_log(path: str | Path, robot: Robot) -> RobotLog:
    """Read and check a log.

    Args:
        path: An .mcap that robot-rl-infer wrote, or an .npz with the arrays of `NAMES`.
        robot: The robot; another one's joints or contract are refused.

    Raises:
        UserError: The file cannot be read, or its content cannot be used; the line names the array or joint.
    """
    return make_log(str(path), *read_arrays(path, robot), robot)


def read_arrays(path: str | Path, robot: Robot) -> tuple[str, dict[str, Any]]:
    """Return the sha256 and the arrays of a log, joints in the robot's order; see `read_log`."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file; name a log, *.mcap or *.npz")
    if path.suffix not in (".mcap", ".npz"):
        raise UserError(f"{path}: is neither *.mcap nor *.npz")
    if path.stat().st_size > MOST_BYTES:
        raise UserError(f"{path}: is larger than 2 GiB; cut it")
    arrays = _read_mcap(path, robot) if path.suffix == ".mcap" else _read_npz(path, robot)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return digest, arrays


def make_log(name: str, sha256: str, arrays: Mapping[str, Any], robot: Robot, *, strict: bool = True) -> RobotLog:
    """Return a checked log of arrays with the names of an .npz; see `read_log`.

    Not strict, positions outside the limits and many repeated rows are accepted.
    """
    found = check_arrays(name, arrays, robot)
    count = len(found["time"])
    whole = np.isfinite(np.concatenate([found[key].reshape(count, -1) for key in NAMES], 1)).all(1)
    notes = []
    if dropped := int(count - whole.sum()):
        notes.append(f"{dropped} rows with NaN are dropped")
        found = {key: value[whole] for key, value in found.items()}
    if len(found["time"]) < 20:
        raise UserError(f"{name}: has {len(found['time'])} rows; too few")
    _check_time(name, found["time"])
    if strict:
        _check_units(name, found, robot)
    repeated, note = _find_repeated(name, found, MOST_REPEATED if strict else 1.0)
    notes += note
    if lag := speed_lag(found["time"], found["q"], found["dq"]):
        notes.append(f"speeds are {1e3 * lag:.1f} ms later than positions and are shifted by it")
        time = found["time"]
        found["dq"] = np.stack([np.interp(time, time - lag, speed) for speed in found["dq"].T], 1)
    renamed = {"q": "joint_pos", "dq": "joint_vel"}
    return RobotLog(
        name=name,
        sha256=sha256,
        repeated=repeated,
        notes=tuple(notes),
        **{renamed.get(key, key): value for key, value in found.items()},
    )


def check_arrays(name: str, arrays: Mapping[str, Any], robot: Robot) -> dict[str, Array]:
    """Return the arrays of a log as numbers of the right shapes, gains in each row; or raise UserError."""
    found: dict[str, Array] = {}
    for key in (*NAMES, *OPTIONAL):
        try:
            found |= {key: np.asarray(arrays[key], np.float64)} if key in arrays else {}
        except (TypeError, ValueError):
            raise UserError(f"{name}: {key} must be an array of numbers") from None
    _check_shapes(name, found, robot)
    for key in ("kp", "kd"):
        found[key] = np.broadcast_to(found[key], found["q"].shape).copy()
    return found


def speed_lag(time: Array, q: Array, dq: Array) -> float:
    """Return how much later than positions the measured speeds are [s]; 0 if that explains little of their difference.

    Some motors filter the speed that they report. Positions change over `LAG_SPAN_S` by the integral of the speeds.
    """
    step, half = max(float(np.median(np.diff(time))), 1e-3), 0.5 * LAG_SPAN_S
    lags = np.arange(-0.02, 0.0405, 0.001)
    grid = np.arange(time[0] + half + 0.04, time[-1] - half - 0.04, step)
    if len(grid) < 100:
        return 0.0
    off = np.zeros(len(lags))
    for place, speed in zip(q.T, dq.T, strict=True):
        integral = np.concatenate([[0.0], np.cumsum(0.5 * (speed[1:] + speed[:-1]) * np.diff(time))])
        change = np.interp(grid + half, time, place) - np.interp(grid - half, time, place)
        for n, lag in enumerate(lags):
            moved = np.interp(grid + half + lag, time, integral) - np.interp(grid - half + lag, time, integral)
            off[n] += np.mean((change - moved) ** 2)
    best = int(np.argmin(off))
    late = abs(lags[best]) > max(0.6 * step, 0.002) and off[best] < 0.5 * np.interp(0.0, lags, off)
    return float(lags[best]) if late else 0.0


def check_excitation(logs: Sequence[RobotLog], robot: Robot, omit: tuple[str, ...] = ()) -> None:
    """Raise UserError if logs cannot show a joint's parameters: all damping, or a joint that moves in none of them."""
    name = logs[0].name
    if not any((log.kp > 0).any() for log in logs):
        raise UserError(f"{name}: kp is 0 in all rows, so it is all damping; play an excitation")
    moved = np.max([np.ptp(log.joint_pos, axis=0) for log in logs], axis=0)
    commanded = np.max([np.ptp(log.target, axis=0) for log in logs], axis=0)
    least = np.minimum(LEAST_MOTION, LEAST_SHARE * np.ptp(joint_limits(robot)[0], axis=1))
    for n, joint in enumerate(robot.joints):
        if joint.name in omit or joint.passive:
            continue
        for what, most in (("target", commanded[n]), ("position", moved[n])):
            if most < least[n]:
                line = f"the {what} of {joint.name} changes by {1e3 * most:.1f} mrad only"
                raise UserError(f"{name}: {line}; excite this joint, or omit it with omit={joint.name}")


def _read_npz(path: Path, robot: Robot) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in (*NAMES, *OPTIONAL, "joints") if key in file.files}
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({(error.strerror or str(error)).lower()})") from None
    except (ValueError, EOFError, BadZipFile, zlib.error):  # NumPy proposes to load other content as a pickle.
        raise UserError(f"{path}: is not an .npz of plain arrays; write it with numpy.savez") from None
    if "joints" not in arrays:
        return arrays
    names = [str(name) for name in arrays.pop("joints").ravel()]
    order = _order(str(path), names, robot)
    joint_wise = ("q", "dq", "target", "kp", "kd", "torque")
    for key in joint_wise:
        if key in arrays and arrays[key].ndim and arrays[key].shape[-1] == len(names):
            arrays[key] = arrays[key][..., order]
    return arrays


def _order(name: str, names: list[str], robot: Robot) -> list[int]:
    """Return the places of the robot's joints in `names`."""
    missing = [joint for joint in robot.joint_names if joint not in names]
    extra = [joint for joint in names if joint not in robot.joint_names]
    if missing or extra:
        words = [
            f"without {', '.join(missing[:3])}" if missing else "",
            f"with {', '.join(extra[:3])}" if extra else "",
        ]
        raise UserError(f"{name}: is a log of another robot than {robot.name}: {' and '.join(filter(None, words))}")
    return [names.index(joint) for joint in robot.joint_names]


def _read_mcap(path: Path, robot: Robot) -> dict[str, Any]:
    """Return the arrays of a binary's log: a row for each state, and the newest command before the next state."""
    import json

    from robot_rl.sim2sim.binary import load_runtime

    runtime = load_runtime()
    try:
        tail = runtime.LogTail(str(path))
        events = tail.read(topics=("/state", "/command"))
        if not tail.contract:
            raise UserError(f"{path}: is empty or cut off before its first state; name another log")
        contract = json.loads(tail.contract)
    except (runtime.UserError, runtime.ContractError, ValueError) as error:
        raise UserError(f"{path}: {error}") from None
    order = _order(str(path), [joint["name"] for joint in contract["joints"]], robot)
    states = [event for event in events if event["topic"] == "/state"]
    commands = [event for event in events if event["topic"] == "/command"]
    if not states or not commands:
        raise UserError(f"{path}: holds no {'states' if not states else 'commands'}; nothing to identify")
    received = np.array([event["receive_time_ns"] for event in states], np.int64)
    sent = np.array([event["send_time_ns"] for event in commands], np.int64)
    until = np.append(received[1:], received[-1] + np.median(np.diff(received)).astype(np.int64))
    answer = np.searchsorted(sent, until, "left") - 1
    time, shown = _clock(np.array([event["robot_time_ns"] for event in states], np.int64), received)
    keep = (answer >= 0) & shown
    command = {
        key: np.array([event[key] for event in commands], np.float64)[answer[keep]][:, order]
        for key in ("q", "dq", "kp", "kd", "tau")
    }
    state = {
        key: np.array([event[key] for event in states], np.float64)[keep]
        for key in ("joint_pos", "joint_vel", "joint_effort", "quat_wxyz", "gyro", "acc", "foot_contact")
    }
    # A speed and a torque in a command act as a shift of the target.
    shift = command["kd"] * command["dq"] + command["tau"]
    target = command["q"] + np.divide(shift, command["kp"], out=np.zeros_like(shift), where=command["kp"] > 0)
    found = {
        "time": time[keep],
        "q": state["joint_pos"][:, order],
        "dq": state["joint_vel"][:, order],
        "target": target,
        "kp": command["kp"],
        "kd": command["kd"],
        "quat": state["quat_wxyz"],
        "gyro": state["gyro"],
        "accel": state["acc"],
        "feet": state["foot_contact"],
    }
    if state["joint_effort"].any():
        found["torque"] = state["joint_effort"][:, order]
    return found


def _clock(robot_ns: NDArray[np.int64], received_ns: NDArray[np.int64]) -> tuple[Array, NDArray[np.bool_]]:
    """Return the times of states [s], by the robot's own clock if it has one: a message may have been late.

    Of several states at one time of the robot's, as a simulation that waits sends, only the last counts: (N,) bool. A
    clock that stands in more than a fifth of the states is too coarse.
    """
    moves = np.append(np.diff(robot_ns) > 0, True)
    if robot_ns[0] > 0 and (np.diff(robot_ns) >= 0).all() and moves.mean() > 1.0 - MOST_REPEATED:
        return (robot_ns - robot_ns[0]) * 1e-9, moves
    return (received_ns - received_ns[0]) * 1e-9, np.ones(len(received_ns), bool)


def robot_of(path: str | Path) -> str:
    """Return the name of the robot in a binary's log.

    Raises:
        UserError: It is not such a log, so the robot has to be named.
    """
    from robot_rl.sim2sim.binary import load_runtime

    if Path(path).suffix != ".mcap":
        raise UserError("robot: is missing; name the robot of the log, such as robot=unitree_go2")
    runtime = load_runtime()
    try:
        return str(runtime.log_about(path)["run"]["robot"])
    except (runtime.UserError, runtime.ContractError, KeyError) as error:
        raise UserError(f"{path}: {error}") from None


def _check_shapes(name: str, found: Mapping[str, Array], robot: Robot) -> None:
    count = len(robot.joints)
    for key in NAMES:
        if key not in found:
            raise UserError(f"{name}: is without the array '{key}'; needs {', '.join(NAMES)}")
    rows = found["time"].size
    if found["time"].ndim != 1:
        raise UserError(f"{name}: time has the shape {found['time'].shape}; must be (rows,)")
    for key in ("q", "dq", "target", "kp", "kd", "torque"):
        right = ((rows, count), (count,)) if key in ("kp", "kd") else ((rows, count),)
        if key in found and found[key].shape not in right:
            word = f"{key} has the shape {found[key].shape}"
            raise UserError(f"{name}: {word}; must be {' or '.join(map(str, right))}: {robot.name} has {count} joints")
    for key, width in (("voltage", 0), ("quat", 4), ("gyro", 3), ("accel", 3), ("feet", len(robot.feet))):
        right = (rows, width) if width else (rows,)
        if key in found and found[key].shape != right:
            raise UserError(f"{name}: {key} has the shape {found[key].shape}; must be {right}")
    if (found["kp"] < 0).any() or (found["kd"] < 0).any():
        raise UserError(f"{name}: kp or kd is negative; must be 0 or more")


def _check_time(name: str, time: Array) -> None:
    steps = np.diff(time)
    if (steps <= 0).any():
        row = int(np.flatnonzero(steps <= 0)[0]) + 1
        raise UserError(f"{name}: time does not increase at row {row} ({time[row - 1]:g} s, then {time[row]:g} s)")
    if not 1e-4 <= np.median(steps) <= 0.1:
        line = f"rows are {np.median(steps):g} apart"
        raise UserError(f"{name}: {line}; time must be measured, in seconds, at 10 rows a second or more")


def _check_units(name: str, found: Mapping[str, Array], robot: Robot) -> None:
    """Refuse positions far outside the joints' limits: degrees, or another robot."""
    limits = joint_limits(robot)[0]
    outside = np.maximum(limits[:, 0] - found["q"], found["q"] - limits[:, 1]).max(0)
    worst = int(np.argmax(outside))
    if outside[worst] > 1.0:
        most = found["q"][np.abs(found["q"][:, worst]).argmax(), worst]
        low, high = limits[worst]
        degrees = "; q must be in rad, these are perhaps degrees" if np.abs(found["q"]).max() > 2 * np.pi else ""
        line = f"{robot.joints[worst].name} is at {most:.3g}, its limits are {low:.3g} and {high:.3g} rad"
        raise UserError(f"{name}: {line}{degrees or '; is it a log of another robot?'}")


def _find_repeated(name: str, found: Mapping[str, Array], most: float) -> tuple[NDArray[np.bool_], list[str]]:
    """Return the rows that repeat a state while the robot moves, and notes; refuse a log with too many."""
    q, dq, time = found["q"], found["dq"], found["time"]
    same = np.zeros(len(time), bool)
    same[1:] = (np.diff(q, axis=0) == 0).all(1) & (np.diff(dq, axis=0) == 0).all(1)
    steps = np.abs(np.diff(q, axis=0))
    finest = np.min(np.where(steps > 1e-7, steps, np.inf), axis=0)
    moving = np.zeros(len(time), bool)
    moving[1:] = (np.abs(dq[1:]) * np.diff(time)[:, None] > 2.0 * finest).any(1)
    repeated = same & moving
    share = repeated.sum() / max(int(moving.sum()), 1)
    if share > most:
        raise UserError(f"{name}: {100 * share:.0f} % of the rows repeat the one before; log each state once")
    if not repeated.any():
        return repeated, []
    notes = [f"{100 * share:.1f} % of the rows repeat the one before and are not compared"]
    steps = np.diff(time)
    if np.ptp(steps) < 1e-3 * np.median(steps):
        notes.append("its time is exactly even although rows repeat: it was made up, and the jitter is unknown")
    return repeated, notes

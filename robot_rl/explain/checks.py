"""What a log shows without a simulation: frozen encoders, repeated rows, rate, units, signals that contradict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from robot_rl_assets.robot import Robot

from robot_rl.identify.plant_model import joint_limits
from robot_rl.identify.walking import rotation

Array = NDArray[np.float64]
FROZEN_S = 0.25
"""A position that stays the same for so long while its target moves is frozen [s]."""
MOVES = 0.05
"""A target moves if it changes by more [rad]."""
MOST_REPEATED = 0.05
LONG_GAP_S = 0.02
SLOW_HZ = 100.0
DEGREES = 180.0 / np.pi
NORM = 0.02
"""The most by which the norm of a quaternion is off."""
GRAVITY = 9.81
AGREES = 0.5
"""Correlation of a speed with the derivative of its position, at least."""
OUTSIDE = 0.02
"""Share of rows in which a target may be outside its joint's limits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A cause that a check named.

    Attributes:
        cause: In words.
        size: How much of it.
        advice: What to do.
        first_s: Since when [s], None: always.
        joints: The joints that it concerns.
        breaks: Whether it alone explains a failure; else it is a remark.
    """

    cause: str
    size: str
    advice: str
    first_s: float | None = None
    joints: tuple[str, ...] = field(default=())
    breaks: bool = True


def check(arrays: Mapping[str, Array], robot: Robot) -> tuple[list[Finding], dict[str, Array]]:
    """Return findings, and the arrays in the right units, until an encoder freezes.

    Args:
        arrays: As `robot_rl.identify.robot_log.check_arrays` returns them.
        robot: The robot.
    """
    found, good = [], dict(arrays)
    for step in (_degrees, _quaternion, _gyro_unit, _accelerometer, _speeds, _targets, _rows, _frozen):
        more, good = step(good, robot)
        found += more
    return found, good


def _degrees(arrays: dict[str, Array], robot: Robot) -> tuple[list[Finding], dict[str, Array]]:
    """Positions, targets and speeds in degrees."""
    limits = joint_limits(robot)[0]
    found, good = [], dict(arrays)
    for key, words in (("q", "measured positions"), ("target", "targets")):
        off = np.maximum(limits[:, 0] - arrays[key], arrays[key] - limits[:, 1])
        low = np.maximum(limits[:, 0] - arrays[key] / DEGREES, arrays[key] / DEGREES - limits[:, 1])
        if np.nanmean(off > 1.0) > 0.2 and np.nanmean(low > 0.2) < 0.02:
            keys = ("q", "dq") if key == "q" else ("target",)
            good |= {name: arrays[name] / DEGREES for name in keys}
            most = f"up to {np.nanmax(np.abs(arrays[key])):.0f}"
            found.append(Finding(cause=f"{words} are in degrees", size=most, advice="log and send radians"))
    return found, good


def _quaternion(arrays: dict[str, Array], _: Robot) -> tuple[list[Finding], dict[str, Array]]:
    """A quaternion whose norm is not 1."""
    if "quat" not in arrays:
        return [], arrays
    norm = np.linalg.norm(arrays["quat"], axis=1)
    off = np.nanmedian(np.abs(norm - 1.0))
    if not off > NORM:
        return [], arrays
    words = Finding(
        cause="the orientation's quaternion is not of norm 1",
        size=f"norm {np.nanmedian(norm):.3g}",
        advice="check its four numbers and their scale; the norm of a rotation is 1",
    )
    if np.nanmedian(norm) < 0.1:
        return [words], {key: value for key, value in arrays.items() if key not in ("quat", "gyro", "accel")}
    return [words], arrays


def _gyro_unit(arrays: dict[str, Array], _: Robot) -> tuple[list[Finding], dict[str, Array]]:
    """A gyro in degrees per second: compared with the turning of the orientation in size."""
    if "quat" not in arrays or "gyro" not in arrays:
        return [], arrays
    turned = turning(arrays["time"], arrays["quat"])
    size, by_quat = (np.nanpercentile(np.linalg.norm(rows, axis=1), 80) for rows in (arrays["gyro"], turned))
    if not 0.7 * DEGREES < size / max(by_quat, 1e-3) < 1.4 * DEGREES:
        return [], arrays
    words = Finding(
        cause="the gyro is in degrees per second",
        size=f"{size / by_quat:.0f} times the turning of the orientation",
        advice="divide it by 57.3",
    )
    return [words], arrays | {"gyro": arrays["gyro"] / DEGREES}


def turning(time: Array, quat_wxyz: Array, span_s: float = 0.03) -> Array:
    """Return the angular velocity in the base's frame by the orientation, (N, 3) [rad/s], over `span_s`."""
    half = max(1, round(0.5 * span_s / float(np.median(np.diff(time)))))
    turn, rows = rotation(quat_wxyz), np.arange(len(time))
    low, high = np.maximum(rows - half, 0), np.minimum(rows + half, len(rows) - 1)
    change = np.einsum("nji,njk->nik", turn[low], turn[high])
    skew = 0.5 * (change - np.swapaxes(change, 1, 2))
    span = np.maximum(time[high] - time[low], 1e-6)[:, None]
    return np.stack([skew[:, 2, 1], skew[:, 0, 2], skew[:, 1, 0]], 1) / span


def _accelerometer(arrays: dict[str, Array], _: Robot) -> tuple[list[Finding], dict[str, Array]]:
    """An accelerometer in g, or without gravity."""
    if "accel" not in arrays:
        return [], arrays
    size = float(np.nanmedian(np.linalg.norm(arrays["accel"], axis=1)))
    if abs(size - GRAVITY) < 3.0:
        return [], arrays
    rest = {key: value for key, value in arrays.items() if key != "accel"}
    if size == 0.0:
        advice = "log it: with it the motion of the base is known better"
        return [Finding(cause="the accelerometer reads 0", size="in most rows", advice=advice, breaks=False)], rest
    if abs(size - 1.0) < 0.15:
        words = Finding(
            cause="the accelerometer is in g",
            size=f"its norm is {size:.2f}",
            advice="multiply it by 9.81",
            breaks=False,
        )
        return [words], rest | {"accel": arrays["accel"] * GRAVITY}
    cause = "the accelerometer is without gravity" if size < 4.0 else "the accelerometer has another unit"
    advice = "log the specific force: at rest it is 9.81 m/s^2 upwards"
    return [Finding(cause=cause, size=f"its norm is {size:.2f} m/s^2", advice=advice, breaks=False)], rest


def _speeds(arrays: dict[str, Array], robot: Robot) -> tuple[list[Finding], dict[str, Array]]:
    """Speeds that are not the derivatives of their positions: another sign, another joint, another unit."""
    time, dq = arrays["time"], arrays["dq"]
    half = max(1, round(0.01 / float(np.median(np.diff(time)))))
    if len(time) < 20 * half:
        return [], arrays
    slope = (arrays["q"][2 * half :] - arrays["q"][: -2 * half]) / (time[2 * half :] - time[: -2 * half])[:, None]
    kernel = np.ones(2 * half + 1) / (2 * half + 1)
    mean = np.stack([np.convolve(column, kernel, "valid") for column in dq.T], 1)
    moves = slope.std(0) > 0.2
    with np.errstate(invalid="ignore", divide="ignore"):
        centered = [rows - rows.mean(0) for rows in (slope, mean)]
        together = centered[0].T @ centered[1] / len(slope)
        alike = np.nan_to_num(together / np.outer(slope.std(0), mean.std(0)))
    own, best, names, found = np.diag(alike), np.abs(alike).max(1), robot.joint_names, []
    other = [n for n in np.flatnonzero(moves) if best[n] > max(0.8, abs(own[n]) + 0.2)]
    flipped = [n for n in np.flatnonzero(moves) if own[n] < -AGREES and n not in other]
    if flipped:
        words = ", ".join(names[n] for n in flipped)
        found.append(
            Finding(
                cause=f"speeds of {words} have the other sign than their positions",
                size=f"correlation {own[flipped].mean():.2f}",
                advice="turn the sign of these speeds",
                joints=tuple(names[n] for n in flipped),
            )
        )
    if other:
        pairs = ", ".join(f"{names[n]} is that of {names[int(np.abs(alike[n]).argmax())]}" for n in other[:4])
        found.append(
            Finding(
                cause=f"speeds and positions are in different orders: the position of {pairs}",
                size=f"{len(other)} joints",
                advice="use one order of joints for positions and speeds",
                joints=tuple(names[n] for n in other),
            )
        )
    signs = np.ones(len(names))
    signs[flipped] = -1.0
    return found, arrays | {"dq": dq * signs}


def _targets(arrays: dict[str, Array], robot: Robot) -> tuple[list[Finding], dict[str, Array]]:
    """Targets outside the joints' limits."""
    limits = joint_limits(robot)[0]
    off = np.maximum(limits[:, 0] - arrays["target"], arrays["target"] - limits[:, 1])
    share = np.nanmean((off > OUTSIDE) & (arrays["kp"] > 0), axis=0)
    joints = np.flatnonzero(share > 0.2)
    if not len(joints):
        return [], arrays
    names = tuple(robot.joint_names[n] for n in joints)
    words = Finding(
        cause=f"targets of {', '.join(names[:4])} are outside the limits",
        size=f"{100 * share[joints].max():.0f} % of the rows, by up to {np.nanmax(off[:, joints]):.2f} rad",
        advice="compare the default pose and the order of joints with the contract",
        joints=names,
        breaks=False,
    )
    return [words], arrays


def _rows(arrays: dict[str, Array], _: Robot) -> tuple[list[Finding], dict[str, Array]]:
    """Repeated rows, gaps, a slow rate."""
    time, found = arrays["time"], []
    steps = np.diff(time)
    same = (np.diff(arrays["q"], axis=0) == 0).all(1) & (np.diff(arrays["dq"], axis=0) == 0).all(1)
    gap, period = float(steps.max()), float(np.median(steps))
    if same.mean() > MOST_REPEATED:
        size = f"{100 * same.mean():.0f} % of the rows"
        advice = "log each state once; a policy that reads them sees an older robot"
        found.append(Finding(cause="states repeat", size=size, advice=advice, breaks=bool(same.mean() > 0.4)))
    if gap > max(LONG_GAP_S, 3.0 * period):
        at = float(time[int(steps.argmax())] - time[0])
        advice = "look for a blocked process or a lost connection"
        found.append(
            Finding(cause="the log has a gap", size=f"{1e3 * gap:.0f} ms", advice=advice, first_s=at, breaks=False)
        )
    if period > 1.0 / SLOW_HZ:
        size, advice = (
            f"{1.0 / period:.0f} rows a second",
            "log each state; a simulation needs 100 rows a second or more",
        )
        found.append(Finding(cause="the log is slow", size=size, advice=advice, breaks=False))
    return found, arrays


def _frozen(arrays: dict[str, Array], robot: Robot) -> tuple[list[Finding], dict[str, Array]]:
    """Encoders that stop while their targets move; the rows after it are omitted."""
    time, least, found, until = arrays["time"], FROZEN_S, [], len(arrays["time"])
    for n, joint in enumerate(robot.joints):
        if joint.passive:
            continue
        first, last = _longest(arrays["q"][:, n])
        others = np.delete(arrays["q"][first : last + 1], n, axis=1)
        target = arrays["target"][first : last + 1, n]
        moved = (
            len(target) > 1
            and np.ptp(target) > MOVES
            and (others.shape[1] == 0 or np.ptp(others, axis=0).max() > MOVES)
        )
        if time[last] - time[first] > least and moved:
            at = float(time[first] - time[0])
            cause = f"the encoder of {joint.name} is frozen"
            size = f"for {time[last] - time[first]:.2f} s, while its target moves by {np.ptp(target):.2f} rad"
            advice = "check the cable and the motor's own report"
            found.append(Finding(cause=cause, size=size, advice=advice, first_s=at, joints=(joint.name,)))
            until = min(until, first)
    return found, {key: value[:until] for key, value in arrays.items()} if found else arrays


def _longest(values: Array) -> tuple[int, int]:
    """Return the first and the last row of the longest run of equal values."""
    change = np.flatnonzero(np.diff(values) != 0) + 1
    edges = np.concatenate([[0], change, [len(values)]])
    n = int(np.argmax(np.diff(edges)))
    return int(edges[n]), int(edges[n + 1]) - 1

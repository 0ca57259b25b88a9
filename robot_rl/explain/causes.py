"""Discrete causes: each repairs the log that it is the cause of, and has its advice."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from robot_rl_assets.robot import Robot

from robot_rl.identify.robot_log import RobotLog
from robot_rl.identify.start_values import limbs
from robot_rl.identify.walking import unit

Array = NDArray[np.float64]
BOTH, SENT, READ = ("joint_pos", "joint_vel", "target", "kp", "kd"), ("target", "kp", "kd"), ("joint_pos", "joint_vel")
SIDES = (
    (BOTH, "", "the joint map"),
    (SENT, " of commands", "the map of commands"),
    (READ, " of states", "the map of states"),
)
"""Arrays of a log, how they are called, and the map that orders them."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A discrete cause.

    Attributes:
        name: In words.
        advice: What to do.
        repair: From the log as it is to the log of a robot without this cause.
        imu: Whether it concerns the inertial unit, so that a robot that hangs does not show it.
    """

    name: str
    advice: str
    repair: Callable[[RobotLog], RobotLog]
    imu: bool = False


def causes(robot: Robot) -> list[Cause]:
    """Return all discrete causes of a robot."""
    return [*_orders(robot), *_signs(robot), *_quaternions(), *_mountings(), *_gyros()]


def _orders(robot: Robot) -> list[Cause]:
    """Joints in another order, in the log of commands, of states, or both."""
    found, seen, count = [], set(), len(robot.joints)
    for name, advice, order in _permutations(robot):
        if tuple(order) in seen or list(order) == list(range(count)):
            continue
        seen.add(tuple(order))
        for arrays, of, where in SIDES:
            found.append(Cause(f"joint order{of}: {name}", f"{advice} in {where}", _reordered(arrays, order)))
    return found


def _permutations(robot: Robot) -> list[tuple[str, str, list[int]]]:
    """Return wrong orders with their names and advice; element n is the place in the log at which joint n is."""
    groups, count, found = limbs(robot), len(robot.joints), []
    identity = list(range(count))
    alike: dict[int, list[str]] = {}
    for name, group in groups.items():
        alike.setdefault(len(group), []).append(name)
    for names in alike.values():
        pairs = list(itertools.combinations(names, 2))
        for one, two in pairs:
            found.append(
                (f"{one} and {two} are swapped", f"swap {one} and {two}", _swapped(identity, groups, [(one, two)]))
            )
        for first, second in itertools.combinations(pairs, 2):
            if not {*first} & {*second}:
                words = " and ".join(f"{a} with {b}" for a, b in (first, second))
                found.append((f"{words} are swapped", f"swap {words}", _swapped(identity, groups, [first, second])))
    found.append(("all joints are in the reverse order", "reverse the order", identity[::-1]))
    within = list(identity)
    for group in groups.values():
        for a, b in zip(group, reversed(group), strict=True):
            within[a] = b
    words = "the joints of each limb are in the reverse order"
    found.append((words, "reverse the order within each limb", within))
    size = max(alike, key=lambda length: len(alike[length]))
    if len(alike[size]) > 1 and size > 1 and len(alike[size]) * size == count:
        table = np.array([groups[name] for name in alike[size]])
        by_kind = np.empty(count, int)  # The log holds all joints of a kind, then all of the next.
        by_kind[table.T.ravel()] = np.arange(count)
        by_limb = np.empty(count, int)
        by_limb[np.arange(count)] = table.T.ravel()
        words = "joints are ordered by kind, not by limb"
        found.append((words, f"use the order {', '.join(robot.joint_names[:size])}, ...", by_kind.tolist()))
        words = "the conversion between orders by limb and by kind goes the wrong way"
        found.append((words, "invert the conversion", by_limb.tolist()))
    return found


def _swapped(identity: list[int], groups: dict[str, tuple[int, ...]], pairs: Sequence[tuple[str, str]]) -> list[int]:
    order = list(identity)
    for one, two in pairs:
        for a, b in zip(groups[one], groups[two], strict=True):
            order[a], order[b] = b, a
    return order


def _reordered(arrays: Sequence[str], order: Sequence[int]) -> Callable[[RobotLog], RobotLog]:
    return lambda log: replace(log, **{key: getattr(log, key)[:, list(order)] for key in arrays})


def _signs(robot: Robot) -> list[Cause]:
    """Single joints, and all joints of a kind, with the other sign."""
    found = []
    for n, joint in enumerate(robot.joints):
        for arrays, of, where in SIDES:
            signs = np.ones(len(robot.joints))
            signs[n] = -1.0
            advice = f"turn the sign of {joint.name} in {where}"
            found.append(Cause(f"sign{of} of {joint.name}", advice, _signed(arrays, signs)))
    by_kind = [tuple(column) for column in zip(*limbs(robot).values(), strict=False)]
    for column in by_kind:
        if len(column) > 1:
            signs = np.ones(len(robot.joints))
            signs[list(column)] = -1.0
            names = ", ".join(robot.joint_names[n] for n in column)
            found.append(Cause(f"sign of {names}", f"turn the signs of {names} in the joint map", _signed(BOTH, signs)))
    return found


def _signed(arrays: Sequence[str], signs: Array) -> Callable[[RobotLog], RobotLog]:
    keys = [key for key in arrays if key not in ("kp", "kd")]
    return lambda log: replace(log, **{key: getattr(log, key) * signs for key in keys})


def product(one: Array, two: Array) -> Array:
    """Return products of quaternions (..., 4), w first."""
    a, b = np.moveaxis(np.asarray(one, float), -1, 0), np.moveaxis(np.asarray(two, float), -1, 0)
    rows = [
        a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
        a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
        a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
        a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
    ]
    return np.stack(np.broadcast_arrays(*rows), -1)


def _quaternions() -> list[Cause]:
    conjugate = np.array([1.0, -1.0, -1.0, -1.0])

    def changed(change: Callable[[Array], Array]) -> Callable[[RobotLog], RobotLog]:
        return lambda log: replace(log, quat=change(unit(log)[0]))

    return [
        Cause(
            "quaternion order: w is last",
            "reorder the quaternion: (x, y, z, w) to (w, x, y, z)",
            changed(lambda quat: np.roll(quat, 1, axis=1)),
            True,
        ),
        Cause(
            "quaternion conjugated",
            "conjugate the quaternion: it turns the world into the base, and must turn the base into the world",
            changed(lambda quat: quat * conjugate),
            True,
        ),
        Cause(
            "quaternion order and conjugated",
            "reorder the quaternion, (x, y, z, w) to (w, x, y, z), and conjugate it",
            changed(lambda quat: np.roll(quat, 1, axis=1) * conjugate),
            True,
        ),
    ]


def _mountings() -> list[Cause]:
    """The unit sits turned in the base: all 23 orientations of a cube."""
    found, root = [], np.sqrt(0.5)
    names = "xyz"
    single = {}
    for axis in range(3):
        for angle, cosine, sine in ((90, root, root), (-90, root, -root), (180, 0.0, 1.0)):
            quat = np.zeros(4)
            quat[0], quat[1 + axis] = cosine, sine
            single[f"{angle:+d} degrees about {names[axis]}"] = quat
    turns = dict(single)
    for (one, a), (two, b) in itertools.product(single.items(), single.items()):
        both = product(a, b)
        if all(abs(abs(both @ other)) < 0.99 for other in turns.values()) and abs(both[0]) < 0.99:
            turns[f"{one}, then {two}"] = both
    for words, turn in turns.items():
        # A vector v in the base's frame is read as R^T v, if R turns the unit's axes into the base's.
        upside = " (upside down)" if words.startswith("+180 degrees about x") and "," not in words else ""
        advice = f"measured in another frame: turn the IMU's readings by {words}"
        found.append(Cause(f"IMU mounted turned by {words}{upside}", advice, _turned(turn), True))
    return found


def _turned(turn: Array) -> Callable[[RobotLog], RobotLog]:
    """Return the repair of a unit whose axes are the base's, turned by a quaternion."""
    inverse = turn * np.array([1.0, -1.0, -1.0, -1.0])

    def vector(rows: Array) -> Array:
        return product(product(turn, np.concatenate([np.zeros((len(rows), 1)), rows], 1)), inverse)[:, 1:]

    def repair(log: RobotLog) -> RobotLog:
        accel, (quat, gyro) = None if log.accel is None else vector(log.accel), unit(log)
        return replace(log, quat=product(quat, inverse), gyro=vector(gyro), accel=accel)

    return repair


def _gyros() -> list[Cause]:
    """The gyro's axes in another order or with another sign, the orientation being right."""
    found, names = [], "xyz"
    for order in itertools.permutations(range(3)):
        if order != (0, 1, 2):
            words = ", ".join(names[n] for n in order)
            swapped = [names[n] for n in range(3) if order[n] != n]
            name = (
                f"gyro axes {' and '.join(swapped)} swapped" if len(swapped) == 2 else f"gyro axes in the order {words}"
            )
            found.append(
                Cause(name, f"reorder the gyro's axes: take ({words}) for (x, y, z)", _gyro(order, (1, 1, 1)), True)
            )
    for signs in itertools.product((1, -1), repeat=3):
        if signs != (1, 1, 1):
            axes = " and ".join(names[n] for n in range(3) if signs[n] < 0) if min(signs) < max(signs) else "all axes"
            found.append(
                Cause(f"gyro sign of {axes}", f"turn the sign of the gyro's {axes}", _gyro((0, 1, 2), signs), True)
            )
    return found


def _gyro(order: Sequence[int], signs: Sequence[int]) -> Callable[[RobotLog], RobotLog]:
    return lambda log: replace(log, gyro=unit(log)[1][:, list(order)] * np.array(signs, float))

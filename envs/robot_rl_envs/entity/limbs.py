"""A point at the end of a limb: the hand of an arm, or a foot; and how freely its joints move it in a pose."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
from robot_rl_assets.robot import Robot

from robot_rl_envs.entity.robot_checks import Finding, compile_robot

STRETCHED = 0.2
"""If the end of a limb moves in some direction at less than this share of its usual speed, the limb is stretched."""
SAMPLES = 200
"""Random poses whose median is usual."""
LEAST_JOINTS = 3
"""An arm has at least so many driven joints."""
_TOOL = re.compile(r"(?i)(^|[^a-z])(tool|tcp|ee|eef|hand|tip|end[_-]?effector|grasp|gripper)(?![a-z])")
_SENSOR = re.compile(r"(?i)(^|[^a-z])(cam|camera|imu|sensor|lidar|optical|ft|force)(?![a-z])")


@dataclass(frozen=True, slots=True)
class Point:
    """A point at the end of a limb.

    Attributes:
        name: of a site or a foot; or of a body, and the point is its origin.
        body: the index of its body.
        pos: its place in that body (3,) [m].
    """

    name: str
    body: int
    pos: np.ndarray

    def position(self, data: mujoco.MjData) -> np.ndarray:
        """Return its place (3,) [m], world frame."""
        return data.xpos[self.body] + data.xmat[self.body].reshape(3, 3) @ self.pos


def find_hand(model: mujoco.MjModel, driven: Sequence[str], name: str = "") -> Point:
    """Return the hand of an arm: a site between fingers, else a frame at the end of the chain, else its last body.

    A frame is a body without mass and without shapes that touch, fixed to the last link and with nothing below it. One
    with the name of a tool is preferred; another counts if it is the only one, and not that of a sensor.

    Args:
        model: the robot.
        driven: names of the joints that are driven.
        name: a site or a body to use instead; empty for the rule.

    Raises:
        ValueError: the model lacks a site or body of that name.
    """
    sites = [model.site(k).name for k in range(model.nsite)]
    bodies = [model.body(k).name for k in range(1, model.nbody)]
    if name and name not in (*sites, *bodies):
        raise ValueError(f"hand={name}: is not a site or body of the model; there are {', '.join((*sites, *bodies))}")
    tips = [name] if name else [one for one in sites if one.endswith("tcp")] or [one for one in sites if "grasp" in one]
    if tips and tips[0] in sites:
        site = model.site(tips[0])
        return Point(tips[0], int(site.bodyid[0]), site.pos.copy())
    if name:
        return Point(name, int(model.body(name).id), np.zeros(3))
    last = max(int(model.joint(one).bodyid[0]) for one in driven)
    touching = {int(body) for body in model.geom_bodyid[model.geom_conaffinity != 0]}
    taken = touching | set(map(int, model.body_parentid))
    frames = [k for k in np.flatnonzero((model.body_weldid == last) & (model.body_mass == 0.0)) if int(k) not in taken]
    tools = [k for k in frames if _TOOL.search(model.body(k).name)]
    others = [k for k in frames if not _SENSOR.search(model.body(k).name)]
    body = int(tools[-1] if tools else others[0] if len(others) == 1 else last)
    return Point(model.body(body).name, body, np.zeros(3))


class Limb:
    """Joints that move a point of a robot while its base is held.

    Attributes:
        tip: the point.
        joints: indices of the joints.
        ranges: of the joints (n, 2) [rad or m]; -pi to pi without limits.
        moves: whether the point moves along x, y and z (3,).
    """

    def __init__(self, model: mujoco.MjModel, tip: Point, joints: Sequence[int]) -> None:
        self.model, self.data = model, mujoco.MjData(model)
        self.tip, self.joints = tip, list(joints)
        limited = model.jnt_limited[self.joints] != 0
        ranges = np.clip(model.jnt_range[self.joints], -math.pi, math.pi)
        self.ranges = np.where(limited[:, None], ranges, (-math.pi, math.pi))
        low, high = self.ranges.T
        draws = np.random.default_rng(0).uniform(low, high, (SAMPLES, len(self.joints)))
        rows = [self.jacobian(pose)[:3] for pose in draws] if self.joints else [np.zeros((3, 0))]
        self._usual = np.median([_speeds(one) for one in rows], axis=0)
        self._rank = int(np.sum(self._usual > 1e-3 * self._usual[0]))
        self.moves = np.median([np.linalg.norm(one, axis=1) for one in rows], axis=0) > 1e-3 * self._usual[0]

    def jacobian(self, pose: np.ndarray) -> np.ndarray:
        """Move the joints to a pose [rad or m]; return the speed of the point for each joint's (6, n).

        The first three rows are its velocity [m/s], the last three the angular velocity of its body, world frame.
        """
        self.data.qpos[self.model.jnt_qposadr[self.joints]] = pose
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)
        rows = np.zeros((6, self.model.nv))
        mujoco.mj_jac(self.model, self.data, rows[:3], rows[3:], self.tip.position(self.data), self.tip.body)
        return rows[:, self.model.jnt_dofadr[self.joints]]

    def slowest(self, rows: np.ndarray) -> float:
        """Return the speed of the point in its slowest direction for joint speeds of size 1.

        Directions in which it never moves, such as out of the plane of a planar arm, do not count.

        Args:
            rows: of the Jacobian (3, n).
        """
        return float(_speeds(rows)[self._rank - 1]) if self._rank else 0.0

    def freedom(self, pose: np.ndarray) -> float:
        """Return how fast the point moves in its slowest direction, as a share of the median over the joints' ranges.

        A stretched limb has 0: this is the smallest singular value of the Jacobian.

        Args:
            pose: positions of `joints` [rad or m].
        """
        return self.slowest(self.jacobian(pose)[:3]) / float(self._usual[self._rank - 1]) if self._rank else 0.0


class Arm(Limb):
    """An arm: driven joints that move its hand.

    Attributes:
        is_single: whether it is one chain of three driven joints or more, with joints of fingers at most at its end.
    """

    def __init__(self, model: mujoco.MjModel, driven: Sequence[str]) -> None:
        hand = find_hand(model, driven)
        chain = chain_of(model, hand.body)
        ids = [int(model.joint(name).id) for name in driven]
        super().__init__(model, hand, [k for k in ids if int(model.jnt_bodyid[k]) in chain])
        palm = chain[min(1, len(chain) - 1)]
        rest = [k for k in ids if k not in self.joints]
        fingers = [k for k in rest if palm in chain_of(model, int(model.jnt_bodyid[k]))]
        self.is_single = len(self.joints) >= LEAST_JOINTS and len(fingers) == len(rest)


def _speeds(rows: np.ndarray) -> np.ndarray:
    """Return the singular values of rows of a Jacobian (3, n), the largest first, filled with zeros to (3,)."""
    speeds, found = np.zeros(3), np.linalg.svd(rows, compute_uv=False)
    speeds[: len(found)] = found
    return speeds


def chain_of(model: mujoco.MjModel, body: int) -> list[int]:
    """Return a body and those above it, without the world."""
    found = []
    while body:
        found.append(body)
        body = int(model.body_parentid[body])
    return found


def check_stretched(robot: Robot) -> list[Finding]:
    """Return a note if the default pose of an arm is at the boundary of its reach."""
    driven = [joint for joint in robot.joints if joint.kp]
    if robot.complete or robot.base_body is not None or len(driven) < LEAST_JOINTS:
        return []
    arm = Arm(compile_robot(robot), [joint.name for joint in driven])
    default = {joint.name: joint.default_pos for joint in robot.joints}
    for name, value in default.items():
        arm.data.joint(name).qpos[0] = value
    share = arm.freedom(np.array([default[arm.model.joint(k).name] for k in arm.joints]))
    if not arm.is_single or share >= STRETCHED:
        return []
    line = f"its hand '{arm.tip.name}' moves there in one direction at {100 * share:.0f} % of its usual speed"
    return [Finding(False, f"default_pos: the arm is at the boundary of its reach; {line}; bend it, as at an elbow")]


def bend(arm: Arm, pose: np.ndarray, *, floor: float) -> np.ndarray:
    """Return a pose near another one in which the hand of an arm moves freely in every direction.

    Joints are turned one by one to the middle or to a quarter of their range, and only for more than 5 % of freedom, so
    that those that do not matter stay. A hand in front of its first joint, along x, is preferred to one behind it.

    Args:
        arm: the arm.
        pose: positions of its joints [rad or m].
        floor: least height of a body's origin [m].
    """
    bodies = sorted({int(arm.model.jnt_bodyid[k]) for k in arm.joints} | {arm.tip.body})

    def score(values: np.ndarray) -> float:
        freedom = arm.freedom(values)
        if arm.data.xpos[bodies, 2].min() < floor:
            return -1.0
        ahead = arm.tip.position(arm.data)[0] - arm.data.xpos[bodies[0], 0]
        return freedom * (1.1 if ahead > 1e-6 else 1.0)

    best = np.array(pose)
    points = [low + np.array([0.75, 0.25, 0.5]) * (high - low) for low, high in arm.ranges]
    for _, k in itertools.product(range(3), reversed(range(len(best)))):
        for value in points[k]:
            other = best.copy()
            other[k] = round(float(value), 3)
            if score(other) > max(1.05 * score(best), 1e-3):
                best = other
    return best

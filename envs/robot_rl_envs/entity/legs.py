"""Legs of a robot with a floating base: how freely they move their feet, and a bent pose for straight ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from robot_rl_assets.robot import Robot

from robot_rl_envs.entity.limbs import Limb, Point, chain_of
from robot_rl_envs.entity.robot_checks import Finding, Pose, compile_robot
from robot_rl_envs.motions.kinematics import support

if TYPE_CHECKING:
    import mujoco

TURNS = np.linspace(-1.2, 1.2, 9)
"""Turns of a joint that are tried for a bent leg [rad]."""
STRAIGHT, FREE = 0.1, 0.25
"""Mobility up to which a leg is straight, and from which it is bent enough: lengths of the leg per rad."""
LEAST_HEIGHT = 0.6
"""A bent leg is at least so high, as a share of the straight one."""
CROUCH = 0.08
"""How far a leg with a sole is shortened, as a share of its length."""
SEARCHED = 3
"""A leg with more joints has a sole, which stays level."""
LEANS = (0.2, 0.35, 0.5)
"""Angles by which the last link of a leg without a sole leans while it stands [rad]."""


def find_legs(model: mujoco.MjModel, base: str, feet: Sequence[Point], driven: Sequence[str]) -> list[Limb]:
    """Return the leg of each foot below the base that is moved by driven joints, in the pose of the model at rest.

    Args:
        model: the robot.
        base: its floating base.
        feet: its feet.
        driven: names of the joints that are driven to positions.
    """
    ids, root = [int(model.joint(name).id) for name in driven], int(model.body(base).id)
    found = []
    for foot in feet:
        chain = chain_of(model, foot.body)
        chain = chain[: chain.index(root)] if root in chain else []
        if joints := [k for k in ids if int(model.jnt_bodyid[k]) in chain]:
            found.append(Limb(model, foot, joints))
    return found


def robot_legs(robot: Robot) -> list[Limb]:
    """Return the legs of a robot in its default pose.

    Raises:
        ValueError: its model does not compile.
    """
    if robot.complete or robot.base_body is None:
        return []
    model = compile_robot(robot)
    feet = [Point(foot, int(model.geom(foot).bodyid[0]), model.geom(foot).pos.copy()) for foot in robot.feet]
    legs = find_legs(model, robot.base_body, feet, [joint.name for joint in robot.joints if joint.kp])
    pose = Pose(robot, model)
    for leg in legs:
        leg.data.qpos[:] = pose.data.qpos
    return legs


def pose_of(robot: Robot, leg: Limb) -> np.ndarray:
    """Return the default positions of the joints of a leg [rad or m]."""
    default = {joint.name: joint.default_pos for joint in robot.joints}
    return np.array([default[leg.model.joint(k).name] for k in leg.joints])


def strides(robot: Robot) -> np.ndarray:
    """Return how far an action of 1 moves each foot along x, y and z from the default pose (n, 3) [m].

    It is the sum over the joints of its leg of |J| * action_scale, with the Jacobian J of the foot.
    """
    scale = {joint.name: joint.action_scale for joint in robot.joints}
    found = []
    for leg in robot_legs(robot):
        scales = np.array([scale[leg.model.joint(k).name] for k in leg.joints])
        found.append(np.abs(leg.jacobian(pose_of(robot, leg))[:3]) @ scales)
    return np.array(found).reshape(-1, 3)


def describe_strides(robot: Robot) -> list[str]:
    """Return a line on how far feet move; none without legs.

    Raises:
        ValueError: its model does not compile.
    """
    ways = 100.0 * strides(robot)
    if not len(ways):
        return []
    spans = [
        f"{low:.1f}" if high - low < 0.05 else f"{low:.1f} to {high:.1f}"
        for low, high in zip(ways.min(0), ways.max(0), strict=True)
    ]
    return [f"an action of 1 moves a foot by {spans[0]} cm along x, {spans[1]} along y and {spans[2]} along z"]


def check_straight(robot: Robot) -> list[Finding]:
    """Return a note if legs are straight in the default pose, so that their feet cannot be moved in some direction."""
    shares = [(mobility(leg, pose_of(robot, leg)), leg.tip.name) for leg in robot_legs(robot)]
    straight = sorted(one for one in shares if one[0] < STRAIGHT)
    if not straight:
        return []
    names = ", ".join(name for _, name in straight)
    line = f"a foot moves there in one direction by {100 * straight[0][0]:.0f} % of the leg's length per rad"
    return [Finding(False, f"default_pos: straight legs ({names}): {line}; bend them, as at a knee")]


def overhang(
    model: mujoco.MjModel, data: mujoco.MjData, geoms: Sequence[int], reach: Callable[[np.ndarray], float]
) -> float:
    """Return by how much a foot must be lower so that it touches before the edges of a leaning link [m].

    Args:
        model: the robot.
        data: its pose.
        geoms: shapes of the link.
        reach: how far the foot extends along a direction (3,) in the world frame [m].
    """
    least = 0.0
    for lean, turn in itertools.product(LEANS, np.linspace(0.0, 2.0 * math.pi, 8, endpoint=False)):
        toward = np.array([math.sin(lean) * math.cos(turn), math.sin(lean) * math.sin(turn), -math.cos(lean)])
        far = max((float(support(model, data, geom, toward) @ toward) for geom in geoms), default=-math.inf)
        least = max(least, (far - reach(toward)) / math.cos(lean))
    return least


def mobility(leg: Limb, pose: np.ndarray) -> float:
    """Return how far a foot moves for a turn of 1 rad of the joints in the worst direction, in lengths of the leg.

    It is the least of its ways along x, y and z, which are the norms of the rows of its Jacobian, and of twice the
    smallest singular value, which is 0 for a straight knee. Directions in which it never moves do not count.

    Args:
        leg: the leg.
        pose: positions of its joints [rad or m].
    """
    rows = leg.jacobian(pose)[:3]
    ways = np.linalg.norm(rows, axis=1)[leg.moves]
    return float(min([*ways, 2.0 * leg.slowest(rows)], default=0.0)) / _length(leg)


def _length(leg: Limb) -> float:
    """Return the length of a leg along its links [m]."""
    bodies = sorted({int(leg.model.jnt_bodyid[k]) for k in leg.joints})
    points = np.array([*leg.data.xpos[bodies], leg.tip.position(leg.data)])
    return max(float(np.linalg.norm(np.diff(points, axis=0), axis=1).sum()), 1e-6)


def bend_leg(leg: Limb, pose: np.ndarray) -> np.ndarray:
    """Return a pose near another one in which a leg moves its foot freely; the same if there is none.

    A leg of three joints or fewer is turned as little as possible until it moves freely, with its foot near its place,
    and its knee above the foot, behind rather than ahead. One with more joints has a sole: it is shortened by 8 %, with
    its sole level and at its place.

    Args:
        leg: the leg; its data has the rest of the robot's pose.
        pose: positions of its joints [rad or m].
    """
    found = _crouch(leg, pose) if len(leg.joints) > SEARCHED else _search(leg, pose)
    return found if mobility(leg, found) > mobility(leg, pose) + 0.02 else np.array(pose)


def _search(leg: Limb, pose: np.ndarray) -> np.ndarray:
    bodies = sorted({int(leg.model.jnt_bodyid[k]) for k in leg.joints})
    leg.jacobian(pose)
    start, hip = leg.tip.position(leg.data), leg.data.xpos[bodies[0]].copy()
    length = _length(leg)
    best, least = np.array(pose), np.inf
    values = [value + TURNS for value in pose]
    inside = [v[(v >= low) & (v <= high)] for v, (low, high) in zip(values, leg.ranges, strict=True)]
    for turned in itertools.product(*inside):
        other = np.array(turned).round(3)
        missing = max(0.0, FREE - mobility(leg, other))
        foot, joints = leg.tip.position(leg.data), leg.data.xpos[bodies]
        is_low = foot[2] < joints[:, 2].min() - 0.1 * length
        is_high = hip[2] - foot[2] >= LEAST_HEIGHT * (hip[2] - start[2])
        if not is_low or not is_high or abs(foot[1] - joints[-1, 1]) > 0.05 * length:
            continue
        shift = float(np.linalg.norm(foot[:2] - start[:2])) / length
        behind = float(joints[:, 0].mean()) / length
        cost = 10.0 * missing + 0.05 * np.abs(other - pose).sum() + 0.5 * shift + 0.05 * behind
        if cost < least:
            best, least = other, cost
    return best


def _crouch(leg: Limb, pose: np.ndarray) -> np.ndarray:
    """Raise the sole by damped least squares; joints near an end of their range are first turned inward."""
    low, high = leg.ranges.T
    leg.jacobian(pose)
    rotation = leg.data.xmat[leg.tip.body].reshape(3, 3).copy()
    length = _length(leg)
    target = leg.tip.position(leg.data) + np.array([0.0, 0.0, CROUCH * length])
    middle = 0.5 * (low + high)
    aside = np.abs(middle - pose) > 0.25 * (high - low)
    found = np.where(aside, pose + 0.2 * np.sign(middle - pose), pose)
    error = np.zeros(6)
    for _ in range(200):
        rows = leg.jacobian(found)
        turn = leg.data.xmat[leg.tip.body].reshape(3, 3)
        error[:3] = target - leg.tip.position(leg.data)
        error[3:] = 0.5 * np.cross(turn.T, rotation.T).sum(axis=0)
        step = rows.T @ np.linalg.solve(rows @ rows.T + 1e-4 * np.eye(6), error)
        found = np.clip(found + step, low, high)
    leg.jacobian(found)
    missed = float(np.linalg.norm(target - leg.tip.position(leg.data)))
    return found.round(3) if missed < 0.25 * CROUCH * length else np.array(pose)

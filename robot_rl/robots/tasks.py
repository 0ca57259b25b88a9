"""Facts that the first task of a robot needs: whether it walks, drives or reaches, how fast, and where."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from robot_rl.errors import UserError, as_user_error
from robot_rl.robots.shapes import round_about_joint
from robot_rl.robots.writing import quoted
from robot_rl.settings.checks import check_choice

if TYPE_CHECKING:
    from robot_rl_assets.robot import Robot

TASK_KINDS = ("auto", "pose", "velocity", "reach", "drive")
TURN = 0.6
"""How far from the default pose joints are turned to find the places that a hand reaches [rad or m]."""
FOLDED, HALF_STRETCHED = 0.3, 0.6
"""Shares of its reach: a hand nearer than the first is folded, and targets are drawn around the second instead."""
GAIT_HZ, ACTION = 2.0, 2.0
"""Gait and scale of actions of the template of a walking task."""
LEAST_FEET = 4
"""With so many feet or more a gait's clock is rewarded, with fewer the time of feet in the air."""
SIZE_M = 0.3
"""Height of a base for which the speeds of a walking task were chosen; others scale with the root of theirs."""


def choose_kind(kind: str, robot: Robot) -> str:
    """Return the kind of task of a robot: "velocity" with feet, "drive" on wheels, "reach" for an arm, else "pose".

    Raises:
        UserError: the robot does not support the requested kind.
    """
    check_choice("kind", kind, TASK_KINDS)
    walks = bool(robot.feet) and robot.base_body is not None
    driven = [joint for joint in robot.joints if joint.kp]
    reaches = robot.base_body is None and len(driven) >= 3
    drives = len(wheel_radii(robot)) >= 2
    if kind == "drive" and not drives:
        line = "does not drive: it needs a floating base and 2 wheels or more, which a kd alone drives"
        raise UserError(f"kind=drive: robot '{robot.name}' {line}; write kind=pose")
    if kind == "velocity" and not walks:
        other = "drive" if drives else "reach" if reaches else "pose"
        raise UserError(f"kind=velocity: robot '{robot.name}' is without feet to walk on; write kind={other}")
    if kind == "reach" and not reaches:
        other = "velocity" if walks else "drive" if drives else "pose"
        line = f"kind=reach: robot '{robot.name}' is not an arm: needs a fixed base and 3 driven joints"
        raise UserError(f"{line}; write kind={other}")
    if kind != "auto":
        return kind
    return "velocity" if walks and driven else "drive" if drives else "reach" if reaches else "pose"


def wheel_radii(robot: Robot) -> dict[str, float]:
    """Return the radius [m] of each wheel of a floating robot.

    A wheel is driven by its speed, and has a shape that is round about its endless hinge.
    """
    turned = [joint for joint in robot.joints if joint.by_speed]
    if robot.base_body is None or robot.complete or not turned:
        return {}
    model, found = robot.load_model().compile(), {}
    for joint in turned:
        geoms = [k for k in range(model.ngeom) if model.geom_bodyid[k] == model.joint(joint.name).bodyid[0]]
        shapes = [round_about_joint(model, k) for k in geoms if model.geom_conaffinity[k]]
        found.update((joint.name, shape[0]) for shape in shapes if shape is not None)
    return found


def task_words(kind: str, robot: Robot, hand: str = "") -> dict[str, str]:
    """Return the words for the template of a task of a kind; names of the robot's model are quoted.

    Raises:
        UserError: `hand` is given, and the task does not reach for targets, or the model lacks it.
    """
    if hand and kind != "reach":
        raise UserError("hand", hand, f"does not affect a task of kind={kind}", "omit it")
    if kind == "reach":
        with as_user_error():
            words = reach_words(robot, hand)
        return words | {"hand": quoted(words["hand"])}
    if kind == "pose":
        driven = [joint.kp > 0.0 or joint.by_speed for joint in robot.joints if not joint.passive]
        actions = "position" if driven and all(driven) else "effort"
        return {"floats": "yes" if robot.base_body is not None else "", "actions": actions}
    words = {"velocity": velocity_words, "drive": drive_words}[kind](robot)
    return words | {"base": quoted(words["base"])}


def drive_words(robot: Robot) -> dict[str, str]:
    """Return the words for the template of a driving task: speeds that fit the robot's size and its wheels."""
    limits = {joint.name: joint.velocity_limit for joint in robot.joints}
    wheels = min(0.5 * limits[name] * radius for name, radius in wheel_radii(robot).items())
    model = robot.load_model().compile()
    speed = min(wheels, 1.5 * math.sqrt(float(model.stat.extent) / SIZE_M))
    held = any(joint.kp for joint in robot.joints)
    words = {"held": "yes" if held else "", "iterations": "300" if held else "100", "fast": f"{speed:.2g}"}
    return words | _base_words(robot, model)


def velocity_words(robot: Robot) -> dict[str, str]:
    """Return the words for the template of a walking task: gait, heights and speeds that fit the robot's size and legs.

    A foot that is moved back by its stride in half a period of the gait moves the base as fast.
    """
    from robot_rl_envs.entity.legs import strides

    height = robot.base_height
    ahead, aside, up = ACTION * strides(robot).min(axis=0, initial=math.inf)
    usual = math.sqrt(height / SIZE_M)
    speed = min(usual, max(4.0 * GAIT_HZ * ahead / 1.5, 0.1 * usual))
    return {
        "gaits": "yes" if len(robot.feet) >= LEAST_FEET else "",
        "air": f"{4.0 / len(robot.feet):.2g}",
        "swing": f"{min(0.27 * height, max(0.6 * up, 0.05 * height)):.2g}",
        "low": f"{0.5 * height:.2g}",
        "slow": f"{speed:.2g}",
        "fast": f"{1.5 * speed:.2g}",
        "sideways": f"{min(0.6 * usual, 4.0 * GAIT_HZ * aside, speed):.2g}",
        "std": f"{0.5 * min(speed, 1.0):.2g}",
        "solved": f"{0.3 * min(speed, 1.0):.2g}",
        **_base_words(robot, robot.load_model().compile()),
    }


def _base_words(robot: Robot, model: Any) -> dict[str, str]:
    """Return the body that carries a load, its share of the mass [kg], and how far its center of mass may move [m].

    The base itself may weigh nothing, with a trunk fixed to it; and MuJoCo does not read a center of mass that the
    model has in the body's origin.
    """
    import numpy as np

    welded = model.body_weldid == model.body(robot.base_body).id
    body = int(np.argmax(np.where(welded, model.body_mass, 0.0)))
    is_fixed = bool(model.body_sameframe[body] == 1 or model.body_simple[body] != 0)
    load = min(0.07 * float(model.body_mass.sum()), 0.5 * float(model.body_mass[body]))
    mirrored = any(joint.mirror for joint in robot.joints)
    return {
        "base": model.body(body).name,
        "load": f"{load:.2g}",
        "com": f"{0.0 if is_fixed else 0.02:g}",
        "mirror": str(mirrored),
        "mirrored": "yes" if mirrored else "",
    }


def reach_words(robot: Robot, hand: str = "") -> dict[str, str]:
    """Return the words for the template of a reaching task: the hand, and a box of targets around it.

    Raises:
        ValueError: `hand` is not a site or body of the model, or no joint moves it.
    """
    import mujoco
    import numpy as np
    from robot_rl_envs.entity.limbs import find_hand
    from robot_rl_envs.terms.checks import longest_reach

    model = robot.load_model().compile()
    data = mujoco.MjData(model)
    point = find_hand(model, [joint.name for joint in robot.joints if not joint.passive], hand)
    rng = np.random.default_rng(0)
    driven = np.array([not joint.passive for joint in robot.joints])
    ids = [model.joint(joint.name).id for joint in robot.joints]
    limited = model.jnt_limited[ids] != 0
    least, most = (np.where(limited, model.jnt_range[ids, k], s * math.inf) for k, s in ((0, -1.0), (1, 1.0)))

    def hands(poses: Any) -> Any:
        found = []
        for pose in np.clip(poses, least, most):
            data.qpos[model.jnt_qposadr[ids]] = pose
            mujoco.mj_kinematics(model, data)
            found.append(point.position(data))
        return np.array(found)

    start, reach = longest_reach(model, point.body, point.pos)
    if not reach:
        raise ValueError(f"hand={hand}: no joint moves it; take a site or body at the end of the arm")
    center = np.array([joint.default_pos for joint in robot.joints])
    if np.linalg.norm(hands(center[None])[0] - start) < FOLDED * reach < math.inf:
        wide = np.clip(least, -math.pi, None), np.clip(most, None, math.pi)
        poses = np.where(driven, rng.uniform(*wide, (2000, len(ids))), center)
        before = start + HALF_STRETCHED * reach * np.eye(3)[0]
        center = poses[np.argmin(np.linalg.norm(hands(poses) - before, axis=1))]
    points = hands(center + driven * rng.uniform(-TURN, TURN, (2000, len(ids))))
    low, high = np.percentile(points, [15, 85], axis=0)
    # All of the box must be in reach, also its corners.
    while np.linalg.norm(np.maximum(np.abs(low - start), np.abs(high - start))) > 0.98 * reach:
        low, high = 0.95 * low + 0.05 * high, 0.05 * low + 0.95 * high
        if np.ptp([low, high], axis=0).max() < 1e-3:
            break
    low, high = low.round(3), high.round(3)
    ends = {f"{axis}_{end}": float(v[k]) for k, axis in enumerate("xyz") for end, v in (("lo", low), ("hi", high))}
    return {"hand": point.name, "box": "{" + ", ".join(f'"{name}": {value:g}' for name, value in ends.items()) + "}"}

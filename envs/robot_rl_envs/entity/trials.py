"""Trials of a robot's facts: whether each joint follows its target with its gains, and the places of feet."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import mujoco
import numpy as np
from robot_rl_assets.robot import Robot

from robot_rl_envs.entity.legs import SEARCHED, check_straight, overhang, robot_legs
from robot_rl_envs.entity.limbs import check_stretched
from robot_rl_envs.entity.robot_checks import Finding, Pose, compile_robot
from robot_rl_envs.motions.kinematics import support

STEP = 0.3
"""Step of a target [rad or m], at most a quarter of the joint's range."""
DURATION, DT = 1.0, 1e-3
"""How long a joint may take to follow, and the time step of its simulation [s]."""
FOLLOWED = 0.5
"""Least share of the step by which it has moved then."""
HIDDEN = 0.1
"""How much lower a foot would have to be to touch before the edges of its link, in radii, up to which it is sound."""
BESIDE = 0.5
"""Largest gap between a foot and its body, in radii of the foot; that of Unitree's Go2 is 0.36."""


def try_robot(robot: Robot) -> list[Finding]:
    """Return a problem for each joint that does not follow its target and each foot outside of its body's shape.

    Every joint is simulated by itself, the others held in the default pose: its target steps by 0.3 rad or m, or if it
    is driven by its speed to half of its largest one. An arm at the boundary of its reach, straight legs, and a foot
    that is not the first of its leg to touch are notes.

    Raises:
        ValueError: the model cannot be read, or lacks an element that the robot names.
    """
    if robot.complete:
        return []
    pose = Pose(robot, compile_robot(robot))
    pose.take(pose.default)
    mujoco.mj_forward(pose.model, pose.data)
    found = [*_check_joints(robot, pose), *_check_feet(robot, pose)]
    return [*found, *check_stretched(robot), *check_straight(robot)]


def _check_joints(robot: Robot, pose: Pose) -> Iterator[Finding]:
    model, dofs = pose.model, pose.dofs
    matrix = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, pose.data, matrix)
    by_speed = np.array([joint.by_speed for joint in robot.joints])
    motors = _Motors(
        *(np.array([getattr(one, key) for one in robot.joints]) for key in ("kp", "kd", "effort_limit")),
        inertia=np.diag(matrix)[dofs],
        damping=model.dof_damping[dofs],
        friction=model.dof_frictionloss[dofs],
        load=np.where(by_speed, 0.0, pose.data.qfrc_bias[dofs]),
    )
    low, high = pose.ranges.T
    step = np.minimum(STEP, 0.25 * (high - low)) * np.where(high - pose.default >= pose.default - low, 1.0, -1.0)
    want = np.where(by_speed, [0.5 * joint.velocity_limit for joint in robot.joints], step)
    moved, speed = motors.respond(np.where(by_speed, 0.0, step), np.where(by_speed, want, 0.0))
    shares = np.where(by_speed, speed, moved) / want
    driven = ((motors.kp > 0) | by_speed) & (motors.most > 0)
    for k in np.flatnonzero(driven & (shares < FOLLOWED)):
        joint = robot.joints[k]
        unit = ("rad" if model.joint(joint.name).type[0] == 3 else "m") + "/s" * joint.by_speed
        got = f"in {DURATION:g} s it gets {shares[k] * abs(want[k]):.2g} of {abs(want[k]):.2g} {unit}"
        gains = f"with kp={joint.kp:g}, kd={joint.kd:g} and effort_limit={joint.effort_limit:g}"
        own = f"load {abs(motors.load[k]):.3g}, damping {motors.damping[k]:.3g}, friction {motors.friction[k]:.3g}"
        right = f"increase {'kd' if joint.by_speed else 'kp'} or the effort limit"
        yield Finding(True, f"joint {joint.name!r}: does not follow: {got} {gains}; its own {own}; {right}")


@dataclass(slots=True)
class _Motors:
    """Joints (n,) and their motors, each by itself."""

    kp: np.ndarray
    kd: np.ndarray
    most: np.ndarray
    inertia: np.ndarray
    damping: np.ndarray
    friction: np.ndarray
    load: np.ndarray

    def respond(self, step: np.ndarray, speed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return how far the joints move after a step of targets (n,), or of speeds, and how fast they are then.

        They begin at rest, moved by their load. The damping is implicit in time, and dry friction stops a joint
        that it can hold.
        """
        rest = np.clip(-self.load, -self.most, self.most) / np.where(self.kp > 0, self.kp, math.inf)
        moved, velocity, rate = rest.copy(), np.zeros_like(rest), DT / self.inertia
        for _ in range(round(DURATION / DT)):
            push = self.kp * (step - moved) + self.kd * speed
            free = (velocity + rate * (push - self.load)) / (1.0 + rate * (self.kd + self.damping))
            effort = np.clip(push - self.kd * free, -self.most, self.most)
            slip = (velocity + rate * (effort - self.load)) / (1.0 + rate * self.damping)
            held = rate * self.friction / (1.0 + rate * self.damping)
            velocity = np.sign(slip) * np.maximum(np.abs(slip) - held, 0.0)
            moved = moved + DT * velocity
        return moved - rest, velocity


def _check_feet(robot: Robot, pose: Pose) -> Iterator[Finding]:
    """Compare each foot with the other shapes of its body that touch the ground."""
    model, data = pose.model, pose.data
    touching = (model.geom_conaffinity != 0) | (model.geom_contype != 0)
    soles = {int(model.body_weldid[leg.tip.body]) for leg in robot_legs(robot) if len(leg.joints) > SEARCHED}
    for foot in robot.feet:
        own = model.geom(foot).id
        body = model.body_weldid[model.geom_bodyid[own]]
        others = np.flatnonzero(touching & (model.body_weldid[model.geom_bodyid] == body)).tolist()
        gaps = [mujoco.mj_geomDistance(model, data, own, geom, 1.0, None) for geom in others if geom != own]
        if gaps and (gap := min(gaps)) > BESIDE * robot.foot_radius:
            line = f"foot {foot!r}: its shape is {100 * gap:.1f} cm beside those of body {model.body(body).name!r}"
            yield Finding(True, f"{line}; move geom {foot!r} and site '{foot}_foot'")
            continue
        over = 0.0
        if body not in soles:
            over = overhang(model, data, others, lambda along, own=own: float(support(model, data, own, along) @ along))
        if over > HIDDEN * robot.foot_radius:
            line = f"foot {foot!r}: an edge of body {model.body(body).name!r} touches before it when the leg leans"
            right = f"lower geom {foot!r} and site '{foot}_foot' by {100 * over:.1f} cm"
            yield Finding(False, f"{line}, and only the contact of a foot is measured; {right}")

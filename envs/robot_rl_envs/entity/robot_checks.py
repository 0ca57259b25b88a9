"""Whether the facts of a robot fit its model: names, default pose, height, left-right mirror and gains.

Each finding is a problem, with which no scene is built, or a note about something unusual.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import mujoco
import numpy as np
from robot_rl_assets.robot import Robot

from robot_rl_envs.entity.entity import one_line, read_model
from robot_rl_envs.motions.kinematics import lowest_point

MIRROR_TOLERANCE = 0.01
"""Largest distance of a mirrored body from its partner, as a share of the robot's size; CAD models are not exact."""
SUNK, HOVERING = 0.01, 0.05
"""How far the lowest point of a robot may be below and above the ground [m]; above it, a fifth is a note."""
FREQUENCIES = (0.3, 60.0)
"""Usual natural frequencies of a driven joint [Hz]."""
DAMPING = (0.05, 20.0)
"""Usual damping ratios of a driven joint."""
POSES = 8
"""Random poses that are mirrored."""
STEP = 0.5
"""How far a joint is moved by itself [rad or m]."""
_SCALARS = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
_PLANES = {"left-right": np.array([1.0, -1.0, 1.0]), "front-back": np.array([-1.0, 1.0, 1.0])}


_SET_BY_TASK = ("timestep", "iterations", "ls_iterations", "solver", "cone", "integrator")
_PAIRS = [
    ("left", "right"),
    ("l", "r"),
    ("fl", "fr"),
    ("rl", "rr"),
    ("hl", "hr"),
    ("bl", "br"),
    ("lf", "rf"),
    ("lm", "rm"),
    ("ml", "mr"),
    ("lh", "rh"),
    ("lr", "rr"),
    ("lb", "rb"),
    *((f"l{k}", f"r{k}") for k in range(1, 5)),
    ("larm", "rarm"),
    ("lleg", "rleg"),
]
_SIDES: dict[str, list[str]] = {}
"""The words of the other side: that of "rr" is "rl", or "lr" in names such as lf, lm, lr."""
for _change in (str, str.upper, str.title):
    for _one, _other in (pair for one in _PAIRS for pair in (one, one[::-1])):
        _SIDES.setdefault(_change(_one), []).append(_change(_other))


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a robot.

    Attributes:
        is_problem: no scene is built with it.
        text: a line that names the field, the value and the right ones.
    """

    is_problem: bool
    text: str


def require_sound(robot: Robot) -> None:
    """Raise ValueError with the first problem of a robot, if it has any."""
    for finding in check_robot(robot):
        if finding.is_problem:
            raise ValueError(f"robot {robot.name!r}: {finding.text}")


@functools.lru_cache(maxsize=64)
def check_robot(robot: Robot) -> tuple[Finding, ...]:
    """Return the errors of a robot, and its unusual values.

    Raises:
        ValueError: its model cannot be read, or lacks an element that the robot names.
    """
    model = compile_robot(robot)
    pose = Pose(robot, model)
    found = _check_mirror(robot, pose)
    if not robot.complete:
        found += [*_check_default_pose(robot, model), *_check_height(robot, pose)]
        found += [*_check_gains(robot, pose), *_check_listed(robot, model), *_check_options(robot, model)]
    return tuple(sorted(found, key=lambda finding: not finding.is_problem))


def describe_robot(robot: Robot) -> list[str]:
    """Return lines about a robot: its parts, and its feet or mount.

    Raises:
        ValueError: its model cannot be read, or lacks an element that the robot names.
    """
    pose = Pose(robot, compile_robot(robot))
    driven = sum(not joint.passive for joint in robot.joints)
    mass = float(pose.model.body_mass[pose.bodies].sum())
    count = sum(joint.mirror not in (None, joint.name) for joint in robot.joints) // 2
    pairs = f"{count} pair{'s' * (count != 1)}"
    base = f"floating base '{robot.base_body}' at {robot.base_height:g} m" if robot.base_body else "fixed base"
    feet = f"feet {', '.join(robot.feet)}" if robot.feet else "no feet"
    return [
        f"{robot.name}: {robot.model}",
        f"{len(robot.joints)} joints ({driven} driven, {pairs}), {len(pose.bodies)} bodies, {mass:.3f} kg",
        f"{base}, {feet}, {f'IMU at {robot.imu_site}' if robot.imu_site else 'no IMU'}",
    ]


def compile_robot(robot: Robot) -> mujoco.MjModel:
    """Return a robot's model by itself; raise ValueError if it does not compile."""
    spec = read_model(robot)
    try:
        return spec.compile()
    except ValueError as error:
        raise ValueError(f"robot {robot.name!r}: {robot.model} does not compile: {one_line(error)}") from None


class Pose:
    """A robot by itself, in poses of its joints; its base stays as in the default pose."""

    def __init__(self, robot: Robot, model: mujoco.MjModel) -> None:
        self.robot, self.model, self.data = robot, model, mujoco.MjData(model)
        ids = [model.joint(joint.name).id for joint in robot.joints]
        self.addresses, self.dofs = model.jnt_qposadr[ids], model.jnt_dofadr[ids]
        self.default = np.array(robot.default_pos())
        self.ranges = np.where(model.jnt_limited[ids, None] != 0, model.jnt_range[ids], [-math.pi, math.pi])
        roots = {int(model.body_rootid[body]) for body in model.jnt_bodyid[ids]} - {0}
        self.bodies = np.flatnonzero(np.isin(model.body_rootid, list(roots)))
        # A link is a body with all that is fixed to it: camera mounts and covers are not links, and the base does not
        # move here.
        still = 0 if robot.base_body is None else model.body(robot.base_body).id
        self.links = [int(body) for body in np.unique(model.body_weldid[self.bodies]) if body not in (0, still)]
        welded = model.body_weldid[self.bodies] == np.array(self.links)[:, None]
        self.shares = welded * model.body_mass[self.bodies]
        self.masses = self.shares.sum(1)
        self.shares = self.shares / np.maximum(self.masses, 1e-12)[:, None]
        self.take(self.default)

    def take(self, joints: np.ndarray) -> np.ndarray:
        """Move the joints, and return the centers of mass (n, 3) of the links [m]."""
        model, data = self.model, self.data
        data.qpos[:] = model.qpos0
        if self.robot.base_body is not None:
            free = int(model.body_jntadr[model.body(self.robot.base_body).id])
            address = int(model.jnt_qposadr[free])
            data.qpos[address : address + 7] = [0.0, 0.0, self.robot.base_height, 1.0, 0.0, 0.0, 0.0]
        data.qpos[self.addresses] = joints
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        return self.shares @ data.xipos[self.bodies]


def _check_default_pose(robot: Robot, model: mujoco.MjModel) -> Iterator[Finding]:
    for joint in robot.joints:
        own = model.joint(joint.name)
        lower, upper = own.range
        if own.limited[0] and not lower <= joint.default_pos <= upper:
            line = f"joint {joint.name!r}: default_pos={joint.default_pos:g} is outside of its range"
            yield Finding(True, f"{line} in {robot.model}; must be within [{lower:.4g}, {upper:.4g}]")


def _check_listed(robot: Robot, model: mujoco.MjModel) -> Iterator[Finding]:
    own = {model.joint(i).name for i in range(model.njnt) if model.jnt_type[i] in _SCALARS}
    if left := sorted(own - set(robot.joint_names)):
        yield Finding(False, f"joints: {', '.join(left)} of {robot.model} are not listed: neither driven nor observed")


def _check_options(robot: Robot, model: mujoco.MjModel) -> Iterator[Finding]:
    """Compare the model's options with MuJoCo's own: those that no task sets would hold in all of them."""
    plain = mujoco.MjModel.from_xml_string("<mujoco/>").opt
    names = [name for name in dir(plain) if not name.startswith("_") and name not in _SET_BY_TASK]
    if own := [name for name in names if not np.array_equal(getattr(plain, name), getattr(model.opt, name))]:
        yield Finding(False, f"option: {robot.model} sets {', '.join(own)} in every task; remove a scene's options")


def moved_inertia(model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    """Return the inertia (nv,) that each degree of freedom moves in a pose [kg m^2, or kg], from `mj_forward`'s data.

    It is the inverse of the diagonal element of the inverse mass matrix: the rest of the robot is free to give way.
    """
    inverse = np.eye(model.nv)
    mujoco.mj_solveM(model, data, inverse, np.eye(model.nv))
    return 1.0 / np.diag(inverse)


def _check_height(robot: Robot, pose: Pose) -> Iterator[Finding]:
    """Compare the lowest point that touches the ground with the ground."""
    if robot.base_body is None:
        return
    pose.take(pose.default)
    touching = np.flatnonzero((pose.model.geom_conaffinity != 0) | (pose.model.geom_contype != 0))
    lowest, _ = lowest_point(pose.model, pose.data, touching)
    if not math.isfinite(lowest):
        yield Finding(False, f"no geom of {robot.model} touches the ground; one would with conaffinity=1")
        return
    right = f"{robot.base_height - lowest:.3f} puts it on the ground"
    if lowest < -SUNK:
        text = f"is {-lowest:.3f} m too low, the robot's lowest point is under the ground; {right}"
    elif lowest > 0.2 * HOVERING and robot.feet:  # Without feet it may fly.
        text = f"is {lowest:.3f} m too high, the robot's lowest point is above the ground; {right}"
    else:
        return
    is_problem = lowest < 0.0 or lowest > HOVERING
    yield Finding(is_problem, f"base_height={robot.base_height:g}: in the default pose it {text}")


def _check_gains(robot: Robot, pose: Pose) -> Iterator[Finding]:
    """Compare natural frequency and damping ratio of each driven joint with usual ones, in the default pose."""
    pose.take(pose.default)
    model, data = pose.model, pose.data
    mujoco.mj_forward(model, data)
    moved = moved_inertia(model, data)
    for joint, dof in zip(robot.joints, pose.dofs, strict=True):
        if joint.kp == 0.0:
            continue
        inertia, damping = float(moved[dof]), float(np.ravel(model.dof_damping[dof])[0])
        frequency = math.sqrt(joint.kp / inertia) / (2.0 * math.pi)
        ratio = (joint.kd + damping) / (2.0 * math.sqrt(joint.kp * inertia))
        if damping > joint.kd and ratio > 1.0:  # Its own damping decides: whether it follows is tried (`trials.py`).
            continue
        for name, value, unit, (low, high) in (
            ("natural frequency", frequency, " Hz", FREQUENCIES),
            ("damping ratio", ratio, "", DAMPING),
        ):
            if not low <= value <= high:
                line = f"joint {joint.name!r}: kp={joint.kp:g} and kd={joint.kd:g} give a {name} of {value:.3g}{unit}"
                text = f"{line} at its {inertia:.3g} kg m^2; usual are {low:g} to {high:g}"
                yield Finding(False, text)


def _check_mirror(robot: Robot, pose: Pose) -> list[Finding]:
    """Mirror random poses by the robot's facts, and compare the links' poses with the mirror image."""
    if not _declares_mirror(robot):
        sided = None if robot.complete else _sided(robot)
        if sided is None:
            return []
        named = _mirrored(robot, pose, "left-right")
        index, sign = (np.array(one) for one in named.joint_mirror())
        is_mirror = np.allclose(sign * pose.default[index], pose.default, atol=1e-3)
        is_mirror &= _mirror_error(named, pose, "left-right")[0] <= _tolerance(pose)
        text = f"joints: none names a mirror, but '{sided[0]}' and '{sided[1]}' are of two sides"
        if is_mirror:
            return [Finding(robot.base_body is not None, f"{text}; give each its mirror and mirror_sign")]
        return [
            Finding(False, f"{text}; they are not mirror images in the default pose, and no task can have mirror=True")
        ]
    planes = ["left-right"] if robot.base_body is not None else list(_PLANES)
    distance, joint = min((_mirror_error(robot, pose, plane) for plane in planes), key=lambda error: error[0])
    if distance <= _tolerance(pose):
        return []
    line = f"mirrored poses are not mirror images: a body is up to {distance:.3f} m from its partner's image"
    turned = _mirrored(robot, pose, "front-back")
    if robot.base_body is not None and _mirror_error(turned, pose, "front-back")[0] <= _tolerance(pose):
        right = "the two sides are front and back: turn the model's base so that the robot looks along +x"
        return [Finding(True, f"{line}; {right}, or leave the mirror out")]
    return [Finding(True, f"{line}, most by joint {joint!r}; check its mirror and mirror_sign")]


def require_mirror(robot: Robot) -> None:
    """Raise ValueError if a robot does not name a mirror, but has joints of two sides."""
    if not _declares_mirror(robot) and (sided := _sided(robot)):
        line = f"joints '{sided[0]}' and '{sided[1]}' of robot '{robot.name}' name no mirror"
        raise ValueError(f"mirror=True: {line}; give each its mirror and mirror_sign, or write mirror=False")


def _declares_mirror(robot: Robot) -> bool:
    declares = any(joint.mirror not in (None, joint.name) or joint.mirror_sign < 0 for joint in robot.joints)
    return declares or robot.foot_mirror != tuple(range(len(robot.feet)))


def _sided(robot: Robot) -> tuple[str, str] | None:
    """Return the first two joints that are of two sides by their names."""
    pairs = ((name, other_side(name, robot.joint_names)) for name in sorted(robot.joint_names))
    return next((pair for pair in pairs if pair[0] != pair[1]), None)


def other_side(name: str, names: Iterable[str]) -> str:
    """Return the name among some of the same thing on the other side, by the usual words; the name itself without one.

    Of several words of a side all change (a left hand's right finger), or one does (`RLEG_HIP_R`, in which R is roll).
    """
    taken = set(names)
    other = _other_side(name, taken)
    return other if _other_side(other, taken) == name else name


def _other_side(name: str, taken: set[str]) -> str:
    parts = re.split(r"([_\-. ]|(?<=[a-z])(?=[A-Z]))", name)
    places = [k for k, part in enumerate(parts) if part in _SIDES]
    for changed in (places, *([k] for k in places)):
        for words in itertools.product(*(_SIDES[parts[k]] for k in changed)):
            put = dict(zip(changed, words, strict=True))
            other = "".join(put.get(k, part) for k, part in enumerate(parts))
            if other in taken and other != name:
                return other
    return name


def mirror_by_names(
    names: Sequence[str], model: mujoco.MjModel, plane: str = "left-right"
) -> dict[str, tuple[str | None, float]]:
    """Return each joint's partner on the other side by its name, None without one, and the sign by the axes.

    A turn goes the other way in a mirror, a slide the same way. The axes are compared with all joints at 0.
    """
    data, found = mujoco.MjData(model), {}
    data.qpos[:] = model.qpos0
    for name in names:
        data.joint(name).qpos[0] = 0.0
    mujoco.mj_kinematics(model, data)
    for name in names:
        partner = other_side(name, names)
        if int(model.jnt_type[model.joint(partner).id]) != int(model.jnt_type[model.joint(name).id]):
            partner = name  # A hinge is not the mirror image of a slide.
        one, two = model.joint(name), model.joint(partner)
        axis = data.xaxis[one.id] * _PLANES[plane]
        if int(model.jnt_type[one.id]) == int(mujoco.mjtJoint.mjJNT_HINGE):
            axis = -axis
        sign = 1.0 if float(axis @ data.xaxis[two.id]) > -1e-9 else -1.0  # The same of both, despite rounding.
        found[name] = (None if partner == name else partner, sign)
    return found


def _mirrored(robot: Robot, pose: Pose, plane: str) -> Robot:
    """Return the robot with the mirror of its joints' names."""
    named = mirror_by_names(robot.joint_names, pose.model, plane)
    rows = [(joint, *named[joint.name]) for joint in robot.joints]
    joints = tuple(replace(joint, mirror=partner, mirror_sign=sign) for joint, partner, sign in rows)
    return replace(robot, joints=joints)


def _tolerance(pose: Pose) -> float:
    pose.take(pose.default)
    return MIRROR_TOLERANCE * max(0.1, float(np.linalg.norm(np.ptp(pose.data.xipos[pose.bodies], axis=0))))


def _mirror_error(robot: Robot, pose: Pose, plane: str) -> tuple[float, str]:
    """Return the largest distance of a body's mirror image from its partner [m], and the joint that adds most to it."""
    index, sign = (np.array(one) for one in robot.joint_mirror())
    flip = _PLANES[plane]
    partners = _partners(robot, pose, flip)
    random = np.random.default_rng(0)
    low, high = pose.ranges.T

    def error(joints: np.ndarray) -> float:
        image = pose.take(joints) * flip
        mirrored = pose.take(sign * joints[index])
        return float(np.linalg.norm(mirrored[partners] - image, axis=1).max())

    total = max(error(random.uniform(low, high)) for _ in range(POSES))
    # One joint at a time, the others at zero: there, a wrong sign of theirs makes no difference.
    each = [error(STEP * row) for row in np.eye(len(robot.joints))]
    return total, robot.joints[int(np.argmax(each))].name


def _partners(robot: Robot, pose: Pose, flip: np.ndarray) -> Sequence[int]:
    """Return the index of each link's partner: by its joint, else the link at its mirror image in the default pose."""
    model = pose.model
    body_of = {joint.name: int(model.joint(joint.name).bodyid[0]) for joint in robot.joints}
    by_joint = {body_of[joint.name]: body_of[joint.mirror or joint.name] for joint in robot.joints}
    places = {link: k for k, link in enumerate(pose.links)}
    centers = pose.take(pose.default)
    found = []
    for link, center, mass in zip(pose.links, centers * flip, pose.masses, strict=True):
        if link in by_joint:
            found.append(places[by_joint[link]])
            continue
        distance = np.linalg.norm(centers - center, axis=1) + np.abs(pose.masses - mass) / max(float(mass), 1e-6)
        found.append(int(np.argmin(distance)))
    return found

"""A robot in a compiled scene: its joints, its feet and its base."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

import mujoco
import numpy as np
from robot_rl_assets.robot import Robot

from robot_rl_envs.entity.couplings import find_leaders
from robot_rl_envs.entity.objects import chain_path, columns
from robot_rl_envs.sensing.sensors import Sensing
from robot_rl_envs.terms.checks import nearest

_JOINT_KINDS = {int(mujoco.mjtJoint.mjJNT_HINGE): 1, int(mujoco.mjtJoint.mjJNT_SLIDE): 2}
_FREE = int(mujoco.mjtJoint.mjJNT_FREE)


class Entity:
    """What belongs to one robot in a compiled model, with feet and a floating base if the robot has them.

    Attributes:
        robot: the facts of its model.
        sensing: the sensors that the task's terms read.
        joint_ids: (nj,) ids of its joints in the robot's own order.
        joint_qpos, joint_dof: (nj,) their addresses in qpos and qvel.
        joint_ctrl: (nj,) index into ctrl, -1 for a passive joint.
        joint_range: (nj, 2) limits, +-inf where unlimited.
        joint_follows: (nj, 3) the joint that each follows by an equality of the model (-1: none), factor and offset.
        base: whether it has a floating base.
        base_body_id: the base's body; 0, the world, for a fixed base.
        base_qpos, base_dof: addresses of the base's free joint in qpos and qvel; 0 without one.
        foot_geoms: (nf,) geom ids.
        foot_sensor: (nf,) address of each foot's contact sensor.
        chain: the joints between base and feet, by the fields of :class:`.state.Chain`; only those with values.
        sizes: widths that terms and state fields name: "joints", "actions", "feet", "limited_joints", and those of its
            sensors.
    """

    def __init__(self, robot: Robot, model: mujoco.MjModel, sensing: Sensing):
        self.robot, self.sensing, self._model = robot, sensing, model
        ids = [self._id("joint", joint.name) for joint in robot.joints]
        self.joint_ids = np.array(ids)
        self.joint_qpos = model.jnt_qposadr[ids].astype(np.int32)
        self.joint_dof = model.jnt_dofadr[ids].astype(np.int32)
        limits = np.where(model.jnt_limited[ids, None] != 0, model.jnt_range[ids], [-np.inf, np.inf])
        self.joint_range = limits.astype(np.float64)
        self.joint_follows = self._followed()
        driven = {name: k for k, name in enumerate(self.actuated)}
        self.joint_ctrl = np.array([driven.get(joint.name, -1) for joint in robot.joints], dtype=np.int32)
        self.base = robot.base_body is not None
        self.base_body_id = self._id("body", robot.base_body) if robot.base_body else 0
        free = int(model.body_jntadr[self.base_body_id])
        self.base_qpos, self.base_dof = (
            (int(model.jnt_qposadr[free]), int(model.jnt_dofadr[free])) if self.base else (0, 0)
        )
        self.foot_geoms = np.array([self._id("geom", foot) for foot in robot.feet], dtype=np.int32)
        contacts = [model.sensor_adr[self._id("sensor", f"{foot}_contact")] for foot in robot.feet]
        self.foot_sensor = np.array(contacts, dtype=np.int32)
        self.chain = self._chain()
        data = mujoco.MjData(model)
        self.set_default_qpos(data.qpos)
        mujoco.mj_kinematics(model, data)
        self.foot_phase = gait_phases(data.geom_xpos[self.foot_geoms])
        self.sizes = {"joints": len(robot.joints), "actions": len(self.actuated), "feet": len(robot.feet)}
        self.sizes["limited_joints"] = len(self.limited)
        self.sizes |= sensing.bind(model, robot, self.base_body_id)

    @property
    def actuated(self) -> list[str]:
        """Names of the driven joints, in the order of ctrl and of the policy's actions."""
        return [joint.name for joint in self.robot.joints if not joint.passive]

    @property
    def limited(self) -> list[str]:
        """Names of the joints with limits: not a wheel, which turns without end."""
        return [
            name for name, ends in zip(self.robot.joint_names, self.joint_range, strict=True) if np.isfinite(ends).all()
        ]

    def _followed(self) -> np.ndarray:
        """Find the driven joints that passive ones follow: q = offset + factor * q_driven."""
        model, found = self._model, np.tile([-1.0, 0.0, 0.0], (len(self.joint_ids), 1))
        places = {name: k for k, name in enumerate(self.robot.joint_names)}
        names = {int(joint): name for joint, name in zip(self.joint_ids, places, strict=True)}
        pairs = []
        for k in np.flatnonzero(model.eq_type == int(mujoco.mjtEq.mjEQ_JOINT)):
            one, two = names.get(int(model.eq_obj1id[k])), names.get(int(model.eq_obj2id[k]))
            offset, factor, *higher = (float(value) for value in model.eq_data[k, :5])
            if one is not None and two is not None and factor and not any(higher):
                pairs.append((one, two, factor, offset))
        try:
            leaders = find_leaders(pairs, self.actuated)
        except ValueError as error:
            raise ValueError(f"robot {self.robot.name!r}: {error}") from None
        rest = model.qpos0[self.joint_qpos]
        for name, (leader, factor, offset) in leaders.items():
            one, two = places[name], places[leader]
            found[one] = two, factor, offset + rest[one] - factor * rest[two]
        return found

    def _id(self, kind: str, name: str) -> int:
        return int(getattr(self._model, kind)(name).id)

    def set_default_qpos(self, qpos: np.ndarray) -> None:
        """Write the default pose into ``qpos`` (nq,) of the whole scene, at the origin."""
        if self.base:
            qpos[self.base_qpos : self.base_qpos + 7] = [0.0, 0.0, self.robot.base_height, 1.0, 0.0, 0.0, 0.0]
        qpos[self.joint_qpos] = [joint.default_pos for joint in self.robot.joints]

    def _chain(self) -> dict[str, np.ndarray]:
        nodes, starts = [], [0]
        for geom in self.foot_geoms:
            try:
                path, _ = chain_path(self._model, int(self._model.geom_bodyid[geom]), {self.base_body_id})
            except ValueError as error:
                raise ValueError(f"robot {self.robot.name!r}: {error}; the one free joint is base_body's") from None
            nodes += path
            starts.append(len(nodes))
        return columns(nodes) | {"start": np.array(starts), "foot_pos": self._model.geom_pos[self.foot_geoms]}


def gait_phases(places: np.ndarray) -> np.ndarray:
    """Return the phase of each foot in an alternating gait: 0, or 0.5 for half a period later.

    Along each side feet alternate from front to back, and the first feet of the two sides alternate too: two feet walk,
    four trot, and six have two tripods.

    Args:
        places: of the feet (n, 2 or 3) in the default pose [m]: x ahead, y to the left.
    """
    phases = np.zeros(len(places))
    for side, chosen in enumerate((places[:, 1] >= 0.0, places[:, 1] < 0.0)):
        feet = np.flatnonzero(chosen)
        for rank, foot in enumerate(feet[np.argsort(-places[feet, 0], kind="stable")]):
            phases[foot] = 0.5 * ((rank + side) % 2)
    return phases


def read_model(robot: Robot) -> mujoco.MjSpec:
    """Return a robot's model, not compiled yet, and check that it has everything that the robot's facts name.

    Raises:
        ValueError: MuJoCo cannot read the file, or it lacks a joint, body, geom or site that ``robot`` names;
            the line names the file.
    """

    def refuse(line: str) -> NoReturn:
        raise ValueError(f"robot {robot.name!r}: {line}") from None

    def require(field: str, kind: str, name: str, names: Iterable[str]) -> None:
        if name not in names:
            hint = nearest(name, [known for known in names if known])
            refuse(f"{field}={name!r}: {robot.model} has no {kind} of that name; {hint}")

    try:
        spec = robot.load_model()
    except ValueError as error:
        refuse(f"{robot.model} cannot be read: {one_line(error)}")
    joints = {joint.name: int(joint.type) for joint in spec.joints}
    for joint in robot.joints:
        require("joints", "joint", joint.name, joints)
        if joints[joint.name] not in _JOINT_KINDS:
            refuse(f"joint {joint.name!r} of {robot.model} must be a hinge or a slide; the free joint is base_body's")
    for foot in robot.feet:
        require("feet", "geom", foot, [geom.name for geom in spec.geoms])
    if robot.imu_site is not None:
        require("imu_site", "site", robot.imu_site, [site.name for site in spec.sites])
    if robot.base_body is not None:
        bodies = {body.name: body for body in spec.bodies if body.name != "world"}
        require("base_body", "body", robot.base_body, bodies)
        if [int(joint.type) for joint in bodies[robot.base_body].joints] != [_FREE]:
            line = f"base_body={robot.base_body!r}: is without a free joint in {robot.model}"
            refuse(f"{line}; give it one, or omit base_body if the robot is bolted down")
    return spec


def one_line(error: Exception) -> str:
    """Return an error's text without its line breaks."""
    return " ".join(str(error).split())

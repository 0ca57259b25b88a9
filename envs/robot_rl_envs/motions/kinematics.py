"""Inverse kinematics of a legged robot frame after frame, as least squares; and the lowest point of a robot."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import mujoco
import numpy as np
from robot_rl_assets.robot import Robot

from robot_rl_envs.motions import rotation

INSIDE = np.array([0.01, -0.01])
"""How far inside of its limits a joint stays [rad]."""
LEVEL = 1e-5
"""Component of a direction below which it is level, and share of a mesh's radius below which points are as low."""
STEPS, DAMPING, LONGEST = 40, 1e-3, 0.2
"""Gauss-Newton steps of a frame at most, their damping, and their largest change of a coordinate [rad or m]."""


@dataclass(kw_only=True, slots=True)
class Targets:
    """What one frame is to reach; everything is in the world frame.

    Attributes:
        feet: foot's site -> its position [m] and orientation (w, x, y, z).
        com_xy: the center of mass in the plane [m]; None leaves it free.
        base_z: height of the base [m]; None leaves it free.
        base_quat: orientation of the base; None leaves it free.
        body_quat: body -> its orientation.
        body_pos: body -> position of its origin [m].
        joints: joint -> position [rad]; all others tend to the default pose.
        weights: of the residuals "feet", "com", "base_z", "base_quat", "body_quat", "body_pos", "joints" and
            "others".
    """

    feet: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    com_xy: np.ndarray | None = None
    base_z: float | None = None
    base_quat: np.ndarray | None = None
    body_quat: dict[str, np.ndarray] = field(default_factory=dict)
    body_pos: dict[str, np.ndarray] = field(default_factory=dict)
    joints: dict[str, float] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)


WEIGHTS = {
    "feet": 100.0,
    "com": 50.0,
    "base_z": 30.0,
    "body_pos": 30.0,
    "base_quat": 10.0,
    "body_quat": 5.0,
    "joints": 2.0,
    "others": 0.3,
}


class Solver:
    """Solves frames one after the other, each from the last one's solution.

    Args:
        robot: with a floating base.
    """

    def __init__(self, robot: Robot):
        self.robot = robot
        self.model = robot.load_model().compile()
        self.data = mujoco.MjData(self.model)
        ids = [self.model.joint(joint.name).id for joint in robot.joints]
        self.qpos, self.dof = self.model.jnt_qposadr[ids], self.model.jnt_dofadr[ids]
        self.limits = self.model.jnt_range[ids]
        self.base = self.model.body(robot.base_body).id
        first = self.model.body_jntadr[self.base]
        self.base_qpos, self.base_dof = self.model.jnt_qposadr[first], self.model.jnt_dofadr[first]
        self.stand()

    def stand(self) -> None:
        """Begin with the default pose."""
        self.data.qpos[:] = self.model.qpos0
        self.data.qpos[self.base_qpos + 2] = self.robot.base_height
        self.data.qpos[self.qpos] = self.robot.default_pos()
        self.look()

    def look(self) -> None:
        """Compute poses and the center of mass."""
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)

    @property
    def com(self) -> np.ndarray:
        """The robot's center of mass (3,) [m]."""
        return self.data.subtree_com[self.base].copy()

    def solve(self, targets: Targets) -> np.ndarray:
        """Return qpos (nq,) of a frame."""
        for _ in range(STEPS):
            jacobian, error = self._residuals(targets)
            normal = jacobian.T @ jacobian + DAMPING * np.eye(self.model.nv)
            step = np.linalg.solve(normal, jacobian.T @ error)
            step *= min(1.0, LONGEST / max(np.abs(step).max(), 1e-12))
            mujoco.mj_integratePos(self.model, self.data.qpos, step, 1.0)
            self.data.qpos[self.qpos] = np.clip(self.data.qpos[self.qpos], *(self.limits + INSIDE).T)
            self.look()
            if np.abs(step).max() < 1e-5:
                break
        return self.data.qpos.copy()

    def lowest(self, qpos: np.ndarray) -> float:
        """Return the height of the lowest point of the robot's collision shapes at qpos (nq,) [m]."""
        model, data = self.model, self.data
        data.qpos[:] = qpos
        self.look()
        return lowest_point(model, data, np.flatnonzero(model.geom_conaffinity != 0))[0]

    def _residuals(self, targets: Targets) -> tuple[np.ndarray, np.ndarray]:
        weights, model, data = WEIGHTS | targets.weights, self.model, self.data
        rows: list[tuple[np.ndarray, np.ndarray, float]] = []
        jac_pos, jac_rot = np.zeros((3, model.nv)), np.zeros((3, model.nv))
        for site, (pos, quat) in targets.feet.items():
            k = model.site(site).id
            mujoco.mj_jacSite(model, data, jac_pos, jac_rot, k)
            now = np.zeros(4)
            mujoco.mju_mat2Quat(now, data.site_xmat[k])
            rows.append((jac_pos.copy(), pos - data.site_xpos[k], weights["feet"]))
            rows.append((jac_rot.copy(), _turn(now, quat), 0.3 * weights["feet"]))
        if targets.com_xy is not None:
            mujoco.mj_jacSubtreeCom(model, data, jac_pos, self.base)
            rows.append((jac_pos[:2].copy(), targets.com_xy - self.com[:2], weights["com"]))
        mujoco.mj_jacBody(model, data, jac_pos, jac_rot, self.base)
        if targets.base_z is not None:
            rows.append((jac_pos[2:].copy(), np.array([targets.base_z - data.xpos[self.base, 2]]), weights["base_z"]))
        if targets.base_quat is not None:
            rows.append((jac_rot.copy(), _turn(data.xquat[self.base], targets.base_quat), weights["base_quat"]))
        for body, quat in targets.body_quat.items():
            k = model.body(body).id
            mujoco.mj_jacBody(model, data, None, jac_rot, k)
            rows.append((jac_rot.copy(), _turn(data.xquat[k], quat), weights["body_quat"]))
        for body, pos in targets.body_pos.items():
            k = model.body(body).id
            mujoco.mj_jacBody(model, data, jac_pos, None, k)
            rows.append((jac_pos.copy(), pos - data.xpos[k], weights["body_pos"]))
        for joint, at, dof in zip(self.robot.joints, self.qpos, self.dof, strict=True):
            row = np.zeros((1, model.nv))
            row[0, dof] = 1.0
            want = targets.joints.get(joint.name, joint.default_pos)
            rows.append(
                (row, np.array([want - data.qpos[at]]), weights["joints" if joint.name in targets.joints else "others"])
            )
        return (
            np.concatenate([weight * jacobian for jacobian, _, weight in rows]),
            np.concatenate([weight * error for _, error, weight in rows]),
        )


def lowest_point(model: mujoco.MjModel, data: mujoco.MjData, geoms: Iterable[int]) -> tuple[float, int]:
    """Return the height of the lowest point of geoms [m], world frame, and its geom; infinity and -1 without any."""
    return min(((float(support(model, data, geom)[2]), int(geom)) for geom in geoms), default=(math.inf, -1))


DOWN = np.array([0.0, 0.0, -1.0])


def support(model: mujoco.MjModel, data: mujoco.MjData, geom: int, toward: np.ndarray = DOWN) -> np.ndarray:
    """Return the point of a geom (3,) [m] that is farthest along a direction (3,), the lowest one by default.

    Both are in the world frame. Of an edge or a face across the direction it is the middle.
    """
    turn = data.geom_xmat[geom].reshape(3, 3)
    return data.geom_xpos[geom] + turn @ _support(model, geom, turn.T @ toward)


def _support(model: mujoco.MjModel, geom: int, toward: np.ndarray) -> np.ndarray:
    """Return the point of a geom that is farthest along a direction (3,), both in the geom's frame [m]."""
    kinds, kind, size = mujoco.mjtGeom, model.geom_type[geom], model.geom_size[geom]
    side = np.where(np.abs(toward) < LEVEL, 0.0, np.sign(toward))
    if kind == int(kinds.mjGEOM_SPHERE):
        return size[0] * toward
    if kind == int(kinds.mjGEOM_CAPSULE):
        return size[0] * toward + np.array([0.0, 0.0, size[1] * side[2]])
    if kind == int(kinds.mjGEOM_CYLINDER):
        across = float(np.hypot(toward[0], toward[1]))
        rim = size[0] * toward[:2] / across if across > LEVEL else np.zeros(2)
        return np.array([*rim, size[1] * side[2]])
    if kind == int(kinds.mjGEOM_ELLIPSOID):
        return size**2 * toward / float(np.linalg.norm(size * toward))
    if kind == int(kinds.mjGEOM_MESH):
        first = int(model.mesh_vertadr[model.geom_dataid[geom]])
        points = model.mesh_vert[first : first + int(model.mesh_vertnum[model.geom_dataid[geom]])]
        along = points @ toward
        return points[along > along.max() - LEVEL * float(model.geom_rbound[geom])].mean(0)
    return model.geom_aabb[geom, :3] + side * model.geom_aabb[geom, 3:]


def _turn(now: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Return the rotation vector (3,) in the world frame from one orientation to another."""
    return rotation.to_rotvec(rotation.multiply(want, rotation.conjugate(now)))

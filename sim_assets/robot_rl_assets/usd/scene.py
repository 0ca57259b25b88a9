"""From a robot's MJCF file, as MuJoCo compiles it, to one USD file: bodies, joints, drives.

Every figure is the compiled model's: masses and inertias, joint limits, armature, damping, friction, the shapes that
collide and their materials. Generic physics is in USD's own terms (``physics:``), the rest in MuJoCo's
(``mjc:``) and Newton's (``newton:``), which Newton's importer reads and others pass over. Angles of USD are in degrees,
drives per degree; ``mjc:`` attributes are in MuJoCo's units.

Bodies lie side by side below the robot, each with its pose in MuJoCo's reference pose; a floating base is at the
origin. A fixed base hangs on the robot's own prim, so that a copy of it can be put anywhere.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl_assets.robot import Joint, Robot
from robot_rl_assets.usd.prims import name_of, new_stage, prim_name, save, set_attributes, set_pose
from robot_rl_assets.usd.shapes import add_geom, add_ground

_FREE, _BALL, _SLIDE, _HINGE = range(4)  # mjtJoint


def write_usd(robot: Robot, path: Path, *, visual: bool = True) -> Path:
    """Write a robot as a USD file.

    Args:
        robot: the robot.
        path: the file, .usda (text) or .usd (binary); its folder is made.
        visual: with the shapes that collide with nothing.

    Returns:
        The path.

    Raises:
        ValueError: the model has something that USD's rigid bodies cannot say; the line names it.
        ModuleNotFoundError: the package usd-core, or MuJoCo, is not installed.
    """
    from pxr import UsdGeom, UsdPhysics

    if robot.complete:
        raise ValueError(f"robot '{robot.name}': its model brings its own ground and actuators; USD wants the robot")
    model = robot.load_model().compile()
    path.parent.mkdir(parents=True, exist_ok=True)
    stage = new_stage(path)
    root = UsdGeom.Xform.Define(stage, "/" + prim_name("robot", robot.name)).GetPrim()
    stage.SetDefaultPrim(root)
    UsdPhysics.ArticulationRootAPI.Apply(root)
    set_attributes(root, {"newton:selfCollisionEnabled": False, "physxArticulation:enabledSelfCollisions": False})
    writer = _Writer(robot, model, stage, str(root.GetPath()))
    for body in range(1, model.nbody):
        writer.add_body(body)
        for geom in np.flatnonzero(model.geom_bodyid == body):
            if visual or model.geom_contype[geom] or model.geom_conaffinity[geom]:
                add_geom(stage, writer.body_path(body), model, int(geom))
    for body in range(1, model.nbody):
        writer.add_joint(body)
    return save(stage, path)


def write_ground(path: Path, *, friction: float) -> Path:
    """Write an endless plane, z up, that robots of ours collide with.

    Args:
        path: the file.
        friction: sliding friction; the others are those of our own floor.

    Returns:
        The path.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    stage = new_stage(path)
    add_ground(stage, friction)
    return save(stage, path)


class _Writer:
    """Bodies and joints of one robot."""

    def __init__(self, robot: Robot, model: Any, stage: Any, root: str):
        import mujoco

        self._robot, self._model, self._stage, self._root = robot, model, stage, root
        self._data = mujoco.MjData(model)
        mujoco.mj_kinematics(model, self._data)
        self._names = {body: name_of(model, "body", body) for body in range(1, model.nbody)}
        self._joints = {joint.name: joint for joint in robot.joints}
        base = [body for body in self._names if self._joint_kinds(body) == [_FREE]]
        self._origin = self._data.xpos[base[0]].copy() if base else np.zeros(3)

    def body_path(self, body: int) -> str:
        """The path of a body; the world is the robot's own prim."""
        return f"{self._root}/{self._names[body]}" if body else self._root

    def add_body(self, body: int) -> None:
        """A rigid body with its pose, mass and inertia."""
        from pxr import Gf, UsdGeom, UsdPhysics

        model = self._model
        xform = UsdGeom.Xform.Define(self._stage, self.body_path(body))
        set_pose(xform, self._data.xpos[body] - self._origin, self._data.xquat[body])
        prim = xform.GetPrim()
        UsdPhysics.RigidBodyAPI.Apply(prim)
        mass = UsdPhysics.MassAPI.Apply(prim)
        mass.CreateMassAttr(float(model.body_mass[body]))
        mass.CreateCenterOfMassAttr(Gf.Vec3f(*map(float, model.body_ipos[body])))
        mass.CreateDiagonalInertiaAttr(Gf.Vec3f(*map(float, model.body_inertia[body])))
        mass.CreatePrincipalAxesAttr(Gf.Quatf(*map(float, model.body_iquat[body])))
        if model.body_gravcomp[body]:
            set_attributes(prim, {"mjc:gravcomp": float(model.body_gravcomp[body])})

    def add_joint(self, body: int) -> None:
        """What connects a body to the one above it.

        Raises:
            ValueError: more than one joint, or a kind that is not to be had.
        """
        from pxr import UsdPhysics

        kinds, name = self._joint_kinds(body), self._names[body]
        if kinds == [_FREE]:
            if self._model.body_parentid[body] != 0:
                raise ValueError(f"robot '{self._robot.name}': body '{name}' floats below another; only a base may")
            return
        if not kinds:
            path = f"{self._root}/joints/{name}_fixed"
            joint = UsdPhysics.FixedJoint.Define(self._stage, path)
            self._connect(joint, body, np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]))
            return
        if len(kinds) > 1 or kinds[0] == _BALL:
            found = "a ball joint" if kinds == [_BALL] else f"{len(kinds)} joints"
            raise ValueError(
                f"robot '{self._robot.name}': body '{name}' has {found}; USD wants one hinge or slider a body"
            )
        self._add_single(body, int(self._model.body_jntadr[body]))

    def _joint_kinds(self, body: int) -> list[int]:
        first, count = int(self._model.body_jntadr[body]), int(self._model.body_jntnum[body])
        return [int(kind) for kind in self._model.jnt_type[first : first + count]]

    def _add_single(self, body: int, index: int) -> None:
        """A hinge or slider, with everything that MuJoCo knows about it."""
        from pxr import UsdPhysics

        model, name = self._model, name_of(self._model, "joint", index)
        hinge = int(model.jnt_type[index]) == _HINGE
        if model.qpos0[model.jnt_qposadr[index]] != 0:
            raise ValueError(
                f"robot '{self._robot.name}': joint '{name}' has ref={model.qpos0[model.jnt_qposadr[index]]:g}; "
                "USD's joints are 0 in the reference pose, so remove ref"
            )
        kind = UsdPhysics.RevoluteJoint if hinge else UsdPhysics.PrismaticJoint
        joint = kind.Define(self._stage, f"{self._root}/joints/{name}")
        letter, turn = _axis(model.jnt_axis[index])
        joint.CreateAxisAttr(letter)
        self._connect(joint, body, model.jnt_pos[index], turn)
        unit = 180.0 / math.pi if hinge else 1.0
        if model.jnt_limited[index]:
            joint.CreateLowerLimitAttr(float(model.jnt_range[index, 0]) * unit)
            joint.CreateUpperLimitAttr(float(model.jnt_range[index, 1]) * unit)
        dof = int(model.jnt_dofadr[index])
        figures = {
            "mjc:armature": float(model.dof_armature[dof]),
            "newton:armature": float(model.dof_armature[dof]),
            "physxJoint:armature": float(model.dof_armature[dof]),
            "mjc:damping": float(np.ravel(model.dof_damping[dof])[0]),
            "mjc:frictionloss": float(model.dof_frictionloss[dof]),
            "newton:friction": float(model.dof_frictionloss[dof]),
            "mjc:solreffriction": list(map(float, model.dof_solref[dof])),
            "mjc:solimpfriction": list(map(float, model.dof_solimp[dof])),
            "mjc:solreflimit": list(map(float, model.jnt_solref[index])),
            "mjc:solimplimit": list(map(float, model.jnt_solimp[index])),
            "mjc:margin": float(model.jnt_margin[index]),
        }
        stiffness = float(np.ravel(model.jnt_stiffness[index])[0])
        if stiffness:
            spring = float(model.qpos_spring[model.jnt_qposadr[index]])
            figures |= {"mjc:stiffness": stiffness, "mjc:springref": spring}
        set_attributes(joint.GetPrim(), figures)
        self._add_drive(joint.GetPrim(), self._joints.get(name), "angular" if hinge else "linear", unit)

    def _add_drive(self, prim: Any, joint: Joint | None, kind: str, unit: float) -> None:
        """The robot's gains and effort limit; a passive joint is without a drive."""
        from pxr import UsdPhysics

        if joint is None or joint.passive:
            return
        drive = UsdPhysics.DriveAPI.Apply(prim, kind)
        drive.CreateTypeAttr("force")
        drive.CreateMaxForceAttr(joint.effort_limit)
        kp, kd = joint.motor_gains
        drive.CreateStiffnessAttr(kp / unit)
        drive.CreateDampingAttr(kd / unit)
        drive.CreateTargetPositionAttr(joint.default_pos * unit if joint.kp else 0.0)

    def _connect(self, joint: Any, body: int, anchor: np.ndarray, turn: np.ndarray) -> None:
        """Join a body to its parent: the same frame seen from either, ``turn`` brings USD's axis to MuJoCo's."""
        import mujoco
        from pxr import Gf

        model = self._model
        parent, pose = int(model.body_parentid[body]), np.asarray(model.body_quat[body], dtype=np.float64)
        arm, frame = np.zeros(3), np.zeros(4)
        mujoco.mju_rotVecQuat(arm, np.asarray(anchor, dtype=np.float64), pose)
        mujoco.mju_mulQuat(frame, pose, turn)
        joint.CreateBody0Rel().SetTargets([self.body_path(parent)])
        joint.CreateBody1Rel().SetTargets([self.body_path(body)])
        joint.CreateLocalPos0Attr(Gf.Vec3f(*map(float, model.body_pos[body] + arm)))
        joint.CreateLocalRot0Attr(Gf.Quatf(*map(float, frame)))
        joint.CreateLocalPos1Attr(Gf.Vec3f(*map(float, anchor)))
        joint.CreateLocalRot1Attr(Gf.Quatf(*map(float, turn)))


def _axis(axis: np.ndarray) -> tuple[str, np.ndarray]:
    """The letter of a joint's axis, and the turn (w x y z) that brings that letter's axis to it."""
    import mujoco

    for letter, unit in zip("XYZ", np.eye(3), strict=True):
        if np.allclose(axis, unit, atol=1e-12):
            return letter, np.array([1.0, 0.0, 0.0, 0.0])
    turn = np.zeros(4)
    mujoco.mju_quatZ2Vec(turn, np.asarray(axis, dtype=np.float64))
    return "Z", turn

"""From a robot and physics options to a compiled MuJoCo scene, and where in its arrays everything lies."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
from robot_rl_assets.robot import Joint, Robot

from robot_rl_envs.actuators import PositionPd, check_events
from robot_rl_envs.engines.base import GROUND_GROUP
from robot_rl_envs.sensing import Sensing, make_sensing
from robot_rl_envs.task import Actions, Sim, Task
from robot_rl_envs.watched import STATE, watched_fields

if TYPE_CHECKING:
    from robot_rl_envs.terrain import Terrain

FORCE_COLUMNS = 4
"""Columns of a foot's contact sensor: found, and the net force (3) [N]."""

SUN, HIGH_SUN = (0.2, 0.3, -1.0), (0.0, 0.0, -1.0)
"""Direction of the light in pictures of a plane, and of ground that has sides."""

_JOINT_KINDS = {int(mujoco.mjtJoint.mjJNT_HINGE): 1, int(mujoco.mjtJoint.mjJNT_SLIDE): 2}
_SOLVERS = {"newton": "mjSOL_NEWTON", "cg": "mjSOL_CG", "pgs": "mjSOL_PGS"}
_CONES = {"pyramidal": "mjCONE_PYRAMIDAL", "elliptic": "mjCONE_ELLIPTIC"}
_INTEGRATORS = {"implicitfast": "mjINT_IMPLICITFAST", "euler": "mjINT_EULER", "rk4": "mjINT_RK4"}


@dataclass(kw_only=True, slots=True)
class Chain:
    """The joints between the base and each foot, foot after foot, one node a joint or a jointless body.

    Attributes:
        start: (nf + 1,) the nodes of foot f are ``start[f]`` .. ``start[f + 1]``, from the base down.
        pos, quat: pose of the node in the one above: (n, 3) [m] and (n, 4) w x y z.
        kind: 0 fixed, 1 hinge, 2 slider.
        axis, anchor: (n, 3) joint axis and anchor in the node's frame.
        qpos, dof: index into qpos and qvel; 0 where fixed.
        ref: joint position at which the node's pose holds [rad or m].
        foot_pos: (nf, 3) the foot's centre in its last node [m].
    """

    start: np.ndarray
    pos: np.ndarray
    quat: np.ndarray
    kind: np.ndarray
    axis: np.ndarray
    anchor: np.ndarray
    qpos: np.ndarray
    dof: np.ndarray
    ref: np.ndarray
    foot_pos: np.ndarray


def make_scene(task: Task) -> Scene:
    """Compile the scene of ``task``: its robot on its ground."""
    check_events(task.actions.actuator, task.events)
    terrain = None
    if task.terrain is not None:
        from robot_rl_envs.terrain import build_terrain

        terrain = build_terrain(task.terrain, task.robot)
    return Scene(task.robot, task.sim, task.actions, terrain, make_sensing(task), watched=watched_fields(task))


class Scene:
    """A robot on a floor, compiled.

    Attributes:
        model: the model to simulate; visual geoms are left out.
        robot: the robot.
        sim: physics options.
        joint_qpos, joint_dof: (nj,) addresses of the robot's joints in its own order.
        joint_ctrl: (nj,) index into ctrl, -1 for a passive joint.
        joint_range: (nj, 2) limits, +-inf where unlimited.
        foot_geoms: (nf,) geom ids.
        foot_sensor: (nf,) address of each foot's contact sensor.
        base: whether the robot has a floating base.
        terrain: the ground, None on an endless plane.
        sensing: the sensors that the task's terms read.
        watched: fields of MuJoCo's own that the task's terms read; see :mod:`robot_rl_envs.watched`.
        sizes: widths that terms and state fields name: "joints", "actions", "feet", "bodies", "height_scan",
            "foot_forces".
    """

    def __init__(
        self,
        robot: Robot,
        sim: Sim,
        actions: Actions,
        terrain: Terrain | None = None,
        sensing: Sensing | None = None,
        *,
        watched: tuple[str, ...] = (),
    ):
        self.robot, self.sim, self.actions, self.terrain = robot, sim, actions, terrain
        self.sensing, self.watched = sensing or Sensing(), watched
        self._check_complete()
        self.model = model = self.compile()
        ids = [self._id("joint", joint.name) for joint in robot.joints]
        self.joint_ids = np.array(ids)
        self.joint_qpos = model.jnt_qposadr[ids].astype(np.int32)
        self.joint_dof = model.jnt_dofadr[ids].astype(np.int32)
        limits = np.where(model.jnt_limited[ids, None] != 0, model.jnt_range[ids], [-np.inf, np.inf])
        self.joint_range = limits.astype(np.float64)
        driven = {name: k for k, name in enumerate(self.actuated)}
        self.joint_ctrl = np.array([driven.get(joint.name, -1) for joint in robot.joints], dtype=np.int32)
        self.foot_geoms = np.array([self._id("geom", foot) for foot in robot.feet], dtype=np.int32)
        self.foot_sensor = np.array(
            [model.sensor_adr[self._id("sensor", f"{foot}_contact")] for foot in robot.feet], dtype=np.int32
        )
        self.base = robot.base_body is not None
        self.base_body_id = self._id("body", robot.base_body) if robot.base_body else 0
        self.default_qpos = self._default_qpos()
        self.chain = self._chain()
        self.sizes = {"joints": len(robot.joints), "actions": len(self.actuated), "feet": len(robot.feet)}
        self.sizes["bodies"] = model.nbody
        self.sizes |= self.sensing.bind(self)

    @property
    def actuated(self) -> list[str]:
        """Names of the driven joints, in the order of ctrl and of the policy's actions."""
        return [joint.name for joint in self.robot.joints if not joint.passive]

    @cached_property
    def looks_again(self) -> bool:
        """Whether the engine has to look at a world that was reset before it can be observed there."""
        return self.sensing.rays or bool(set(self.watched) - STATE)

    def compile(self, extend: Callable[[Any], None] | None = None) -> mujoco.MjModel:
        """The model to simulate, compiled anew.

        Args:
            extend: adds to the ``mujoco.MjSpec`` what an engine needs and no arrays of state depend on.
        """
        model = self._compile(visual=False, extend=extend)
        model.geom_group[model.geom_bodyid == 0] = GROUND_GROUP
        return model

    def action_map(self, joint: Joint) -> tuple[float, float]:
        """Offset and scale from a driven joint's action to its target [rad or m], its effort [N m or N] or control."""
        if self.actions.kind == "direct":
            return 0.0, self.actions.scale
        scale = joint.action_scale * self.actions.scale
        return (joint.default_pos, scale) if self.actions.kind == "position" else (0.0, scale * joint.effort_limit)

    @cached_property
    def render_model(self) -> mujoco.MjModel:
        """The same scene with visual geoms, for pictures; its qpos is the simulated model's."""
        return self._compile(visual=True)

    def _id(self, kind: str, name: str) -> int:
        found = mujoco.mj_name2id(self.model, getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}"), name)
        if found < 0:
            raise ValueError(f"robot {self.robot.name!r}: its model has no {kind} named {name!r}")
        return found

    def make_spec(self, *, visual: bool, textured: bool) -> mujoco.MjSpec:
        """The robot on its ground, not compiled yet, without actuators and sensors; qpos is the simulated model's.

        Args:
            visual: with the geoms that collide with nothing.
            textured: with light, sky and a pattern on the ground.
        """
        spec = mujoco.MjSpec.from_file(str(self.robot.model))
        if self.robot.complete:
            return spec
        if not visual:
            for geom in list(spec.geoms):
                if geom.contype == 0 and geom.conaffinity == 0:
                    spec.delete(geom)
        self._add_floor(spec, textured=textured)
        return spec

    def _compile(self, *, visual: bool, extend: Callable[[Any], None] | None = None) -> mujoco.MjModel:
        spec = self.make_spec(visual=visual, textured=visual)
        spec.option.timestep = self.sim.timestep
        if self.sim.memory:
            spec.memory = self.sim.memory
        self._add_actuators(spec)
        self._add_sensors(spec)
        option = spec.option
        sim = self.sim
        option.iterations, option.ls_iterations = sim.iterations, sim.ls_iterations
        option.solver = int(getattr(mujoco.mjtSolver, _SOLVERS[sim.solver]))
        option.cone = int(getattr(mujoco.mjtCone, _CONES[sim.cone]))
        option.integrator = int(getattr(mujoco.mjtIntegrator, _INTEGRATORS[sim.integrator]))
        # A world that turns NaN must stay NaN to be seen and quarantined, not be reset behind our back.
        option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)
        if extend is not None:
            extend(spec)
        with warnings.catch_warnings():
            if self.robot.complete:  # what is out of date in a file of others' making is theirs to change
                warnings.simplefilter("ignore", UserWarning)
            try:
                return spec.compile()
            except ValueError as error:
                if not sim.memory or "out of memory" not in str(error):
                    raise
                raise ValueError(f"sim.memory={sim.memory}: bytes too few to begin; 0 is MuJoCo's own choice") from None

    def _add_floor(self, spec: mujoco.MjSpec, *, textured: bool) -> None:
        if textured:
            # Slanting light makes a height field speckle itself with its own shadow.
            add_surroundings(spec, sun=SUN if self.terrain is None else HIGH_SUN)
        if self.terrain is not None:
            from robot_rl_envs.terrain import add_ground

            add_ground(self.terrain, spec, friction=self.sim.floor_friction, textured=textured)
            return
        floor = spec.worldbody.add_geom(name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0.0, 0.0, 0.05])
        floor.contype, floor.conaffinity = 1, 0
        floor.friction = [self.sim.floor_friction, 0.005, 0.0001]
        if not self.robot.feet:
            floor.contype = 0
            floor.pos = [0.0, 0.0, -0.9]
        if not textured:
            return
        spec.add_texture(
            name="grid",
            type=mujoco.mjtTexture.mjTEXTURE_2D,
            builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
            mark=mujoco.mjtMark.mjMARK_EDGE,
            rgb1=[0.87, 0.89, 0.91],
            rgb2=[0.80, 0.83, 0.86],
            markrgb=[0.66, 0.70, 0.74],
            width=300,
            height=300,
        )
        material = spec.add_material(name="grid", texrepeat=[1.0, 1.0], texuniform=True, reflectance=0.08)
        material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "grid"
        floor.material = "grid"

    def _check_complete(self) -> None:
        """Refuse what does not go with a model that is a whole scene, and "direct" actions with one that is not."""
        kind, name = self.actions.kind, self.robot.name
        if (kind == "direct") != self.robot.complete:
            right = "its own actuators; use direct" if self.robot.complete else "no actuators; use position or effort"
            raise ValueError(f"actions.kind={kind!r}: the model of robot {name!r} brings {right}")
        if self.robot.complete and self.terrain is not None:
            raise ValueError(f"terrain: the model of robot {name!r} brings its own ground; leave the terrain out")
        if self.robot.complete and self.actions.actuator != PositionPd():
            kind = type(self.actions.actuator).__name__
            raise ValueError(f"actions.actuator={kind}: the model of robot {name!r} brings its own; leave it out")

    def _add_actuators(self, spec: mujoco.MjSpec) -> None:
        if self.robot.complete:
            return
        self.actions.actuator.check(self.robot, self.sim.timestep, self.actions.kind)
        for joint in self.robot.joints:
            if joint.passive:
                continue
            self.actions.actuator.add_to(spec, joint, self.actions.kind)

    def _add_sensors(self, spec: mujoco.MjSpec) -> None:
        fields = mujoco.mjtConDataField
        spec_bits = (1 << int(fields.mjCONDATA_FOUND)) | (1 << int(fields.mjCONDATA_FORCE))
        net_force = 3
        for foot in self.robot.feet:
            spec.add_sensor(
                name=f"{foot}_contact",
                type=mujoco.mjtSensor.mjSENS_CONTACT,
                objtype=mujoco.mjtObj.mjOBJ_GEOM,
                objname=foot,
                intprm=[spec_bits, net_force, 1],
            )
        self.sensing.add_to(spec, self)

    def _default_qpos(self) -> np.ndarray:
        qpos = self.model.qpos0.copy()
        if self.base:
            qpos[:7] = [0.0, 0.0, self.robot.base_height, 1.0, 0.0, 0.0, 0.0]
        qpos[self.joint_qpos] = [joint.default_pos for joint in self.robot.joints]
        return qpos

    def initial_history(self) -> np.ndarray:
        """(nhistory,) the delay buffers a world starts an episode with: before it, targets were the default pose."""
        data = mujoco.MjData(self.model)
        if not self.model.nhistory:
            return data.history.copy()
        position = self.actions.kind == "position"
        for joint in self.robot.joints:
            if joint.passive:
                continue
            k = self._id("actuator", joint.name)
            samples = int(self.model.actuator_history[k, 0])
            if samples:
                value = joint.default_pos if position else 0.0
                mujoco.mj_initCtrlHistory(self.model, data, k, None, np.full((samples, 1), value))
        self.sensing.fill_history(self.model, data)
        return data.history.copy()

    def _chain(self) -> Chain:
        paths = [self._path(int(self.model.geom_bodyid[geom])) for geom in self.foot_geoms]
        nodes = [node for path in paths for node in path]
        columns = list(zip(*nodes, strict=True)) if nodes else [[]] * 8
        vectors = [
            np.array(columns[k], dtype=np.float32).reshape(-1, width) for k, width in ((0, 3), (1, 4), (3, 3), (4, 3))
        ]
        kind, qpos, dof = (np.array(columns[k], dtype=np.int32) for k in (2, 5, 6))
        return Chain(
            start=np.cumsum([0, *(len(path) for path in paths)]).astype(np.int32),
            pos=vectors[0],
            quat=vectors[1],
            kind=kind,
            axis=vectors[2],
            anchor=vectors[3],
            qpos=qpos,
            dof=dof,
            ref=np.array(columns[7], dtype=np.float32),
            foot_pos=self.model.geom_pos[self.foot_geoms].astype(np.float32).reshape(-1, 3),
        )

    def _path(self, body: int) -> list[tuple]:
        """List the nodes from the base (or the world) down to ``body``."""
        if body == (self.base_body_id if self.base else 0):
            return []
        model = self.model
        nodes = self._path(int(model.body_parentid[body]))
        pose = (model.body_pos[body], model.body_quat[body])
        first, count = int(model.body_jntadr[body]), int(model.body_jntnum[body])
        if count == 0:
            nodes.append((*pose, 0, np.array([0.0, 0.0, 1.0]), np.zeros(3), 0, 0, 0.0))
        for joint in range(first, first + count):
            kind = _JOINT_KINDS.get(int(model.jnt_type[joint]))
            if kind is None:
                raise ValueError(
                    f"robot {self.robot.name!r}: joint {model.joint(joint).name!r} of its model must be a hinge or "
                    "a slide; the one free joint is base_body's"
                )
            address = (int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint]))
            nodes.append(
                (*pose, kind, model.jnt_axis[joint], model.jnt_pos[joint], *address, float(model.qpos0[address[0]]))
            )
            pose = (np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]))
        return nodes


def add_surroundings(spec: mujoco.MjSpec, sun: tuple[float, float, float] = HIGH_SUN) -> None:
    """Add a sun, whose light goes along ``sun``, and a sky, for pictures."""
    spec.worldbody.add_light(
        pos=[0.0, 0.0, 6.0], dir=list(sun), type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL, castshadow=True
    )
    spec.add_texture(
        name="sky",
        type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
        rgb1=[0.78, 0.86, 0.94],
        rgb2=[0.98, 0.98, 1.0],
        width=256,
        height=1536,
    )

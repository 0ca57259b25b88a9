"""Compile a MuJoCo scene from a robot and physics options, and find everything in its arrays."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
from robot_rl_assets.robot import Joint, Robot

from robot_rl_envs.actuation.actuators import PositionPd, check_events
from robot_rl_envs.agents import Crew
from robot_rl_envs.engine import GROUND_GROUP
from robot_rl_envs.entity.entity import Entity, one_line, read_model
from robot_rl_envs.entity.mujoco_fields import STATE, used_mujoco_fields
from robot_rl_envs.entity.objects import SceneElements
from robot_rl_envs.entity.reference_motions import ReferenceMotions
from robot_rl_envs.entity.robot_checks import require_sound
from robot_rl_envs.motions.files import read_motion
from robot_rl_envs.motions.motion import Motion
from robot_rl_envs.objects import CONTACT_SIZE, OTHERS, ROBOT, Articulated, Contact, Object, add_contact, sense_contact
from robot_rl_envs.sensing.sensor import SensorContext
from robot_rl_envs.sensing.sensors import Sensing, used_sensors
from robot_rl_envs.task import Actions, Sim, Task

if TYPE_CHECKING:
    from robot_rl_envs.terrain import Terrain

SUN, HIGH_SUN = (0.2, 0.3, -1.0), (0.0, 0.0, -1.0)
"""Direction of the light in images of a plane, and of ground with vertical sides."""

SOLREF, SOLIMP = [0.02, 1.0], [0.9, 0.95, 0.001, 0.5, 2.0]
"""MuJoCo's own softness of a contact."""


def make_scene(task: Task, crew: Crew | None = None) -> Scene:
    """Compile the scene of ``task``: its robot and its objects on its ground.

    With ``crew`` it is the view of one robot of a team: the scene without the others.
    """
    check_events(task.actions.actuator, task.events)
    require_sound(task.robot)
    if task.messages and crew is None:
        raise ValueError(f"messages={list(task.messages)}: a task of one robot has none; omit them")
    terrain = None
    if task.terrain is not None:
        from robot_rl_envs.terrain import build_terrain

        terrain = build_terrain(task.terrain, task.robot)
    sensing, mujoco_fields = make_sensing(task), used_mujoco_fields(task)
    return Scene(
        task.robot,
        task.sim,
        task.actions,
        terrain,
        sensing,
        mujoco_fields=mujoco_fields,
        command=task.command_width,
        contents=SceneCfg(
            objects=task.objects,
            contacts=task.contacts,
            sites=task.named("site") | dict.fromkeys(task.tracked, "tracked"),
            motions=_read_motions(task),
            tracked=task.tracked,
            crew=crew,
        ),
    )


def _read_motions(task: Task) -> dict[str, Motion]:
    if task.motions and task.terrain is not None:
        raise ValueError(f"motions={list(task.motions)}: need the endless plane; leave the terrain out")
    return {name: read_motion(value, task.robot, f"motions.{name}") for name, value in task.motions.items()}


def make_sensing(task: Task) -> Sensing:
    """Return the sensors of ``task``."""
    actor = getattr(task.observations["actor"], "terms", {})
    in_base = [
        f"observations.actor.{name}"
        for name, term in actor.items()
        if hasattr(term, "params") and term.info.frame == "base" and (term.info.signal or "").startswith("imu")
    ]
    at = SensorContext(used=used_sensors(task), decimation=task.sim.decimation, in_base=tuple(in_base))
    return Sensing(task.sensors, at)


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneCfg:
    """What a task puts into its scene in addition to the robot.

    Attributes:
        objects: by name.
        contacts: sensors by name.
        sites: names of the sites that terms read, each with the path of a parameter that names it.
        motions: reference motions by name.
        tracked: those of the sites that are compared with the reference motion.
        crew: the robots of a team of which each sees the scene; None for a single robot.
    """

    objects: Mapping[str, Object | Articulated] = field(default_factory=dict)
    contacts: Mapping[str, Contact] = field(default_factory=dict)
    sites: Mapping[str, str] = field(default_factory=dict)
    motions: Mapping[str, Motion] = field(default_factory=dict)
    tracked: tuple[str, ...] = ()
    crew: Crew | None = None


class Scene:
    """A robot and objects on a floor, compiled.

    Attributes:
        model: the model to simulate; without visual geoms.
        elements: the objects, and the sites and contact sensors that terms read.
        reference_motions: the reference motions at the control rate.
        entity: the robot. Its ``joint_qpos``, ``joint_dof``, ``joint_ctrl``, ``foot_geoms``, ``foot_sensor``, ``base``,
            ``base_body_id``, ``actuated`` and ``sensing`` are also attributes of the scene.
        robot: the facts of the robot's model.
        terrain: the ground, None on an endless plane.
        mujoco_fields: MuJoCo's own fields that the task's terms read; see :mod:`robot_rl_envs.entity.mujoco_fields`.
        crew: the robots of which each sees such a scene; None for a single robot.
        default_qpos: (nq,) everything in its default pose.
        sizes: widths that terms and state fields name: those of the robot, "bodies", "command", "objects",
            "object_joints", "contacts", "tracked" and "motion_bins", and in a team "team" and "others", its robots.
    """

    def __init__(
        self,
        robot: Robot,
        sim: Sim,
        actions: Actions,
        terrain: Terrain | None = None,
        sensing: Sensing | None = None,
        *,
        mujoco_fields: tuple[str, ...] = (),
        command: int = 3,
        contents: SceneCfg | None = None,
    ):
        contents = contents or SceneCfg()
        self.crew = crew = contents.crew
        self.objects, self.contacts = dict(contents.objects), dict(contents.contacts)
        self.robot, self.sim, self.actions, self.terrain = robot, sim, actions, terrain
        self.sensing, self.mujoco_fields = sensing or Sensing(), mujoco_fields
        self._check_complete()
        self.model = self.compile()
        self.entity = entity = Entity(robot, self.model, self.sensing)
        self.elements = SceneElements(self.model, list(self.objects), contents.sites, list(self.contacts))
        self.joint_qpos, self.joint_dof, self.joint_ctrl = entity.joint_qpos, entity.joint_dof, entity.joint_ctrl
        self.foot_geoms, self.foot_sensor, self.actuated = entity.foot_geoms, entity.foot_sensor, entity.actuated
        self.base, self.base_body_id = entity.base, entity.base_body_id
        self.default_qpos = self.model.qpos0.copy()
        for thing in (entity, self.elements):
            thing.set_default_qpos(self.default_qpos)
        self.reference_motions = ReferenceMotions(
            self.model,
            entity,
            contents.motions,
            contents.tracked,
            self.elements.sites,
            step_dt=sim.step_dt,
            floor=sim.floor_height,
        )
        self.sizes = entity.sizes | self.elements.sizes | self.reference_motions.sizes
        self.sizes |= {"bodies": self.model.nbody, "command": command}
        if crew is not None:
            self.sizes |= {"team": len(crew.names), "others": len(crew.names) - 1}

    @cached_property
    def needs_reset_forward(self) -> bool:
        """Whether a world's new state after a reset must be known to others before it can be observed.

        The engine has to compute it, or the other robots also have to be placed.
        """
        return self.crew is not None or self.sensing.is_launched or bool(set(self.mujoco_fields) - STATE)

    def compile(self, extend: Callable[[Any], None] | None = None) -> mujoco.MjModel:
        """Compile the model to simulate.

        ``extend`` adds elements to the ``mujoco.MjSpec`` that an engine needs and on which no array of state depends.
        """
        model = self._compile(visual=False, extend=extend)
        fixed = [model.body(name).id for name, thing in self.objects.items() if thing.fixed]
        static = (model.body_weldid == 0) & (np.isin(model.body_rootid, fixed) | (np.arange(model.nbody) == 0))
        model.geom_group[static[model.geom_bodyid]] = GROUND_GROUP
        return model

    def index_of(self, kind: str) -> tuple[dict[str, int], str]:
        """Return the index of each thing of a kind of :data:`.term_config.NAMED`, and the words for its owner."""
        model, robot = self.model, repr(self.robot.name)
        if kind == "body":
            return {model.body(k).name: k for k in range(model.nbody)}, robot
        if kind == "sensor":
            return {model.sensor(k).name: int(model.sensor_adr[k]) for k in range(model.nsensor)}, robot
        names = {
            "joint": self.robot.joint_names,
            "site": self.elements.sites,
            "object": self.objects,
            "object_joint": self.elements.joints,
            "contact": self.contacts,
            "message": self.crew.messages if self.crew is not None else {},
        }
        return {name: k for k, name in enumerate(names[kind])}, robot if kind == "joint" else "the task"

    def action_map(self, joint: Joint) -> tuple[float, float]:
        """Return offset and scale from a joint's action to its target [rad, m], its effort [N m, N] or control.

        The target of a joint driven by its speed is one [rad/s, m/s]. That of an action "around" the command has that
        joint's component added.
        """
        if self.actions.kind == "direct":
            return 0.0, self.actions.scale
        scale = joint.action_scale * self.actions.scale
        if self.actions.kind == "effort":
            return 0.0, scale * joint.effort_limit
        return (0.0 if joint.by_speed or self.actions.around == "command" else joint.default_pos), scale

    def max_action(self, joint: Joint) -> float:
        """Return the largest useful magnitude of a driven joint's action, at most the task's clip.

        A joint driven by its speed is asked for its velocity limit at most, or for ``actions.limit_speed`` of it.
        """
        if self.actions.kind != "position" or not joint.by_speed:
            return self.actions.clip
        fastest = (self.actions.limit_speed or 1.0) * joint.velocity_limit
        return min(self.actions.clip, fastest / abs(self.action_map(joint)[1]))

    def max_error(self, joint: Joint) -> float | None:
        """Return the largest distance of a driven joint's target from its position [rad or m]; None without one.

        The target of a joint driven by its speed has none.

        The law ``kp (target - q) - kd qd`` and the model's damping ``d``, with that of joints which follow this one,
        are in balance at the speed ``kp (target - q) / (kd + d)``, which is to be ``actions.limit_speed`` times the
        velocity limit. A joint of which the inertia matters still overshoots it.

        Raises:
            ValueError: Nothing brakes the joint.
        """
        if not self.actions.limit_speed or joint.by_speed:
            return None
        k, entity = self.robot.joint_names.index(joint.name), self.entity
        damping = self.model.dof_damping[entity.joint_dof]
        follows = entity.joint_follows
        damping = joint.kd + damping[k] + float(np.sum((damping * follows[:, 1] ** 2)[follows[:, 0] == k]))
        if damping == 0:
            raise ValueError(
                f"actions.limit_speed={self.actions.limit_speed}: joint {joint.name!r} is without damping; give it a kd"
            )
        return self.actions.limit_speed * joint.velocity_limit * float(damping) / joint.kp

    def action_bounds(self) -> np.ndarray:
        """Return (A, 2) least and greatest useful actions: they reach a joint's limits, its effort or its control.

        A joint driven by its speed has its largest one, see :meth:`max_action`.

        A joint without a limit has 1; no bound is beyond the task's clip of actions.
        """
        joints = [joint for joint in self.robot.joints if not joint.passive]
        if self.actions.kind == "direct":
            is_limited = self.model.actuator_ctrllimited[:, None] != 0
            limits = np.where(is_limited, self.model.actuator_ctrlrange, np.nan)
        elif self.actions.kind == "effort":
            limits = np.array([[-joint.effort_limit, joint.effort_limit] for joint in joints])
        else:
            limits = self.entity.joint_range[[not joint.passive for joint in self.robot.joints]]
            if self.actions.around == "command":
                limits = limits - np.array([[joint.default_pos] for joint in joints])
            limits = np.where([[joint.by_speed] for joint in joints], np.nan, limits)
        offset, scale = np.array([self.action_map(joint) for joint in joints]).T[..., None]
        bounds = np.sort((limits - offset) / scale, axis=1)
        most = np.array([[self.max_action(joint)] for joint in joints])
        usual = np.where([[joint.by_speed and self.actions.kind == "position"] for joint in joints], most, 1.0)
        return np.clip(np.where(np.isfinite(bounds), bounds, usual * [-1.0, 1.0]), -most, most)

    @cached_property
    def render_model(self) -> mujoco.MjModel:
        """The same scene with visual geoms, for images; its qpos is the simulated model's."""
        return self._compile(visual=True)

    def make_spec(self, *, visual: bool, textured: bool) -> mujoco.MjSpec:
        """Return the robot on its ground, not compiled, without actuators and sensors; qpos is the simulated model's.

        Args:
            visual: with the geoms that collide with nothing.
            textured: with light, sky and a pattern on the ground.
        """
        spec = self.robot_spec(visual=visual)
        if not self.robot.complete:
            self.furnish(spec, visual=visual, textured=textured)
        return spec

    def robot_spec(self, *, visual: bool) -> mujoco.MjSpec:
        """Return the robot, not compiled, without actuators and sensors; ``visual`` as in :meth:`make_spec`."""
        spec = read_model(self.robot)
        if not visual and not self.robot.complete:
            for geom in list(spec.geoms):
                if geom.contype == 0 and geom.conaffinity == 0:
                    spec.delete(geom)
        return spec

    def furnish(self, spec: mujoco.MjSpec, *, visual: bool, textured: bool) -> None:
        """Add the ground and the objects to a scene; the arguments are those of :meth:`make_spec`."""
        self._add_floor(spec, textured=textured)
        for name, thing in self.objects.items():
            taken = [body.name for body in spec.bodies if body.name == name]
            if taken:
                raise ValueError(f"objects.{name}: robot {self.robot.name!r} has a body of that name; take another")
            thing.add_to(spec, name, visual=visual)

    def equip(self, spec: mujoco.MjSpec) -> None:
        """Add the robot's actuators and its own sensors."""
        spec.option.timestep = self.sim.timestep  # delays are in its units
        if not self.robot.complete:
            self.actions.actuator.check(self.robot, self.sim.timestep, self.actions.kind)
            for joint in self.robot.joints:
                if not joint.passive:
                    self.actions.actuator.add_to(spec, joint, self.actions.kind)
        for foot in self.robot.feet:
            sense_contact(spec, f"{foot}_contact", (mujoco.mjtObj.mjOBJ_GEOM, foot))
        self.sensing.add_to(spec, self.robot, self.sim.timestep)

    def set_options(self, spec: mujoco.MjSpec) -> None:
        """Set the options of the physics."""
        option, sim = spec.option, self.sim
        if sim.memory:
            spec.memory = sim.memory
        option.timestep = sim.timestep
        option.iterations, option.ls_iterations = sim.iterations, sim.ls_iterations
        option.solver = int(getattr(mujoco.mjtSolver, f"mjSOL_{sim.solver.upper()}"))
        option.cone = int(getattr(mujoco.mjtCone, f"mjCONE_{sim.cone.upper()}"))
        option.integrator = int(getattr(mujoco.mjtIntegrator, f"mjINT_{sim.integrator.upper()}"))
        # A world that turns NaN must stay NaN to be seen and quarantined, not be reset by MuJoCo.
        option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)

    def _compile(self, *, visual: bool, extend: Callable[[Any], None] | None = None) -> mujoco.MjModel:
        spec = self.make_spec(visual=visual, textured=visual)
        self.equip(spec)
        self._add_contacts(spec)
        self.set_options(spec)
        if extend is not None:
            extend(spec)
        return self.compiled(spec)

    def compiled(self, spec: mujoco.MjSpec) -> mujoco.MjModel:
        """Compile a scene.

        Raises:
            ValueError: MuJoCo refuses it; the line names the robot's file, or the setting that is too small.
        """
        sim = self.sim
        with warnings.catch_warnings():
            if self.robot.complete:  # only its authors can update a file that is out of date
                warnings.simplefilter("ignore", UserWarning)
            try:
                return spec.compile()
            except ValueError as error:
                if sim.memory and "out of memory" in str(error):
                    line = f"sim.memory={sim.memory}: bytes too few to begin; 0 is MuJoCo's own choice"
                    raise ValueError(line) from None
                line = f"robot {self.robot.name!r}: {self.robot.model} does not compile: {one_line(error)}"
                raise ValueError(line) from None

    def _add_floor(self, spec: mujoco.MjSpec, *, textured: bool) -> None:
        if textured:
            # Slanting light makes a height field speckle itself with its own shadow.
            add_surroundings(spec, sun=SUN if self.terrain is None else HIGH_SUN)
        if self.terrain is not None:
            from robot_rl_envs.terrain import add_ground

            add_ground(self.terrain, spec, friction=self.sim.floor_friction, textured=textured)
            return
        if spec.geom("floor") is not None:
            raise ValueError(f"robot {self.robot.name!r}: {self.robot.model}: a geom's name is 'floor'; rename it")
        floor = spec.worldbody.add_geom(name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0.0, 0.0, 0.05])
        # The defaults that the robot's file has for geoms are for the robot only.
        floor.contype, floor.conaffinity, floor.condim, floor.priority, floor.group = 1, 0, 3, 0, 0
        floor.margin, floor.gap, floor.solmix, floor.solref, floor.solimp = 0.0, 0.0, 1.0, SOLREF, SOLIMP
        floor.rgba, floor.material = [0.5, 0.5, 0.5, 1.0], ""
        floor.friction = [self.sim.floor_friction, 0.005, 0.0001]
        floor.pos = [0.0, 0.0, self.sim.floor_height]
        if not textured:
            return
        grid = _free_name("grid", [*spec.textures, *spec.materials])
        spec.add_texture(
            name=grid,
            type=mujoco.mjtTexture.mjTEXTURE_2D,
            builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
            mark=mujoco.mjtMark.mjMARK_EDGE,
            rgb1=[0.87, 0.89, 0.91],
            rgb2=[0.80, 0.83, 0.86],
            markrgb=[0.66, 0.70, 0.74],
            width=300,
            height=300,
        )
        material = spec.add_material(name=grid, texrepeat=[1.0, 1.0], texuniform=True, reflectance=0.08)
        material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = grid
        floor.material = grid

    def _check_complete(self) -> None:
        """Refuse settings that a model of a whole scene cannot have, and "direct" actions with one that is not."""
        kind, name = self.actions.kind, self.robot.name
        if (kind == "direct") != self.robot.complete:
            right = "its own actuators; use direct" if self.robot.complete else "no actuators; use position or effort"
            raise ValueError(f"actions.kind={kind!r}: the model of robot {name!r} brings {right}")
        if self.robot.complete and self.objects:
            line = f"the model of robot {name!r} is a whole scene; add the objects to it"
            raise ValueError(f"objects: {line}, and leave {', '.join(self.objects)} out")
        if self.terrain is not None and any(thing.fixed for thing in self.objects.values()):
            fixed = next(name for name, thing in self.objects.items() if thing.fixed)
            raise ValueError(f"objects.{fixed}: fixed objects need the endless plane; leave the terrain out")
        if self.robot.complete and self.terrain is not None:
            raise ValueError(f"terrain: the model of robot {name!r} brings its own ground; leave the terrain out")
        if self.robot.complete and self.actions.actuator != PositionPd():
            kind = type(self.actions.actuator).__name__
            raise ValueError(f"actions.actuator={kind}: the model of robot {name!r} brings its own; omit it")

    def _add_contacts(self, spec: mujoco.MjSpec) -> None:
        if self.contacts:
            roots = {ROBOT: self.top_body(spec)} | {name: name for name in self.objects}
            for name, sensor in self.contacts.items():
                if self.crew is not None and OTHERS in (sensor.first, sensor.second):
                    # Nothing to touch here: the values are those of the team's scene.
                    spec.add_sensor(name=f"contact/{name}", type=mujoco.mjtSensor.mjSENS_USER, dim=CONTACT_SIZE)
                else:
                    add_contact(spec, name, sensor, roots)

    def top_body(self, spec: mujoco.MjSpec) -> str:
        """Return the robot's base, or its topmost body, in its scene."""
        top = next(body.name for body in spec.worldbody.bodies if body.name not in self.objects)
        return self.robot.base_body or top

    def initial_history(self) -> np.ndarray:
        """Return (nhistory,) the delay buffers at an episode's start, filled with the default pose (speeds: 0)."""
        data = mujoco.MjData(self.model)
        if not self.model.nhistory:
            return data.history.copy()
        position = self.actions.kind == "position"
        for joint in self.robot.joints:
            if joint.passive:
                continue
            k = self.model.actuator(joint.name).id
            samples = int(self.model.actuator_history[k, 0])
            if samples:
                value = joint.default_pos if position and not joint.by_speed else 0.0
                mujoco.mj_initCtrlHistory(self.model, data, k, None, np.full((samples, 1), value))
        self.sensing.fill_history(data)
        return data.history.copy()


def _free_name(name: str, elements: list[Any]) -> str:
    """Return a name that no element has: this one, or this one with underscores."""
    taken = {element.name for element in elements}
    while name in taken:
        name += "_"
    return name


def add_surroundings(spec: mujoco.MjSpec, sun: tuple[float, float, float] = HIGH_SUN) -> None:
    """Add a sun with light along ``sun``, and a sky, for images."""
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

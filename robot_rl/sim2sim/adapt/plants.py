"""Simulated robots that differ from the one that a policy was trained with, by name."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.errors import UserError, suggest

if TYPE_CHECKING:
    from robot_rl_assets.robot import Joint, Robot
    from robot_rl_envs.task import Command, Task

KINDS = {
    "nominal": "as in training, with its randomization",
    "heavier": "it carries a mass that no training had: payload [kg], at payload_at in the frame of its base",
    "weaker": "its motors have three quarters of their strength",
    "slippery": "its feet slide: a friction of 0.35",
    "motors": "each joint has another motor: strength, armature, damping, friction, drawn by motors_seed",
}
"""Names of the plants, and their differences to the training."""
STRENGTH, FRICTION = 0.75, 0.35
PAYLOAD_SHARE = 1.0 / 3.0
"""Payload by default, as a share of the robot's own mass."""
BOX = (0.1, 0.075, 0.05)
"""Half of the payload's length, width and height [m]."""
PUSH = "push"
"""The event that is omitted: nobody pushes a robot that is to adapt."""
REPLACED = {"weaker": "motor_strength", "slippery": "foot_friction"}
"""The randomization that a plant's own event takes the place of."""


@dataclass(kw_only=True, slots=True)
class PlantCfg:
    """A plant.

    Attributes:
        name: One of `KINDS`.
        payload: Mass that the robot carries [kg]; 0: a third of its own. Only of the heavier plant.
        payload_at: Where, in the frame of its base [m].
        motors_seed: Of the other motors.
        speed: Share of the range of the task's velocity commands that the robot is given: one with a payload
            unknown to the training is not to be driven to its limits.
    """

    name: str = "nominal"
    payload: float = 0.0
    payload_at: tuple[float, float, float] = (0.15, 0.0, 0.05)
    motors_seed: int = 0
    speed: float = 0.6

    def __post_init__(self) -> None:
        """Check the name, and that the rest belongs to it."""
        if self.name not in KINDS:
            raise UserError("plant", self.name, "no such plant", suggest(self.name, KINDS))
        if self.payload and self.name != "heavier":
            raise UserError("payload", f"{self.payload:g}", "is for plant=heavier", "leave one of them out")
        if self.motors_seed and self.name != "motors":
            raise UserError("motors_seed", self.motors_seed, "is for plant=motors", "leave one of them out")
        if not 0.0 <= self.payload <= 1000.0:
            raise UserError("payload", f"{self.payload:g}", "must be in [0, 1000] kg")
        if not all(abs(value) <= 2.0 for value in self.payload_at):
            raise UserError("payload_at", self.payload_at, "must be within 2 m of the base")
        if not 0.0 < self.speed <= 1.0:
            raise UserError("speed", f"{self.speed:g}", "must be above 0 and at most 1")


def check_plant(task: Task, cfg: PlantCfg) -> None:
    """Raise UserError if a task's robot cannot be such a plant."""
    if cfg.name == "heavier" and task.robot.base_body is None:
        raise UserError(f"plant=heavier: the robot of task={task.name} is bolted down, it carries nothing")


def make_plant(task: Task, cfg: PlantCfg, folder: Path) -> tuple[Task, str]:
    """Return a copy of a task with the plant in it, which nobody pushes or drives fast, and the difference in words.

    Args:
        task: The task.
        cfg: The plant.
        folder: Where the model of a robot with a payload is written.

    Raises:
        UserError: The robot is bolted down and cannot carry anything.
    """
    from robot_rl_envs.mdp import events
    from robot_rl_envs.task import Event

    check_plant(task, cfg)
    commands = {name: _slower(command, cfg.speed) for name, command in task.commands.items()}
    task = dataclasses.replace(task, commands=commands, events=_without(task.events, PUSH))
    if cfg.name == "nominal":
        return task, KINDS[cfg.name]
    if cfg.name == "heavier":
        return _loaded(task, cfg, folder)
    if cfg.name == "motors":
        robot, events_left = other_motors(task.robot, cfg.motors_seed), _without(task.events, REPLACED["weaker"])
        return dataclasses.replace(task, robot=robot, events=events_left), f"other motors, seed {cfg.motors_seed}"
    if cfg.name == "weaker":
        event = Event(events.motor_strength, lo=STRENGTH, hi=STRENGTH)
        difference = f"motors have {STRENGTH:.0%} strength"
    else:
        event = Event(events.foot_friction, lo=FRICTION, hi=FRICTION)
        difference = f"feet have a friction of {FRICTION:g}"
    return dataclasses.replace(task, events={**_without(task.events, REPLACED[cfg.name]), "plant": event}), difference


def other_motors(robot: Robot, seed: int) -> Robot:
    """Return a robot of which each joint has another motor, as far from its model as real ones are."""
    import numpy as np
    from robot_rl_assets.robot import Dynamics

    rng = np.random.default_rng(seed)
    model = robot.load_model().compile()

    def changed(joint: Joint) -> Joint:
        dof = model.joint(joint.name).dofadr[0]
        armature, damping = float(model.dof_armature[dof]), float(model.dof_damping[dof])
        most = 0.025 * joint.effort_limit
        values = rng.uniform([0.7, 0.5, -0.05, 0.2], [1.1, 3.0, 0.4, 1.0])
        gain, factor, more, share = map(float, values)
        dynamics = Dynamics(
            gain=gain,
            armature=factor * armature,
            damping=max(damping + more * joint.kd, -joint.kd),
            friction=share * most,
        )
        return dataclasses.replace(joint, dynamics=dynamics)

    joints = tuple(joint if joint.passive else changed(joint) for joint in robot.joints)
    return dataclasses.replace(robot, joints=joints)


def _without(events: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return events without those of a function's name."""
    return {key: event for key, event in events.items() if event.info.name != name}


def _slower(command: Command, share: float) -> Command:
    """Return a velocity command with so much of its range; any other one as it is."""
    if "vx_lo" not in command.params:
        return command
    ranged = {name: share * value for name, value in command.params.items() if name.endswith(("_lo", "_hi"))}
    return type(command)(command.fn, resample_s=command.resample_s, team=command.team, **{**command.params, **ranged})


def _loaded(task: Task, cfg: PlantCfg, folder: Path) -> tuple[Task, str]:
    """Return a task with a robot that carries a box on its base, a separate body, and the load in words."""
    mujoco: Any = importlib.import_module("mujoco")
    robot = task.robot
    assert robot.base_body is not None
    spec = robot.load_model()
    mass = cfg.payload or round(PAYLOAD_SHARE * float(spec.compile().body_subtreemass[0]), 1)
    box = spec.body(robot.base_body).add_body(name="payload", pos=cfg.payload_at)
    # Scenes may omit geoms that are only drawn: the mass is the body's own, not that of its geom.
    box.mass, box.ipos, box.explicitinertial = mass, [0.0, 0.0, 0.0], True
    squares = [side * side for side in BOX]
    box.inertia = [mass / 3.0 * (sum(squares) - square) for square in squares]
    box.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=BOX, contype=0, conaffinity=0, rgba=(0.6, 0.4, 0.2, 1))
    for name in ("meshdir", "texturedir"):
        setattr(spec, name, str((robot.model.parent / getattr(spec, name)).resolve()))
    path = folder / f"{robot.name}_payload.xml"
    folder.mkdir(parents=True, exist_ok=True)
    spec.compile()
    path.write_text(spec.to_xml())
    x, y, z = cfg.payload_at
    loaded = dataclasses.replace(robot, model=path)
    return dataclasses.replace(task, robot=loaded), f"it carries {mass:g} kg at {x:g}, {y:g}, {z:g} m of its base"

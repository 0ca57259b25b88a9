"""What a task is: a robot, simulation options and named lists of terms. Plain data; nothing is compiled here."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from robot_rl_assets.robot import Robot

from robot_rl_envs.actuation.actuators import Actuator, PositionPd
from robot_rl_envs.agents import Agent, Crew, Message, Role, Team, check_team, make_crews
from robot_rl_envs.measured import Randomize, apply_measured
from robot_rl_envs.objects import OTHERS, Articulated, Contact, Object, check_objects
from robot_rl_envs.sensing.camera import ImageGroup
from robot_rl_envs.sensing.pipeline import OPTIONS
from robot_rl_envs.sensing.sensor import Sensor
from robot_rl_envs.sensing.sensors import Sensors, check_sensors
from robot_rl_envs.term_config import (
    Command,
    Curriculum,
    Event,
    Metric,
    Observation,
    Reward,
    Termination,
    TorchTerm,
    check_terms,
    reference_kind,
)
from robot_rl_envs.terms.checks import check_length, is_number, require

if TYPE_CHECKING:
    from robot_rl_envs.terrain import TerrainCfg

__all__ = [
    "Actions",
    "Command",
    "Curriculum",
    "Event",
    "Metric",
    "Observation",
    "ObservationGroup",
    "Reward",
    "Sim",
    "Task",
    "Termination",
    "TorchTerm",
]

SOLVERS = ("newton", "cg", "pgs")
CONES = ("pyramidal", "elliptic")
INTEGRATORS = ("implicitfast", "euler", "rk4")

MAX_TERMINATIONS = 31
"""Terminations of a task at most: the bits of the state field ``termination_bits``."""

ON_THE_WAY = ("delay_s", "delay_steps", "dropout", "measured")
"""Options of an observation that are set by the message which it receives."""

TWICE = "given twice; every term, and every group of images, needs its own name"

ONE_COMMAND = "all write the one command of a world, so they must declare the same components, frame and draws"

_SECTIONS = {
    "rewards": "reward",
    "terminations": "termination",
    "commands": "command",
    "events": "event",
    "curricula": "curriculum",
    "metrics": "metric",
}


def _signal_of(term: Any) -> str | None:
    return None if isinstance(term, TorchTerm) else term.info.signal


@dataclass(kw_only=True, slots=True)
class Sim:
    """Physics options.

    Attributes:
        timestep: physics step [s].
        decimation: physics steps per control step.
        solver: "newton", "cg" or, only on the CPU engine, "pgs".
        iterations, ls_iterations: largest number of solver and of line search iterations.
        cone: friction cone, "pyramidal" or "elliptic".
        integrator: "implicitfast", "euler" or "rk4".
        floor_friction: sliding friction of the floor.
        floor_height: height of the floor without a terrain [m].
        nconmax, njmax: largest number of contacts and of constraint rows a world (mujoco_warp); 0: the engine's choice.
        memory: bytes for contacts and constraints (mujoco); 0: the engine's choice.
    """

    timestep: float = 0.005
    decimation: int = 4
    solver: str = "newton"
    iterations: int = 10
    ls_iterations: int = 10
    cone: str = "pyramidal"
    integrator: str = "implicitfast"
    floor_friction: float = 1.0
    floor_height: float = 0.0
    nconmax: int = 0
    njmax: int = 0
    memory: int = 0

    def __post_init__(self) -> None:
        require(0 < self.timestep <= 0.05, "sim.timestep", self.timestep, "must be in (0, 0.05] s")
        require(1 <= self.decimation <= 100, "sim.decimation", self.decimation, "must be in [1, 100]")
        for name, kinds in (("solver", SOLVERS), ("cone", CONES), ("integrator", INTEGRATORS)):
            value = getattr(self, name)
            require(value in kinds, f"sim.{name}", value, f"must be one of {', '.join(kinds)}")
        for name in ("iterations", "ls_iterations"):
            require(1 <= getattr(self, name) <= 1000, f"sim.{name}", getattr(self, name), "must be in [1, 1000]")
        require(self.floor_friction >= 0, "sim.floor_friction", self.floor_friction, "must be >= 0")
        require(is_number(self.floor_height), "sim.floor_height", self.floor_height, "must be a finite number [m]")
        for name, most in (("nconmax", 2**31 - 1), ("njmax", 2**31 - 1), ("memory", 2**40)):
            right = f"must be 0 (the engine's own) or more, and at most {most}"
            require(0 <= getattr(self, name) <= most, f"sim.{name}", getattr(self, name), right)

    @property
    def step_dt(self) -> float:
        """Control period [s]."""
        return self.timestep * self.decimation


@dataclass(kw_only=True, slots=True)
class Actions:
    """How the policy's outputs drive the joints.

    Attributes:
        kind: "position" (target = default + scale * action; of a joint with kp=0 and a kd, as of a wheel, it is the
            speed scale * action), "effort" (force = scale * action) or, for a robot with a model that brings its own
            actuators, "direct" (control = scale * action).
        around: the target position of an action of 0: "default", the default pose, or "command", for a command
            that has a component of each driven joint's name.
        clip: bound on the raw action's magnitude.
        scale: multiplies the robot's ``action_scale``; "direct" uses only this one.
        limit_speed: share of a joint's velocity limit that its target may ask for: targets stay as near to the measured
            position as that needs, see :meth:`robot_rl_envs.entity.scene.Scene.max_error`; 0: targets are free, and
            speeds have the velocity limit.
        actuator: the law that drives the joints towards the target: see :mod:`robot_rl_envs.actuation.actuators`.
    """

    kind: str = "position"
    clip: float = 10.0
    scale: float = 1.0
    around: str = "default"
    limit_speed: float = 0.0
    actuator: Actuator = field(default_factory=PositionPd)

    def __post_init__(self) -> None:
        right = "must be position or effort, or direct with a model that brings its own actuators"
        require(self.kind in ("position", "effort", "direct"), "actions.kind", self.kind, right)
        require(self.clip > 0, "actions.clip", self.clip, "must be > 0")
        right = "must be a finite number and not 0, with which nothing would move"
        require(is_number(self.scale) and self.scale != 0, "actions.scale", self.scale, right)
        known = ("default", "command") if self.kind == "position" else ("default",)
        require(self.around in known, "actions.around", self.around, f"must be {' or '.join(known)} with {self.kind}")
        require(0 <= self.limit_speed <= 1, "actions.limit_speed", self.limit_speed, "must be in [0, 1]")
        limitable = not self.limit_speed or (self.kind == "position" and self.actuator.takes_gains)
        require(limitable, "actions.limit_speed", self.limit_speed, "needs position targets and an actuator with gains")


@dataclass(kw_only=True, slots=True)
class ObservationGroup:
    """Named :class:`Observation` and :class:`TorchTerm` entries, concatenated in order, with their noise or without.

    Attributes:
        terms: the entries.
        noise: simulate the errors of the sensors; without, the kernels do not contain code for them.
        muted: with ``noise``, the same kernels with every figure of it 0, which give the same values as without: an
            evaluation takes them so, and compiles nothing that the training has compiled.
    """

    terms: dict[str, Any]
    noise: bool = True
    muted: bool = False


@dataclass(kw_only=True, slots=True)
class Task:
    """One task: everything the environment needs, and the learner's presets.

    Attributes:
        summary: one line for ``robot-rl list``.
        episode_length_s: an episode's length [s].
        observations: "actor" (values that a robot can sense) and "critic" (anything); further groups may be of images.
        rewards, terminations, commands, events, curricula, metrics: named terms.
        terrain: the ground; None is an endless plane.
        objects: the other things in the scene, by name: see :mod:`robot_rl_envs.objects`.
        contacts: sensors of the contacts between parts of the scene, by name.
        motions: reference motions by name: one of the robot's library, or a file; see :mod:`robot_rl_envs.motions`.
        tracked: bodies (or sites) of the robot that terms compare with those of the reference motion.
        sensors: poses and ranges of sensors by name; the observation terms decide which are read.
        randomize: randomization that is read from files: a measured latency.
        only_positive_rewards: floor the summed reward of a step at zero.
        mirror: the task is left-right symmetric.
        num_envs: worlds by default (cpu, gpu).
        learner, learner_cpu: dotted learner settings, e.g. ``{"ppo.gamma": 0.99}``; the second, on top, on a CPU.
        presets: the same for learners that do not use PPO's, by their name, e.g. ``{"flashsac": {...}}``.
        learner_name: the learner that trains it unless the user names one.
        solved: ``("tracking/<metric>", bound)``: the criterion for solved, for time-to-threshold figures; the metric
            declares which values are better.
        deployable: a robot can measure all that the actor sees; the exporter refuses a task that is not.
        robots: several robots by name, instead of ``robot``; see :mod:`robot_rl_envs.agents`. ``robot`` is then the
            model of the first.
        roles: the settings of a role's robots that differ from the task's, by the role's name.
        team: how the robots of an episode come and go.
        messages: those that each robot of a team sends the others, by name.
    """

    name: str
    rewards: dict[str, Any]
    observations: Mapping[str, ObservationGroup | ImageGroup]
    robot: Robot = None  # pyright: ignore[reportAssignmentType]  (set from `robots` if it is omitted)
    summary: str = ""
    sim: Sim = field(default_factory=Sim)
    episode_length_s: float = 20.0
    actions: Actions = field(default_factory=Actions)
    terminations: dict[str, Any] = field(default_factory=dict)
    commands: dict[str, Command] = field(default_factory=dict)
    events: dict[str, Event] = field(default_factory=dict)
    curricula: dict[str, Curriculum] = field(default_factory=dict)
    metrics: dict[str, Metric] = field(default_factory=dict)
    terrain: "TerrainCfg | None" = None
    objects: dict[str, Object | Articulated] = field(default_factory=dict)
    contacts: dict[str, Contact] = field(default_factory=dict)
    motions: dict[str, str] = field(default_factory=dict)
    tracked: tuple[str, ...] = ()
    sensors: Mapping[str, Sensor] = field(default_factory=Sensors)
    randomize: Randomize = field(default_factory=Randomize)
    only_positive_rewards: bool = False
    mirror: bool = False
    num_envs: tuple[int, int] = (1024, 4096)
    learner: dict[str, Any] = field(default_factory=dict)
    learner_cpu: dict[str, Any] = field(default_factory=dict)
    presets: dict[str, dict[str, Any]] = field(default_factory=dict)
    learner_name: str = "ppo"
    solved: tuple[str, float] | None = None
    deployable: bool = True
    robots: dict[str, Agent] = field(default_factory=dict)
    roles: dict[str, Role] = field(default_factory=dict)
    team: Team = field(default_factory=Team)
    messages: dict[str, Message] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_robots()
        self._check_messages()
        check_length(self.episode_length_s, self.sim.step_dt)
        check_objects(self.objects, self.contacts)
        require("actor" in self.vectors, "observations", sorted(self.vectors), "needs a group 'actor' of terms")
        for section, kind in _SECTIONS.items():
            check_terms(section, kind, getattr(self, section))
        for name in self.observations:
            require(str(name).isidentifier(), "observations", name, "a group's name must be letters, digits and _")
        for name, group in self.vectors.items():
            require(bool(group.terms), f"observations.{name}", group.terms, "needs at least one term")
            check_terms(f"observations.{name}", "observation", group.terms)
        sections = self.sections().items()
        check_sensors(self.sensors, {f"{path}.{name}": one for path, terms in sections for name, one in terms.items()})
        names = [*(term.measured for term in self._sensed.values() if getattr(term, "measured", "")), *self.images]
        twice = next((name for name in names if names.count(name) > 1), "")
        require(not twice, "observations.actor: measured", twice, TWICE)
        count = len(self.terminations)
        require(count <= MAX_TERMINATIONS, "terminations", count, f"terms, must be {MAX_TERMINATIONS} or fewer")
        self._check_solved()
        for name, value in self.motions.items():
            require(str(name).isidentifier(), "motions", name, "a motion's name must be letters, digits and _")
            require(isinstance(value, str) and bool(value), f"motions.{name}", value, "must be a name or a file")
        kinds = [(self._components(term), term.info.frame, term.info.draws) for term in self.commands.values()]
        require(all(kind == kinds[0] for kind in kinds), "commands", list(self.commands), ONE_COMMAND)
        self._check_around()
        apply_measured(self)

    def _check_robots(self) -> None:
        if not self.robots:
            require(isinstance(self.robot, Robot), "robot", self.robot, "must be a Robot, or give several as robots=")
            require(not self.roles, "roles", list(self.roles), "a task of one robot has none; omit them")
            require(self.team == Team(), "team", self.team, "a task of one robot has none; omit it")
            return
        check_team(self.robots, self.roles, self.team)
        self.robot = next(iter(self.robots.values())).robot
        require(self.terrain is None, "terrain", "...", "a team needs the endless plane; leave the terrain out")
        require(not self.images, "observations", list(self.images), "images are for a task of one robot")
        require(not self.motions, "motions", list(self.motions), "are for a task of one robot; omit them")
        for role, crew in ((crew.role, self.of_role(crew)) for crew in self.crews):
            path = f"roles.{role}." if role in self.roles else ""
            for name, contact in crew.contacts.items() if len(self.robots) == 1 else ():
                ends = (contact.first, contact.second)
                right = "the task has 1 robot, and no others that it could touch"
                require(OTHERS not in ends, f"{path}contacts.{name}", ends, right)
            for name, event in crew.events.items():
                of_object = [param for param in event.params if reference_kind(param) in ("object", "object_joint")]
                right = f"its {', '.join(of_object)} belongs to all robots of the world; give it team=True"
                require(event.team or not of_object, f"{path}events.{name}.team", event.team, right)

    def _check_messages(self) -> None:
        for name, message in self.messages.items():
            require(
                isinstance(message, Message), f"messages.{name}", message, "must be a Message(terms=..., width=...)"
            )
            require(str(name).isidentifier(), "messages", name, "a message's name must be letters, digits and _")
            check_terms(f"messages.{name}.terms", "observation", message.terms)
            require(bool(message.terms), f"messages.{name}.terms", message.terms, "needs at least one term")
            for part, term in message.terms.items():
                others = (option for option in OPTIONS if option != "measured")
                given = term.changed(("noise", "scale", "clip", "history", *others))
                line = "is sent as it is; give this to the term that receives it"
                require(not given, f"messages.{name}.terms.{part}", ", ".join(given), line)
                require(
                    not term.message_param,
                    f"messages.{name}.terms.{part}",
                    term.info.name,
                    "receives a message itself; take another term",
                )
        for group, terms in ((name, group.terms) for name, group in self.vectors.items()):
            for name, term in terms.items():
                if getattr(term, "message_param", ""):
                    given = term.changed(ON_THE_WAY)
                    line = f"is set by the message; set messages.{term.params[term.message_param]}"
                    require(not given, f"observations.{group}.{name}", ", ".join(given), line)

    def delivered(self, term: Any) -> Any:
        """Return a term of an observation group, with delay and loss if it receives a message, else as it is."""
        param = getattr(term, "message_param", "")
        if not param or not self.messages:
            return term
        named = term.params[param]
        name = named if isinstance(named, str) else list(self.messages)[int(named)]
        message = self.messages.get(name)
        if message is None:  # its parameter is refused by its name
            return term
        found = copy.copy(term)
        sender = int(term.params.get("sender", 0))
        found.delay_s, found.dropout, found.measured = message.latency_s, message.loss, f"message_{name}_{sender}"
        found.delay_steps = max(1, round(message.max_age_s / self.sim.step_dt))
        return found

    @property
    def _sensed(self) -> dict[str, Any]:
        """The terms of the group "actor", those that receive a message with its delay and loss."""
        terms = getattr(self.observations["actor"], "terms", {})
        return {name: self.delivered(term) for name, term in terms.items()}

    @property
    def received(self) -> dict[str, Observation]:
        """The actor's terms that receive a message, by name."""
        return {name: term for name, term in self._sensed.items() if getattr(term, "message_param", "")}

    def late_messages(self) -> dict[str, float]:
        """Return the parameters with which every message that the actor receives is as late as it may be [s].

        There are none in a group without noise, which receives everything at once.
        """
        if not getattr(self.observations["actor"], "noise", False):
            return {}
        return {
            f"observations.actor.{name}.delay_s.{end}": term.delay_steps * self.sim.step_dt
            for name, term in self.received.items()
            for end in (0, 1)
        }

    @property
    def crews(self) -> list[Crew]:
        """The robots by role; empty for a task of one robot."""
        return make_crews(self.robots, self.team, self.messages)

    def of_role(self, crew: Crew) -> "Task":
        """Return the task as one robot of a role has it: with its model and the role's own sections."""
        own = self.roles[crew.role].sections() if crew.role in self.roles else {}
        robot = list(self.robots.values())[crew.agents[0]].robot
        solved = self.solved if "metrics" not in own else None
        return replace(self, robot=robot, robots={}, roles={}, team=Team(), solved=solved, **own)

    def _check_around(self) -> None:
        if self.actions.around == "command":
            driven = (joint.name for joint in self.robot.joints if not joint.passive)
            lacking = next((name for name in driven if name not in self.command_components), "")
            right = f"the command lacks a component {lacking!r}; use default"
            require(not lacking, "actions.around", self.actions.around, right)
            speeds = next((joint.name for joint in self.robot.joints if joint.by_speed), "")
            right = f"joint {speeds!r} cannot go to a position (kp=0); use default"
            require(not speeds, "actions.around", self.actions.around, right)

    def _check_solved(self) -> None:
        if self.solved is None:
            return
        name = str(self.solved[0]).removeprefix("tracking/")
        known = ", ".join(f"tracking/{name}" for name in self.metrics) or "None, since it has none"
        is_known = name in self.metrics and self.solved[0] == f"tracking/{name}"
        require(is_known, "solved", self.solved[0], f"is not a metric that the task declares; must be one of {known}")
        right = f"must declare better values: @metric(better='smaller') or 'larger' at {self.metrics[name].info.name}"
        require(bool(self.metrics[name].info.better), "solved", self.solved[0], right)

    def sections(self) -> dict[str, dict[str, Any]]:
        """Return the named terms by the path of their section, such as "rewards" or "observations.actor"."""
        found = {name: getattr(self, name) for name in _SECTIONS}
        found |= {f"messages.{name}.terms": message.terms for name, message in self.messages.items()}
        return found | {f"observations.{name}": group.terms for name, group in self.vectors.items()}

    def named(self, kind: str) -> dict[str, str]:
        """Return the names that parameters of a kind give, each with the path of the first such parameter."""
        found: dict[str, str] = {}
        for section, terms in self.sections().items():
            for name, term in terms.items():
                for param, value in getattr(term, "params", {}).items():
                    if isinstance(value, str) and reference_kind(param) == kind:
                        found.setdefault(value, f"{section}.{name}.{param}")
        return found

    @property
    def measured(self) -> dict[str, Observation]:
        """The actor's terms with a declared measurement, by the measurement's name."""
        return {term.measured: term for term in self._sensed.values() if getattr(term, "measured", "")}

    @property
    def not_measured(self) -> list[str]:
        """Names of terms of actor and messages that nothing on a robot measures; none of a task that is not for one."""
        if not self.deployable:
            return []
        sent = {f"{name}.{part}": term for name, one in self.messages.items() for part, term in one.terms.items()}
        actor = self._sensed | sent
        return [name for name, term in actor.items() if not getattr(term, "measured", "") and not _signal_of(term)]

    def _components(self, term: Command) -> dict[str, str]:
        components = term.info.components
        return components if isinstance(components, dict) else components(self.robot)

    @property
    def command_components(self) -> dict[str, str]:
        """The command's components with their units; empty without a command."""
        return next((self._components(term) for term in self.commands.values()), {})

    @property
    def command_width(self) -> int:
        """Number of components of the command; 3, all zero without a command."""
        return len(self.command_components) or 3

    @property
    def vectors(self) -> dict[str, ObservationGroup]:
        """The observation groups made of terms: (num_envs, width) each."""
        return {name: group for name, group in self.observations.items() if not isinstance(group, ImageGroup)}

    @property
    def images(self) -> dict[str, ImageGroup]:
        """The observation groups of cameras: (num_envs, channels, height, width) each."""
        return {name: group for name, group in self.observations.items() if isinstance(group, ImageGroup)}

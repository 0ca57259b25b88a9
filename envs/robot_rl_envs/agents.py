"""Several robots in one world: names, roles, messages, and how they join and drop out. Plain data, read by a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from robot_rl_assets.robot import Robot

from robot_rl_envs.terms.checks import are_numbers, is_number, is_whole, require

MAX_AGENTS = 16
"""Robots of a world at most: each has its own bit among MuJoCo's contact bits."""

CREDITS = ("robot", "role", "team")
"""To which robots a reward is credited: to the robot itself, or as a mean to all of its role or of the whole team."""

MAX_MESSAGE, MAX_AGE_S = 64, 2.0
"""Values of a message at most, and how old one may be [s]."""

SCOPES = ("team", "robot")
"""The episode of which a termination ends: of the whole team, or of the robot, which then drops out of it."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Agent:
    """A robot of a team.

    Attributes:
        robot: the facts of its model.
        pos: its start, from the world's origin [m]; of a robot that is bolted down, the place of its mount.
        yaw: its heading there [rad].
        role: robots of one role have the same model and terms, and share a policy; "": the name of the model.
    """

    robot: Robot = field(metadata={"setting": False})
    pos: tuple[float, float, float] = (0.0, 0.0, 0.0)
    yaw: float = 0.0
    role: str = ""

    def __post_init__(self) -> None:
        require(isinstance(self.robot, Robot), "robot", self.robot, "must be a Robot")
        require(are_numbers(self.pos, 3), "pos", self.pos, "must be 3 numbers [m]")
        require(is_number(self.yaw), "yaw", self.yaw, "must be a finite number [rad]")
        right = "a role's name must be letters, digits and _"
        require(not self.role or str(self.role).isidentifier(), "role", self.role, right)

    @property
    def group(self) -> str:
        """The name of its role."""
        return self.role or self.robot.name


@dataclass(kw_only=True, slots=True)
class Role:
    """What the robots of one role have differently from the task: a whole section each; None is the task's own."""

    actions: Any = None
    observations: Any = None
    rewards: dict[str, Any] | None = None
    terminations: dict[str, Any] | None = None
    commands: dict[str, Any] | None = None
    events: dict[str, Any] | None = None
    curricula: dict[str, Any] | None = None
    metrics: dict[str, Any] | None = None
    contacts: dict[str, Any] | None = None
    sensors: Any = None

    def sections(self) -> dict[str, Any]:
        """Return the sections that it has, by name."""
        return {name: value for name in self.__dataclass_fields__ if (value := getattr(self, name)) is not None}


@dataclass(kw_only=True, slots=True)
class Team:
    """How the robots of a world come and go.

    Attributes:
        size: (least, most) robots that begin an episode, drawn at its start; (0, 0): all of them, always. The first
            ones of the task begin; the others are parked.
        joins: share of the parked robots that join later in the episode.
        join_s: (lo, hi) when they do, drawn for each [s].
        least: an episode ends for all when fewer robots are left.
        parking: where parked robots wait, from the world's origin [m]; each ``spacing`` further along y.
        spacing: their distance [m].
    """

    size: tuple[int, int] = (0, 0)
    joins: float = 0.0
    join_s: tuple[float, float] = (2.0, 8.0)
    least: int = 1
    parking: tuple[float, float] = (-50.0, 0.0)
    spacing: float = 2.0

    def __post_init__(self) -> None:
        lo, hi = self.size
        fits = is_whole(lo, 0, MAX_AGENTS) and is_whole(hi, lo, MAX_AGENTS) and (lo > 0) == (hi > 0)
        right = f"must be (least, most) with 1 <= least <= most <= {MAX_AGENTS}, or (0, 0) for all"
        require(fits, "size", self.size, right)
        require(is_number(self.joins) and 0 <= self.joins <= 1, "joins", self.joins, "must be in [0, 1]")
        fits = are_numbers(self.join_s, 2) and 0 < self.join_s[0] <= self.join_s[1]
        require(fits, "join_s", self.join_s, "must be (lo, hi) with 0 < lo <= hi [s]")
        require(is_whole(self.least, 1, MAX_AGENTS), "least", self.least, f"must be an int in [1, {MAX_AGENTS}]")
        require(are_numbers(self.parking, 2), "parking", self.parking, "must be 2 numbers [m]")
        require(is_number(self.spacing) and self.spacing > 0, "spacing", self.spacing, "must be > 0")

    @property
    def varies(self) -> bool:
        """Whether episodes begin with different numbers of robots."""
        return self.size != (0, 0)


@dataclass(kw_only=True, slots=True)
class Message:
    """What each robot sends the others in every control step; a term with a parameter ``message`` receives it.

    Attributes:
        terms: observations of the sender, by name, of signals that a robot measures; their values are sent as they
            are, since noise, scale and clip belong to the term that receives them.
        width: number of values.
        latency_s: (lo, hi) how old a message is when it arrives, drawn by each receiver at every reset [s].
        loss: the probability that a message does not arrive; the last one that did is repeated.
        max_age_s: how old a message may be [s]: robots discard older ones, and an evaluation of late messages gives
            all of them that age.
    """

    terms: dict[str, Any]
    width: int
    latency_s: tuple[float, float] = (0.0, 0.0)
    loss: float = 0.0
    max_age_s: float = 0.2

    def __post_init__(self) -> None:
        require(is_whole(self.width, 1, MAX_MESSAGE), "width", self.width, f"must be an int in [1, {MAX_MESSAGE}]")
        pair = self.latency_s
        fits = are_numbers(pair, 2) and 0 <= pair[0] <= pair[1]
        require(fits, "latency_s", pair, "must be (lo, hi) with 0 <= lo <= hi [s]")
        self.latency_s = (float(pair[0]), float(pair[1]))
        require(is_number(self.loss) and 0 <= self.loss < 1, "loss", self.loss, "must be in [0, 1)")
        fits = is_number(self.max_age_s) and self.latency_s[1] <= self.max_age_s <= MAX_AGE_S
        right = f"must be from latency_s's {self.latency_s[1]:g} to {MAX_AGE_S:g} [s]"
        require(fits and self.max_age_s > 0, "max_age_s", self.max_age_s, right)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """The robots of one role among all of a team.

    Attributes:
        role: its name.
        agents: indices of its robots in the team.
        names: all robots of the team.
        index: its place among the crews.
        pos, yaw: start of each of its robots [m, rad].
        team: how robots come and go.
        messages: width of each message that they send, by name.
    """

    role: str
    agents: tuple[int, ...]
    names: tuple[str, ...]
    index: int = 0
    pos: tuple[tuple[float, float, float], ...] = ()
    yaw: tuple[float, ...] = ()
    team: Team = field(default_factory=Team)
    messages: dict[str, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of its robots."""
        return len(self.agents)


def make_crews(robots: Mapping[str, Agent], team: Team, messages: Mapping[str, Message]) -> list[Crew]:
    """Return the crews of a team, in the order of their first robots."""
    widths = {name: message.width for name, message in messages.items()}
    roles = dict.fromkeys(agent.group for agent in robots.values())
    crews = []
    for index, role in enumerate(roles):
        members = [k for k, agent in enumerate(robots.values()) if agent.group == role]
        agents = [list(robots.values())[k] for k in members]
        crews.append(
            Crew(
                role=role,
                agents=tuple(members),
                names=tuple(robots),
                index=index,
                pos=tuple(agent.pos for agent in agents),
                yaw=tuple(agent.yaw for agent in agents),
                team=team,
                messages=widths,
            )
        )
    return crews


def check_team(robots: Mapping[str, Agent], roles: Mapping[str, Role], team: Team) -> None:
    """Check names, models and numbers of a team.

    Raises:
        ValueError: one line that names the field, its value and the right ones.
    """
    require(len(robots) <= MAX_AGENTS, "robots", len(robots), f"robots, must be {MAX_AGENTS} or fewer")
    models: dict[str, Robot] = {}
    for name, agent in robots.items():
        is_name = str(name).isidentifier() and name not in ("robot", "world", "floor", "team")
        right = "a robot's name must be letters, digits and _, and not robot, world, floor, team"
        require(is_name, "robots", name, right)
        require(isinstance(agent, Agent), f"robots.{name}", agent, "must be an Agent(robot=...)")
        first = models.setdefault(agent.group, agent.robot)
        line = f"its role {agent.group!r} has robots of model {first.name!r}; robots of one role are alike"
        require(first == agent.robot, f"robots.{name}.robot", agent.robot.name, line)
        right = "a whole scene, of which a world can contain only one"
        require(not agent.robot.complete, f"robots.{name}.robot", agent.robot.name, right)
    for role in roles:
        require(role in models, "roles", role, f"no robot has that role; there are {', '.join(models)}")
    count = len(robots)
    right = f"the task has {count} robots, {', '.join(robots)}"
    require(team.size[1] <= count, "team.size", team.size, right)
    require(team.least <= count, "team.least", team.least, right)
    fewest = team.size[0] or count
    right = f"an episode may begin with {fewest} of them (team.size={team.size}), and would end at once"
    require(team.least <= fewest, "team.least", team.least, right)

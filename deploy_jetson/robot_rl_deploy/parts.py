"""The parts of a policy contract, each checked by itself; :mod:`robot_rl_deploy.contract` checks how they fit.

This module needs the standard library only.
"""

import math
from dataclasses import dataclass

from robot_rl_deploy.strict import at_least, refuse
from robot_rl_deploy.terms import MAX_SIZE

SCHEMA_VERSION = 1
LAYOUT = {"order": "term_major", "history": "oldest_first", "fill": "first_value"}
ACTION_KINDS = ("position", "velocity", "effort")
MAX_ITERATION = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class JointSpec:
    """One joint: gains, limits and default. Units of its coordinate: rad, N m and rad/s, or m, N and m/s.

    Attributes:
        name: Name on the robot.
        default_pos: Position in the default pose.
        kp: Proportional gain.
        kd: Derivative gain.
        effort_limit: Largest effort; 0 for a joint that nothing drives.
        velocity_limit: Largest speed; None without one.
        lower: Lower position limit; None without one.
        upper: Upper position limit; None without one.
    """

    name: str
    default_pos: float
    kp: float
    kd: float
    effort_limit: float
    velocity_limit: float | None
    lower: float | None
    upper: float | None

    def __post_init__(self) -> None:
        """Check ranges."""
        where = f"joint '{self.name}':"
        for field in ("kp", "kd", "effort_limit"):
            at_least(f"{where} {field}", getattr(self, field), 0)
        at_least(f"{where} velocity_limit", self.velocity_limit, 0, strictly=True)
        if self.lower is not None and self.upper is not None and not self.lower < self.upper:
            refuse(f"{where} lower", self.lower, f"it must be less than upper ({self.upper})")
        self.check_position(f"{where} default_pos", self.default_pos)

    def check_position(self, where: str, position: float) -> None:
        """Refuse a position outside the joint's limits.

        Args:
            where: Field that the message names.
            position: Position [rad or m].

        Raises:
            ContractError: It is outside.
        """
        low, high = (-math.inf if self.lower is None else self.lower), (math.inf if self.upper is None else self.upper)
        if not low <= position <= high:
            refuse(where, position, f"the limits of '{self.name}' are [{low}, {high}]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSpec:
    """One policy output: `target = offset + scale * action` for a joint, with `|action| <= clip`.

    With a `command` its value is added: the action is then around the command.

    Attributes:
        joint: Name of the joint.
        kind: "position": the target of the joint's PD controller [rad or m]; "velocity": that of a joint with a kd
            alone, as of a wheel [rad/s or m/s]; "effort": its effort [N m or N].
        scale: Target for an action of 1, less the offset.
        offset: Target for an action of 0.
        clip: Largest magnitude of the action; None without a bound.
        command: Name of the component of the command that is added to the target; "" for none.
        max_error: Largest distance of a position target from the joint's measured position [rad or m], see
            `limit_targets`; None without a bound.
    """

    joint: str
    kind: str
    scale: float
    offset: float
    clip: float | None
    command: str = ""
    max_error: float | None = None

    def __post_init__(self) -> None:
        """Check kind, scale, clip and largest error."""
        if self.kind not in ACTION_KINDS:
            refuse(f"action of '{self.joint}': kind", self.kind, f"it must be one of {', '.join(ACTION_KINDS)}")
        if self.scale == 0:
            refuse(f"action of '{self.joint}': scale", self.scale, "the policy would move nothing; it must not be 0")
        at_least(f"action of '{self.joint}': clip", self.clip, 0, strictly=True)
        at_least(f"action of '{self.joint}': max_error", self.max_error, 0, strictly=True)
        if self.max_error is not None and self.kind != "position":
            refuse(f"action of '{self.joint}': max_error", self.max_error, "only a position target has one")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSpec:
    """Layout of the terms in the observation vector; the texts are those of `LAYOUT`.

    Attributes:
        order: "term_major": a term with all its history, then the next term.
        history: "oldest_first" within a term.
        fill: "first_value": after a reset every frame is the first one.
        observation_size: Sum over terms of size * history.
        action_size: Number of policy outputs.
        state_size: Width of the state that the policy carries from step to step; 0 without a memory.
    """

    order: str
    history: str
    fill: str
    observation_size: int
    action_size: int
    state_size: int = 0

    def __post_init__(self) -> None:
        """Check the texts."""
        if not 0 <= self.state_size <= MAX_SIZE:
            refuse("layout.state_size", self.state_size, f"it must be in [0, {MAX_SIZE}]")
        for field, right in LAYOUT.items():
            if getattr(self, field) != right:
                refuse(f"layout.{field}", getattr(self, field), f"version {SCHEMA_VERSION} knows only '{right}'")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec:
    """One component of the command that the policy follows.

    Attributes:
        name: What is commanded.
        lower: Lowest value in training.
        upper: Highest value in training.
    """

    name: str
    lower: float
    upper: float

    def __post_init__(self) -> None:
        """Check the range."""
        if not self.lower <= self.upper:
            refuse(f"command '{self.name}': lower", self.lower, f"it must not be more than upper ({self.upper})")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSpec:
    """Origin of the policy.

    Attributes:
        run_id: Training run.
        task: Task trained on.
        git_commit: Commit of the code, "unknown" outside a repository.
        iteration: Iteration of the checkpoint.
    """

    run_id: str
    task: str
    git_commit: str
    iteration: int

    def __post_init__(self) -> None:
        """Check that it names a run and a task."""
        for field in ("run_id", "task", "git_commit"):
            if not getattr(self, field):
                refuse(f"training.{field}", "", "it must not be empty")
        if not 0 <= self.iteration <= MAX_ITERATION:
            refuse("training.iteration", self.iteration, "it must be in [0, 2^53]")

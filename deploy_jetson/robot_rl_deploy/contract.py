"""The policy contract: everything a runtime needs to compute a policy's observations and to apply its actions.

A contract is JSON with a version. It is read strictly: an unknown or missing field, a wrong type, a number that is not
finite or a size that does not add up is a `ContractError` of one line. Floats are written in the shortest form that
reads back to the same bits, never rounded. This module needs only the standard library.

The value of an observation term is `clip(transform(signal)) * scale` in float32, `size` wide. Terms follow one
another; within a term its history runs from the oldest to the newest frame, and after a reset every frame has the
first value. The control target of a policy output is `offset + scale * action`, and `action` is clipped; an output with
a `command` has that component of the command added, as the policy observes it.

A policy with a memory also has a state: the network takes it as `state` and returns the next one as `state_out`. It is
zero at the start and after a reset. Only the contract of such a policy has `layout.state_size`.

The contract of a policy that was trained in int8, fp8 or bf16 has a `precision`; the network of one without it computes
in fp32.
"""

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from robot_rl_deploy.messages import MessageSpec, check_messages
from robot_rl_deploy.parts import SCHEMA_VERSION, ActionSpec, CommandSpec, JointSpec, LayoutSpec, TrainingSpec
from robot_rl_deploy.plausible import check_parts, check_periods
from robot_rl_deploy.precision import PLAIN, PrecisionSpec
from robot_rl_deploy.strict import ContractError, at_least, decode, refuse, unique
from robot_rl_deploy.terms import (
    DECLARED_SIGNALS,
    FIXED_SIZES,
    MAX_COMMAND,
    MAX_JOINTS,
    MAX_MEASURED,
    MAX_SIGNAL,
    MAX_SIZE,
    MEASURED,
    ObservationSpec,
    kind_of,
    term_size,
)

MOST = {"joints": MAX_JOINTS, "actions": MAX_JOINTS, "observations": MAX_SIZE, "command": MAX_COMMAND}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """A whole contract; see the module for the meaning of its parts.

    Attributes:
        schema_version: `SCHEMA_VERSION`.
        robot: Name of the robot.
        joints: Joints, in the order of every joint signal.
        actions: Policy outputs in their order.
        observations: Terms in their order.
        layout: Layout of the observation vector.
        control_period_s: Time from one action to the next [s].
        physics_timestep_s: Step of the simulation trained in [s].
        command: Components of the command in their order; empty without one.
        fallback_pose: Position of every joint to stand in when the policy is refused [rad or m].
        training: Origin of the policy.
        team: Names of the robots of a team that send each other messages, in their order; empty for one robot.
        messages: What they send.
        precision: Layers in int8, fp8 or bf16; None for a network in fp32.
    """

    schema_version: int
    robot: str
    joints: tuple[JointSpec, ...]
    actions: tuple[ActionSpec, ...]
    observations: tuple[ObservationSpec, ...]
    layout: LayoutSpec
    control_period_s: float
    physics_timestep_s: float
    command: tuple[CommandSpec, ...]
    fallback_pose: dict[str, float]
    training: TrainingSpec
    team: tuple[str, ...] = ()
    messages: tuple[MessageSpec, ...] = ()
    precision: PrecisionSpec | None = None

    def __post_init__(self) -> None:
        """Check that the parts fit together.

        Raises:
            ContractError: They do not.
        """
        _check_version(self.schema_version)
        unique("robot", [self.robot])
        for field, names in (
            ("joints", self.joint_names),
            ("actions", [a.joint for a in self.actions]),
            ("observations", [o.name for o in self.observations]),
            ("command", [c.name for c in self.command]),
        ):
            if not names and field != "command":
                refuse(field, [], "at least one is needed")
            unique(field, names)
            if len(names) > (most := MOST[field]):
                refuse(field, f"a list of {len(names)}", f"{most} are the most")
        self._check_actions()
        self._check_observations()
        self._check_messages()
        self.commanded()
        self._check_times()
        known = {joint.name: joint for joint in self.joints}
        if self.fallback_pose.keys() != known.keys():
            odd = sorted(self.fallback_pose.keys() ^ known.keys())
            refuse("fallback_pose", sorted(self.fallback_pose), f"it must name every joint once; see {odd}")
        for name, position in self.fallback_pose.items():
            known[name].check_position(f"fallback_pose.{name}", position)
        check_periods(self.control_period_s, self.physics_timestep_s)
        check_parts(self.joints, self.actions, self.command)

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Names of the joints in the order of every joint signal."""
        return tuple(joint.name for joint in self.joints)

    @property
    def mode(self) -> str:
        """Precision of the network: "fp32", "bf16", "fp8" or "int8"."""
        return self.precision.mode if self.precision else PLAIN

    @property
    def received(self) -> dict[str, tuple[MessageSpec, int]]:
        """The signals that are messages of other robots: the message, and the sender counted from this robot."""
        return {row.signal: (message, row.sender) for message in self.messages for row in message.received}

    def signal_sizes(self) -> dict[str, int]:
        """Return the widths of the signals, without the clock, which is computed from the number of steps."""
        joints, action = len(self.joints), len(self.actions)
        sizes = {"joint_pos": joints, "joint_vel": joints, "command": len(self.command), "last_action": action}
        terms = [term for term in self.observations if kind_of(term.signal) in DECLARED_SIGNALS]
        declared = {term.signal: term.size for term in reversed(terms)}
        return FIXED_SIZES | declared | sizes

    def commanded(self) -> list[int]:
        """Return for each action the element of the observation that is added to its target; empty if there is none.

        It is the newest frame of the one term that is the command itself.
        """
        wanted = [action.command for action in self.actions]
        if not any(wanted):
            return []
        start, names = 0, [component.name for component in self.command]
        for term in self.observations:
            if term.signal == "command" and term.transform == "identity" and term.scale == 1:
                first = start + (term.history - 1) * term.size
                return [first + names.index(name) for name in wanted]
            start += term.size * term.history
        refuse("actions: command", wanted[0], "no observation is the command itself, with scale 1")
        return []

    def _check_actions(self) -> None:
        known = {joint.name: joint for joint in self.joints}
        for action in self.actions:
            where = f"action of '{action.joint}':"
            joint = known.get(action.joint)
            if joint is None:
                refuse(f"{where} joint", action.joint, f"it must be one of {', '.join(known)}")
            if joint.effort_limit == 0:
                refuse(f"{where} joint", action.joint, "its effort_limit is 0, so nothing drives it")
            if action.kind == "position" and joint.kp == 0:
                refuse(f"{where} kind", action.kind, "a position target needs a kp of more than 0")
            if action.kind == "velocity" and not (joint.kp == 0 and joint.kd > 0):
                refuse(f"{where} kind", action.kind, "a velocity target needs a kp of 0 and a kd of more than 0")
            if action.command and action.command not in {component.name for component in self.command}:
                refuse(f"{where} command", action.command, "the command has no component of that name")
            if bool(action.command) != bool(self.actions[0].command):
                refuse(f"{where} command", action.command, "all actions are around the command, or none is")
        if self.layout.action_size != len(self.actions):
            refuse("layout.action_size", self.layout.action_size, f"there are {len(self.actions)} actions")

    def _check_observations(self) -> None:
        sizes, joints = self.signal_sizes(), set(self.joint_names)
        for term in self.observations:
            where = f"observation '{term.name}':"
            gated = term.params.get("gate") == "command"
            if (term.signal == "command" or gated) and not self.command:
                refuse(where.rstrip(":"), term.signal, "it reads the command, but the contract has none")
            for name in set(term.params.get("joints", ())) - joints:
                refuse(f"{where} params.joints", name, f"it must be among {', '.join(self.joint_names)}")
            if term.size != (size := term_size(term, sizes)):
                refuse(f"{where} size", term.size, f"{term.transform} of {term.signal} is {size} wide")
            if term.size > (most := MAX_SIGNAL.get(term.signal, MAX_SIZE)):
                refuse(f"{where} size", term.size, f"{most} are the most")
        if (measured := sum(sizes[name] for name in sizes if kind_of(name) == MEASURED)) > MAX_MEASURED:
            refuse("observations: number of measured values", measured, f"{MAX_MEASURED} are the most")
        total = sum(term.size * term.history for term in self.observations)
        if self.layout.observation_size != total:
            refuse("layout.observation_size", self.layout.observation_size, f"the terms add up to {total}")
        if total > MAX_SIZE:
            refuse("layout.observation_size", total, f"{MAX_SIZE} are the most")

    def _check_messages(self) -> None:
        sizes = self.signal_sizes()
        declared = {name: size for name, size in sizes.items() if kind_of(name) in DECLARED_SIGNALS}
        check_messages(self.team, self.messages, declared)
        for message in self.messages:
            for term in message.terms:
                where = f"message '{message.name}': term '{term.name}':"
                for name in set(term.params.get("joints", ())) - set(self.joint_names):
                    refuse(f"{where} params.joints", name, f"it must be among {', '.join(self.joint_names)}")
                if term.size != (size := term_size(term, sizes)):
                    refuse(f"{where} size", term.size, f"{term.transform} of {term.signal} is {size} wide")

    def _check_times(self) -> None:
        for field in ("control_period_s", "physics_timestep_s"):
            at_least(field, getattr(self, field), 0, strictly=True)
        ratio = self.control_period_s / self.physics_timestep_s
        if not 1 - 1e-6 <= ratio < math.inf or abs(ratio - round(ratio)) > 1e-6:
            step = self.physics_timestep_s
            refuse("control_period_s", self.control_period_s, f"it must be a multiple of physics_timestep_s ({step})")


def _check_version(version: object) -> None:
    if version != SCHEMA_VERSION or isinstance(version, bool):
        refuse("schema_version", version, f"this program reads version {SCHEMA_VERSION}")


def from_dict(data: Any) -> Contract:
    """Read a contract from parsed JSON.

    Args:
        data: Result of `json.loads`.

    Returns:
        The contract, checked.

    Raises:
        ContractError: It is invalid.
    """
    if isinstance(data, dict) and "schema_version" in data:
        _check_version(data["schema_version"])
    return decode(Contract, data, "contract")


def to_dict(contract: Contract) -> dict[str, Any]:
    """Return a contract as plain lists, dicts, texts and numbers; `from_dict` reads it back equal."""
    data = json.loads(json.dumps(dataclasses.asdict(contract), allow_nan=False))
    if not contract.layout.state_size:
        del data["layout"]["state_size"]
    for name in ("team", "messages"):
        if not data[name]:
            del data[name]
    if contract.precision is None:
        del data["precision"]
    else:
        for layer in data["precision"]["layers"]:
            if layer["input_scale"] is None:
                del layer["input_scale"]
    for action in data["actions"]:
        for name in ("command", "max_error"):
            if not action[name]:
                del action[name]
    return data


def dumps(contract: Contract) -> str:
    """Write a contract as JSON text; every float in the shortest form that reads back to the same bits."""
    return json.dumps(to_dict(contract), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def loads(text: str) -> Contract:
    """Read a contract from JSON text.

    Raises:
        ContractError: It is not JSON, or not a contract.
    """

    def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        data = dict(pairs)
        if len(data) != len(pairs):
            unique("a key of contract.json", [key for key, _ in pairs])
        return data

    try:
        data = json.loads(text, object_pairs_hook=unique_keys)
    except ContractError:
        raise
    except (ValueError, RecursionError) as error:  # the first also of numbers with thousands of digits
        raise ContractError(f"contract.json is not JSON ({error}); export the bundle again") from None
    return from_dict(data)


def resolve_joints(contract: Contract, available_names: Sequence[str]) -> tuple[int, ...]:
    """Find the contract's joints in the order in which a robot reports them.

    Args:
        contract: The contract.
        available_names: Names of the robot's joints in its order.

    Returns:
        For each joint of the contract its index in `available_names`.

    Raises:
        ContractError: A joint is missing, extra or named twice.
    """
    available, known = {name: index for index, name in enumerate(available_names)}, set(contract.joint_names)
    unique("a joint of the robot", list(available_names))
    missing = [name for name in contract.joint_names if name not in available]
    extra = [name for name in available if name not in known]
    if missing or extra:
        parts = [f"{what} {', '.join(names)}" for what, names in (("missing", missing), ("extra", extra)) if names]
        raise ContractError(f"the robot's joints do not fit the contract of '{contract.robot}': {'; '.join(parts)}")
    return tuple(available[name] for name in contract.joint_names)

"""Conversion of an environment's description of its policy to a contract."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from robot_rl_deploy.contract import Contract, from_dict
from robot_rl_deploy.parts import LAYOUT, SCHEMA_VERSION, TrainingSpec
from robot_rl_deploy.strict import ContractError
from robot_rl_deploy.terms import MEASURED, SIGNALS, TRANSFORMS, kind_of

JOINT_FIELDS = ("name", "default_pos", "kp", "kd", "effort_limit", "velocity_limit", "lower", "upper")
DEFAULT_GATE_NORM = 0.1


def make_contract(description: Mapping[str, Any], training: TrainingSpec) -> Contract:
    """Write the contract of a policy.

    Args:
        description: Result of the environment's `describe_policy()`: "robot", "joints", "actions", "observations",
            "control_period_s", "physics_timestep_s" and, if there is one, "command" with its "ranges"; of robots that
            send each other messages "team" and "messages".
        training: Origin of the policy.

    Returns:
        The contract, checked.

    Raises:
        ContractError: Something is missing or wrong, or the policy reads values that no robot can measure.
    """
    for field in ("robot", "joints", "actions", "observations", "control_period_s", "physics_timestep_s"):
        if field not in description:
            raise ContractError(f"description: {field} is missing; the environment's describe_policy() must give it")
    command = _command(description.get("command"))
    joints = [
        {field: _finite_or_none(field, joint.get(field)) for field in JOINT_FIELDS} for joint in description["joints"]
    ]
    by_name = {joint["name"]: joint for joint in joints}
    terms = [_observation(term, list(by_name), bool(command)) for term in description["observations"]]
    common = {"kind": description.get("action_kind"), "clip": description.get("action_clip")}
    fallback = description.get("fallback_pose") or {joint["name"]: joint["default_pos"] for joint in joints}
    data = {
        "schema_version": SCHEMA_VERSION,
        "robot": description["robot"],
        "joints": joints,
        "actions": [_action(common | dict(action), by_name) for action in description["actions"]],
        "observations": terms,
        "layout": LAYOUT
        | {
            "observation_size": sum(term["size"] * term["history"] for term in terms),
            "action_size": len(description["actions"]),
        },
        "control_period_s": description["control_period_s"],
        "physics_timestep_s": description["physics_timestep_s"],
        "command": command,
        "fallback_pose": dict(fallback),
        "training": {name: getattr(training, name) for name in ("run_id", "task", "git_commit", "iteration")},
        "team": list(description.get("team", ())),
        "messages": [_message(message, list(by_name)) for message in description.get("messages", ())],
    }
    return from_dict(data)


def _message(message: Mapping[str, Any], joint_names: Sequence[str]) -> dict[str, Any]:
    sent = [_observation(term, joint_names, commanded=False) for term in message["terms"]]
    plain = {"scale": 1.0, "clip": None, "history": 1}
    return dict(message) | {"terms": [term | plain for term in sent]}


def _finite_or_none(field: str, value: Any) -> Any:
    """Replace an infinite limit by None; the contract checks everything else."""
    limits = ("lower", "upper", "velocity_limit")
    return None if field in limits and isinstance(value, float) and math.isinf(value) else value


def _action(action: Mapping[str, Any], joints: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    joint = joints.get(action["joint"], {})
    kind = action.get("kind") or ("position" if joint.get("kp") else "effort")
    fields = {name: action[name] for name in ("joint", "scale", "offset", "command", "max_error") if name in action}
    return fields | {"kind": kind, "clip": action.get("clip")}


def _observation(term: Mapping[str, Any], joint_names: Sequence[str], commanded: bool) -> dict[str, Any]:
    name, signal, transform = term["name"], term.get("signal"), term.get("transform", "identity")
    kind = kind_of(signal) if isinstance(signal, str) else ""
    if not kind:
        source = f"signal {signal!r}" if signal else "no signal of the robot"
        own = ", ".join(name for name in SIGNALS if name != MEASURED)
        raise ContractError(
            f"actor observation '{name}' reads {source}, which no robot can measure; give it only to the critic, "
            f"declare its sensor (measured=<name>), or build it from {own}"
        )
    params = dict(term.get("params") or {})
    if "joint" in params and "joints" not in params:
        params["joints"] = [_joint_name(name, params.pop("joint"), joint_names)]
    if transform == "select":  # one element of a joint signal
        transform = "identity"
    if kind not in TRANSFORMS.get(transform, {}):
        fitting = ", ".join(key for key, signals in TRANSFORMS.items() if kind in signals)
        raise ContractError(f"actor observation '{name}': transform is {transform!r}; for {signal} use {fitting}")
    clip = term.get("clip")
    if isinstance(clip, (int, float)) and not isinstance(clip, bool):
        clip = None if math.isinf(clip) else [-float(clip), float(clip)]
    if transform == "sin_cos_phase":
        params.setdefault("gate", "command" if commanded else "none")
        params.setdefault("gate_norm", DEFAULT_GATE_NORM if params["gate"] == "command" else 0.0)
    unit = term.get("unit") or "1"
    if signal == "command" and ", " in unit and unit not in TRANSFORMS[transform][signal]:
        unit = "1"  # components of several units, for which the contract lacks another word
    return {
        "name": name,
        "signal": signal,
        "transform": transform,
        "unit": unit,
        "frame": term.get("frame") or "none",
        "size": term["size"],
        "scale": term.get("scale", 1.0),
        "clip": clip,
        "history": term.get("history", 1),
        "params": params,
    }


def _joint_name(term: str, joint: Any, joint_names: Sequence[str]) -> str:
    """A joint given by its index or its name."""
    if joint in joint_names:
        return joint
    if isinstance(joint, (int, float)) and float(joint).is_integer() and 0 <= joint < len(joint_names):
        return joint_names[int(joint)]
    raise ContractError(f"actor observation '{term}': joint is {joint!r}; it must be an index or a name of a joint")


def _command(command: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Ranges are given as `vx: (low, high)` or as `vx_lo` and `vx_hi`; other parameters of a command are ignored."""
    if not command:
        return []
    ranges: dict[str, Sequence[float]] = {}
    for key, value in command["ranges"].items():
        if isinstance(value, (list, tuple)):
            ranges[key] = value
        elif key.endswith("_lo") and f"{key.removesuffix('_lo')}_hi" in command["ranges"]:
            name = key.removesuffix("_lo")
            ranges[name] = (value, command["ranges"][f"{name}_hi"])
    return [{"name": name, "lower": limits[0], "upper": limits[1]} for name, limits in ranges.items()]

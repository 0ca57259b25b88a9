"""Policies trained with mjlab: conversion of the metadata of its ONNX file to a contract.

mjlab writes names, gains, scales and the default pose into its ONNX file, rounded to three decimals. It does not write
other facts that a robot needs: periods, limits, command ranges. Those come from a file of facts, `RobotFacts`. If a
rounded value is not good enough, `exact` has it in full; it must agree with the metadata.

Assumptions, since the metadata does not contain them: targets are positions around the default pose
(`use_default_offset`), joint velocities are relative to zero, and the IMU's axes are those of the base.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from robot_rl_deploy.contract import Contract, from_dict
from robot_rl_deploy.parts import LAYOUT, SCHEMA_VERSION, CommandSpec
from robot_rl_deploy.session import refuse_foreign_parts
from robot_rl_deploy.strict import ContractError, decode, refuse

ROUNDING = 0.5e-3 * (1 + 1e-6)
"""mjlab writes three decimals."""
LARGEST = 3.4028234663852886e38
"""The largest float32, for a clip with one side."""

# Observation terms of mjlab's velocity tasks: signal, transform, unit, frame. mjlab allows any name of a term;
# `RobotFacts.observations` describes unusual ones.
TERMS = {
    "base_ang_vel": ("imu_gyro", "identity", "rad/s", "base"),
    "projected_gravity": ("imu_quat_wxyz", "projected_gravity", "1", "base"),
    "joint_pos": ("joint_pos", "minus_default", "rad", "joint"),
    "joint_vel": ("joint_vel", "identity", "rad/s", "joint"),
    "actions": ("last_action", "identity", "1", "none"),
    "command": ("command", "identity", "m/s, m/s, rad/s", "base"),
}
UNMEASURED = {
    "base_lin_vel": "no robot measures its velocity; train without it, or give it to the critic only",
    "height_scan": "the metadata does not contain its grid; train without it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JointFacts:
    """Limits of one joint, in the units of its coordinate.

    Attributes:
        effort_limit: Largest effort [N m or N]; 0 for a joint without a motor.
        velocity_limit: Largest speed; None without one.
        lower: Lower position limit; None without one.
        upper: Upper position limit; None without one.
    """

    effort_limit: float
    velocity_limit: float | None = None
    lower: float | None = None
    upper: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RobotFacts:
    """Facts that mjlab's metadata does not contain.

    Attributes:
        robot: Name of the robot.
        control_period_s: Time from one action to the next: mjlab's decimation times its time step [s].
        physics_timestep_s: mjlab's time step [s].
        joints: Joint -> its limits.
        command: Components of the command in their order, with the ranges of the training.
        fallback_pose: Joint -> position to stand in; the default pose if None.
        observations: Name of a term -> which of `TERMS` it is, for names that are not among them.
        action_clip: Bound of the actions, `clip_actions` in mjlab; None without one.
        exact: Field of the metadata -> its values in full, for those that are too inaccurate with three decimals.
    """

    robot: str
    control_period_s: float
    physics_timestep_s: float
    joints: dict[str, JointFacts]
    command: tuple[CommandSpec, ...] = ()
    fallback_pose: dict[str, float] | None = None
    observations: dict[str, str] | None = None
    action_clip: float | None = None
    exact: dict[str, tuple[float, ...]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Metadata that mjlab wrote into the file.

    Attributes:
        run_path: Training run.
        joint_names: Joints in the order of the joint signals.
        joint_stiffness: Proportional gains of the joints with a motor, in their order.
        joint_damping: Derivative gains of the same.
        default_joint_pos: Position of every joint in the default pose.
        action_scale: Scale of every action, or one for all.
        terms: Name, scale, history and clip of every observation term in its order.
        observation_size: Width of the network's input.
        action_size: Width of its output.
    """

    run_path: str
    joint_names: tuple[str, ...]
    joint_stiffness: tuple[float, ...]
    joint_damping: tuple[float, ...]
    default_joint_pos: tuple[float, ...]
    action_scale: tuple[float, ...]
    terms: tuple[tuple[str, float, int, tuple[float, float] | None], ...]
    observation_size: int
    action_size: int


def read_facts(text: str) -> RobotFacts:
    """Read a file of facts.

    Args:
        text: JSON with the fields of `RobotFacts`.

    Raises:
        ContractError: It is not JSON, or a field is missing, unknown or of another type.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ContractError(f"the facts are not JSON ({error})") from None
    return decode(RobotFacts, data, "facts")


def read_metadata(model: bytes) -> Metadata:
    """Read the metadata that mjlab wrote into an ONNX file.

    Args:
        model: The file.

    Raises:
        ContractError: It is not a file of mjlab's, or describes a policy that no contract can describe.
    """
    import onnx

    refuse_foreign_parts(model)
    proto = onnx.load_model_from_string(model)
    texts = {entry.key: entry.value for entry in proto.metadata_props}
    weights = {tensor.name for tensor in proto.graph.initializer}
    inputs = [node for node in proto.graph.input if node.name not in weights]
    if len(inputs) != 1 or len(proto.graph.output) != 1:
        names = ", ".join(node.name for node in (*inputs, *proto.graph.output))
        raise ContractError(f"the network has {names}; one input and one output can be imported, no memory")
    names = _words(texts, "joint_names")
    return Metadata(
        run_path=texts.get("run_path") or "unknown",
        joint_names=names,
        joint_stiffness=_numbers(texts, "joint_stiffness"),
        joint_damping=_numbers(texts, "joint_damping"),
        default_joint_pos=_numbers(texts, "default_joint_pos"),
        action_scale=_numbers(texts, "action_scale"),
        terms=_terms(texts),
        observation_size=_width(inputs[0]),
        action_size=_width(proto.graph.output[0]),
    )


def make_contract(metadata: Metadata, facts: RobotFacts) -> Contract:
    """Write the contract of a policy of mjlab's.

    Args:
        metadata: From its ONNX file.
        facts: Facts that the metadata does not contain.

    Raises:
        ContractError: The two do not fit together, or the policy reads values that no robot can measure.
    """
    names = metadata.joint_names
    if facts.joints.keys() != set(names):
        odd = ", ".join(sorted(facts.joints.keys() ^ set(names)))
        refuse("facts.joints", sorted(facts.joints), f"it must name each joint of the policy once; see {odd}")
    driven = [name for name in names if facts.joints[name].effort_limit != 0]
    values = {key: _exact(metadata, facts, key) for key in ("default_joint_pos", "joint_stiffness", "joint_damping")}
    for key, needed in (("default_joint_pos", names), ("joint_stiffness", driven), ("joint_damping", driven)):
        if len(values[key]) != len(needed):
            refuse(key, len(values[key]), f"values; {len(needed)} joints need one (effort_limit 0 means no motor)")
    default = dict(zip(names, values["default_joint_pos"], strict=True))
    gains = dict(zip(driven, zip(values["joint_stiffness"], values["joint_damping"], strict=True), strict=True))
    scale = _exact(metadata, facts, "action_scale")
    scale = scale * metadata.action_size if len(scale) == 1 else scale
    if not len(scale) == metadata.action_size == len(driven):
        refuse("action_scale", len(scale), f"values; {metadata.action_size} actions drive {len(driven)} joints")
    joints = []
    for name in names:
        limits = facts.joints[name]
        kp, kd = gains.get(name, (0.0, 0.0))
        joints.append({"name": name, "default_pos": default[name], "kp": kp, "kd": kd} | dataclasses.asdict(limits))
    terms = _observations(metadata, facts)
    clip = facts.action_clip
    data = {
        "schema_version": SCHEMA_VERSION,
        "robot": facts.robot,
        "joints": joints,
        "actions": [
            {"joint": name, "kind": "position", "scale": factor, "offset": default[name], "clip": clip}
            for name, factor in zip(driven, scale, strict=True)
        ],
        "observations": terms,
        "layout": LAYOUT | {"observation_size": metadata.observation_size, "action_size": metadata.action_size},
        "control_period_s": facts.control_period_s,
        "physics_timestep_s": facts.physics_timestep_s,
        "command": [dataclasses.asdict(component) for component in facts.command],
        "fallback_pose": facts.fallback_pose or default,
        "training": {"run_id": metadata.run_path, "task": "mjlab", "git_commit": "unknown", "iteration": 0},
    }
    return from_dict(data)


def _observations(metadata: Metadata, facts: RobotFacts) -> list[dict[str, Any]]:
    aliases = facts.observations or {}
    for name in sorted(aliases.keys() - {term[0] for term in metadata.terms}):
        refuse(f"facts.observations.{name}", aliases[name], "the policy lacks this term")
    scales = _exact(metadata, facts, "observation_terms_scale")
    if len(scales) != len(metadata.terms):
        refuse("facts.exact.observation_terms_scale", len(scales), f"values; there are {len(metadata.terms)} terms")
    widths = {"imu_gyro": 3, "imu_quat_wxyz": 3, "last_action": metadata.action_size, "command": len(facts.command)}
    terms = []
    for (name, _, history, clip), scale in zip(metadata.terms, scales, strict=True):
        kind = aliases.get(name, name)
        if kind in UNMEASURED:
            raise ContractError(f"the policy reads '{name}': {UNMEASURED[kind]}")
        if kind not in TERMS:
            refuse(f"what '{name}' is", kind, f"facts.observations must call it one of {', '.join(TERMS)}")
        signal, transform, unit, frame = TERMS[kind]
        terms.append(
            {"name": name, "signal": signal, "transform": transform, "unit": unit, "frame": frame}
            | {"size": widths.get(signal, len(metadata.joint_names)), "scale": scale, "history": max(history, 1)}
            | {"clip": None if clip is None else list(clip), "params": {}}
        )
    total = sum(term["size"] * term["history"] for term in terms)
    if total != metadata.observation_size:
        shown = ", ".join(f"{term['name']} {term['size']} x {term['history']}" for term in terms)
        refuse("the network's input", metadata.observation_size, f"the terms add up to {total}: {shown}")
    return terms


def _exact(metadata: Metadata, facts: RobotFacts, key: str) -> tuple[float, ...]:
    """The values of a field: those of the facts if they agree with the metadata's three decimals."""
    if key == "observation_terms_scale":
        rounded = tuple(scale for _, scale, _, _ in metadata.terms)
    else:
        rounded = getattr(metadata, key)
    exact = (facts.exact or {}).get(key)
    if exact is None:
        return rounded
    if len(exact) != len(rounded):
        refuse(f"facts.exact.{key}", len(exact), f"values; the metadata has {len(rounded)}")
    for index, (value, near) in enumerate(zip(exact, rounded, strict=True)):
        if abs(value - near) > ROUNDING:
            refuse(f"facts.exact.{key}[{index}]", value, f"the metadata has {near}, which is another number")
    return exact


def _terms(texts: Mapping[str, str]) -> tuple[tuple[str, float, int, tuple[float, float] | None], ...]:
    names = _words(texts, "observation_names")
    columns = {key: _words(texts, f"observation_terms_{key}") for key in ("scale", "history_length", "clip")}
    columns["flat"] = _words(texts, "observation_terms_flatten_history_dim")
    for key, column in columns.items():
        if len(column) != len(names):
            refuse(f"observation terms: {key}", len(column), f"values; there are {len(names)} terms")
    terms = []
    for index, name in enumerate(names):
        scale, history, clip, flat = (columns[key][index] for key in ("scale", "history_length", "clip", "flat"))
        where = f"observation term '{name}':"
        factors = {_number(f"{where} scale", factor) for factor in scale.split(";")}
        if len(factors) != 1:
            refuse(f"{where} scale", scale, "components with different scales cannot be imported")
        length = _number(f"{where} history", history)
        if not length.is_integer() or length < 0:
            refuse(f"{where} history", history, "a whole number is needed")
        if length > 1 and flat != "True":
            refuse(f"{where} flatten_history_dim", flat, "only a flat history can be imported")
        terms.append((name, factors.pop(), int(length), _clip(where, clip)))
    return tuple(terms)


def _clip(where: str, text: str) -> tuple[float, float] | None:
    bounds = [_number(f"{where} clip", word) for word in text.split(";")]
    if len(bounds) != 2:
        refuse(f"{where} clip", text, "two bounds are needed")
    if all(math.isinf(bound) for bound in bounds):
        return None
    low, high = (max(-LARGEST, min(LARGEST, bound)) for bound in bounds)
    return low, high


def _words(texts: Mapping[str, str], key: str) -> tuple[str, ...]:
    if key not in texts:
        raise ContractError(f"the ONNX file has no '{key}' in its metadata; mjlab 1.6 writes it")
    return tuple(texts[key].split(",")) if texts[key] else ()


def _numbers(texts: Mapping[str, str], key: str) -> tuple[float, ...]:
    return tuple(_number(key, word) for word in _words(texts, key))


def _number(where: str, word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        refuse(where, word, "a number is needed")
    if math.isnan(value):
        refuse(where, word, "a number is needed")
    return value


def _width(node: Any) -> int:
    shape = node.type.tensor_type.shape.dim
    if len(shape) != 2 or shape[1].dim_value < 1:
        raise ContractError(f"the network's '{node.name}' has another shape than (1, width)")
    return int(shape[1].dim_value)

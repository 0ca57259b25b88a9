"""What an exported policy and a symmetric learner need to know about a task, read from its terms' declarations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from robot_rl_assets.robot import Robot

from robot_rl_envs.codegen.layout import ObservationSlot, TaskLayout, message_sizes
from robot_rl_envs.entity.robot_checks import require_mirror
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.mdp.observations import MOVING_COMMAND
from robot_rl_envs.task import Task, TorchTerm
from robot_rl_envs.terms.checks import require
from robot_rl_envs.terms.declare import OWN_RANGES, MirrorRule, TermInfo

MIXED = "mixed"
"""Unit of a whole command of many different ones, which its components declare."""
JOINT_FACTS = ("default_pos", "kp", "kd", "effort_limit", "velocity_limit")


def _joint_rows(scene: Scene) -> list[dict[str, Any]]:
    rows = []
    for joint, limits in zip(scene.robot.joints, scene.entity.joint_range.tolist(), strict=True):
        lower, upper = (limit if math.isfinite(limit) else None for limit in limits)
        facts = {name: getattr(joint, name) for name in JOINT_FACTS}
        rows.append({"name": joint.name, **facts, "lower": lower, "upper": upper, "action_scale": joint.action_scale})
    return rows


def describe_command(task: Task) -> dict[str, Any] | None:
    """Describe the command of a task, None without one; JSON-able, floats unrounded.

    Returns:
        "name"; "components": name -> "unit", "lower" and "upper"; "frame" of its vectors; "draws", how to draw it (see
        :data:`.declare.DRAWS`).
    """
    for name, term in task.commands.items():
        info = term.info
        own = OWN_RANGES.get(info.draws, {})  # the declaration ensured that there is one of each unit
        components = {}
        for component, unit in task.command_components.items():
            ends = [f"{component}_{end}" for end in ("lo", "hi")]
            lower, upper = (term.params[end] for end in ends) if ends[0] in term.params else own[unit]
            components[component] = {"unit": unit, "lower": lower, "upper": upper}
        return {"name": name, "components": components, "frame": info.frame, "draws": info.draws}
    return None


def _quantity(info: TermInfo, task: Task, scene: Scene) -> dict[str, str]:
    """Return unit and frame of an observation; if the base does not move, the world's frame is the base's."""
    command, as_commanded = describe_command(task), {"unit": "1", "frame": "base"}
    if command is not None:
        units = [component["unit"] for component in command["components"].values()]
        mixed = MIXED if command["draws"] == "motion" else ", ".join(units)
        as_commanded["unit"] = units[0] if len(set(units)) == 1 else mixed
        as_commanded["frame"] = "world" if command["frame"] == "world" and scene.base else "base"
    declared = {name: getattr(info, name) for name in as_commanded}
    return {name: as_commanded[name] if value == "command" else value for name, value in declared.items()}


def _observation_row(slot: ObservationSlot, scene: Scene, task: Task) -> dict[str, Any]:
    if isinstance(slot.term, TorchTerm):
        return {"name": slot.name, "signal": None, "transform": "identity", "size": slot.size}
    info = slot.term.info
    signal = info.signal
    params: dict[str, Any] = {name: v for name, v in slot.term.params.items() if name not in info.source.simulated}
    params |= scene.sensing.describe(info.source.uses)
    if slot.term.measured:
        signal, params = f"measured/{slot.term.measured}", {}
    if info.size == "limited_joints":
        params["joints"] = scene.entity.limited
    if info.signal == "clock":
        params |= {"gate": "command", "gate_norm": MOVING_COMMAND}
    return {
        "name": slot.name,
        "signal": signal,
        "transform": info.transform,
        **_quantity(info, task, scene),
        "size": slot.size,
        "scale": slot.term.scale,
        "clip": slot.term.clip,
        "history": slot.history,
        "params": params,
    }


def _image_row(image: dict[str, Any], step_dt: float) -> dict[str, Any]:
    """Return the row of an image group, of its sensor's description: the signal is in m, the observation in [0, 1]."""
    depth, (_, height, width) = image["kind"] == "depth", image["shape"]
    most, lens = image["far"] if depth else 1.0, image["intrinsics"]
    return {
        "name": image["name"],
        "signal": f"measured/{image['name']}",
        "transform": "identity",
        "unit": "m" if depth else "1",
        "frame": "none",
        "size": math.prod(image["shape"]),
        "scale": 1.0 / most,
        "clip": [0.0, most],
        "history": 1,
        "params": {
            "image": {
                "kind": image["kind"],
                "width": width,
                "height": height,
                "focal": [lens["fx"], lens["fy"]],
                "center": [lens["cx"], lens["cy"]],
                **{name: image[name] for name in ("body", "pos", "quat_wxyz", "near", "far")},
                "period_s": image["every"] * step_dt,
            }
        },
    }


def describe_policy(
    task: Task, scene: Scene, layout: TaskLayout, groups: Sequence[str], images: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Describe joints, actions, observations, rates and command ranges; JSON-able, floats unrounded.

    Args:
        task: The task.
        scene: Its scene.
        layout: Where its terms are.
        groups: Observation groups that the policy reads, in order: "actor" and groups of images.
        images: Descriptions of all groups of images.

    Raises:
        ValueError: A group is neither.
    """
    rows = {image["name"]: [_image_row(image, task.sim.step_dt)] for image in images}
    rows["actor"] = [_observation_row(slot, scene, task) for slot in layout.groups["actor"]]
    for group in groups:
        right = "a policy for a robot reads 'actor' and groups of images"
        require(group in rows, "observations", group, right)
    driven = [joint for joint in scene.robot.joints if not joint.passive]
    actions: list[dict[str, Any]] = []
    for joint in driven:
        offset, scale = scene.action_map(joint)
        actions.append({"joint": joint.name, "scale": scale, "offset": offset})
        if joint.by_speed and task.actions.kind == "position":
            actions[-1] |= {"kind": "velocity", "clip": scene.max_action(joint)}
    if task.actions.around == "command":
        for row in actions:
            row["command"] = row["joint"]
    if task.actions.limit_speed:
        for row, joint in zip(actions, driven, strict=True):
            if (error := scene.max_error(joint)) is not None:
                row["max_error"] = error
    command = describe_command(task)
    if command is not None:
        ranges = {name: [row["lower"], row["upper"]] for name, row in command["components"].items()}
        command |= {"ranges": ranges}
    return (
        {
            "task": task.name,
            "robot": scene.robot.name,
            "joints": _joint_rows(scene),
            "actions": actions,
            "action_kind": task.actions.kind,
            "action_clip": task.actions.clip,
            "observations": [row for group in groups for row in rows[group]],
            "control_period_s": task.sim.step_dt,
            "physics_timestep_s": task.sim.timestep,
            "command": command,
        }
        | ({"images": list(images)} if images else {})
        | _describe_messages(task, scene)
    )


def _describe_messages(task: Task, scene: Scene) -> dict[str, Any]:
    """Describe the messages between the robots of a team; nothing if it has none."""
    crew = scene.crew
    if crew is None or not task.messages:
        return {}
    rows = []
    for k, (name, sizes) in enumerate(message_sizes(task, scene).items()):
        message = task.messages[name]
        slots = [ObservationSlot(part, message.terms[part], 0, size, 1) for part, size in sizes.items()]
        rows.append(
            {
                "name": name,
                "width": message.width,
                "latency_s": list(message.latency_s),
                "loss": message.loss,
                "max_age_s": message.max_age_s,
                "terms": [_observation_row(slot, scene, task) for slot in slots],
                "received": [
                    {"signal": f"measured/{term.measured}", "sender": int(term.params["sender"])}
                    for term in task.received.values()
                    if term.params[term.message_param] in (name, k)
                ],
            }
        )
    return {"team": list(crew.names), "messages": rows}


def describe_metrics(task: Task) -> dict[str, dict[str, Any]]:
    """Describe a task's metrics; see :meth:`robot_rl_envs.env.Env.describe_metrics`."""
    return {
        name: {
            "unit": term.unit,
            "meaning": term.info.summary.replace("``", "").removesuffix("."),
            "over": term.over,
            "after_s": term.after_s,
            "better": term.info.better,
        }
        for name, term in task.metrics.items()
    }


def observation_terms(scene: Scene, layout: TaskLayout) -> dict[str, tuple[int, ...]]:
    """Return the position of each term in its group, by "group.term": its first component, then its shape.

    A grid's shape is (history, rows, columns), that of any other term (history * size,).
    """
    found: dict[str, tuple[int, ...]] = {}
    for group, slots in layout.groups.items():
        for slot in slots:
            size = "" if isinstance(slot.term, TorchTerm) else slot.term.info.size
            sensed = scene.sensing.shapes.get(size, ()) if isinstance(size, str) else ()
            shape = (slot.history, *sensed) if len(sensed) > 1 else (slot.history * slot.size,)
            found[f"{group}.{slot.name}"] = (slot.offset, *shape)
    return found


def _joint_mirror(robot: Robot, names: Sequence[str]) -> tuple[list[int], list[float]]:
    indices, signs = robot.joint_mirror()
    keep = [k for k, name in enumerate(robot.joint_names) if name in names]
    return [keep.index(indices[k]) for k in keep], [signs[k] for k in keep]


def _mirror_of(slot: ObservationSlot, scene: Scene, task: Task) -> tuple[list[int], list[float]]:
    rule: MirrorRule = () if isinstance(slot.term, TorchTerm) else slot.term.info.mirror
    robot = scene.robot
    if rule == "command":
        rule = next((term.info.mirror for term in task.commands.values()), ())
    if not isinstance(rule, str | tuple):
        return rule(scene)
    named = {"joints": robot.joint_names, "actions": scene.actuated, "limited_joints": scene.entity.limited}
    if rule in named:
        return _joint_mirror(robot, named[rule])
    if rule in ("feet", "foot_forces"):
        feet = len(robot.foot_mirror)
        return [start + k for start in range(0, slot.size, feet) for k in robot.foot_mirror], [1.0] * slot.size
    if isinstance(rule, str) and (sensor := scene.sensing.mirror(rule)) is not None:
        return sensor
    if isinstance(rule, tuple) and len(rule) == slot.size:
        return list(range(slot.size)), [float(k) for k in rule]
    raise ValueError(
        f"observation {slot.name!r} declares no left-right mirror (mirror={rule!r}): declare one sign an element, "
        "'joints', 'actions', 'feet' or 'height_scan', or set the task's mirror to False"
    )


def mirror_maps(
    task: Task, scene: Scene, layout: TaskLayout, device: str
) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Return permutation and sign of every observation group and of "action" under the left-right mirror.

    Raises:
        ValueError: the robot has joints of two sides, and names no mirror.
    """
    require_mirror(scene.robot)
    maps = {}
    for group in task.vectors:
        perm: list[int] = []
        sign: list[float] = []
        for slot in layout.groups[group]:
            slot_perm, slot_sign = _mirror_of(slot, scene, task)
            for h in range(slot.history):
                perm += [slot.offset + h * slot.size + k for k in slot_perm]
                sign += slot_sign
        maps[group] = (torch.tensor(perm, device=device), torch.tensor(sign, device=device))
    perm, sign = _joint_mirror(scene.robot, scene.actuated)
    maps["action"] = (torch.tensor(perm, device=device), torch.tensor(sign, device=device))
    return maps

"""Describe the inputs and outputs of a policy in a manager-based environment of Isaac Lab, for the exported contract.

Joints, limits and gains come from the articulation and its actuators, scales and offsets from the action terms'
descriptors, and an observation term from its function and its descriptor. A term that no robot measures is
without a signal, and the contract refuses it by its name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robot_rl.errors import UserError

# A function of Isaac Lab -> signal, transform, unit, frame in the contract's words.
TERMS = {
    "base_ang_vel": ("imu_gyro", "identity", "rad/s", "base"),
    "projected_gravity": ("imu_quat_wxyz", "projected_gravity", "1", "base"),
    "joint_pos": ("joint_pos", "identity", "rad", "joint"),
    "joint_pos_rel": ("joint_pos", "minus_default", "rad", "joint"),
    "joint_vel": ("joint_vel", "identity", "rad/s", "joint"),
    "joint_vel_rel": ("joint_vel", "identity", "rad/s", "joint"),
    "last_action": ("last_action", "identity", "1", "none"),
    "generated_commands": ("command", "identity", "m/s, m/s, rad/s", "base"),
}
LIBRARY = ("isaaclab.", "isaaclab_tasks.")
ACTIONS = {"JointPositionAction": "position", "JointVelocityAction": "velocity", "JointEffortAction": "effort"}
ROBOTS = {"go2": "unitree_go2", "g1": "unitree_g1", "h1": "unitree_h1"}
"""Names of Isaac Lab's robot files, and this project's names of the robots."""
EFFORTS = ("actuator_effort_limit", "joint_effort_limit", "effort_limit", "effort_limit_sim")
SPEEDS = ("actuator_velocity_limit", "joint_velocity_limit", "velocity_limit", "velocity_limit_sim")
"""Isaac Lab's names of a limit, that of the motor first."""
STEPS = 30
TOLERANCE = 1e-4
"""Largest difference, in parts of 1 or of the value if that is larger: float32, and sums in another order."""
COMMAND = {"vx": "lin_vel_x", "vy": "lin_vel_y", "yaw": "ang_vel_z"}


def describe_policy(env: Any, groups: tuple[str, ...] = ("policy",)) -> dict[str, Any]:
    """Return joints, actions, observations, rates and command ranges of a `robot_rl.sources.isaaclab.adapter.IsaacEnv`.

    Args:
        env: The environment.
        groups: The observation groups that the policy sees.

    Raises:
        UserError: A direct environment, which does not describe its observation, or actions that a robot's joint
            controller does not support.
    """
    lab = env.env
    if hasattr(lab, "describe_policy"):
        return lab.describe_policy()
    if not hasattr(lab, "observation_manager"):
        right = "train a manager-based one, or give its class describe_policy() and robot_state() (docs/isaac.md)"
        raise UserError(f"export: {env.name} is a direct environment, which does not describe its observation; {right}")
    asset = _robot(env)
    robot = lab.scene.articulations[asset]
    actions = _action_rows(env, asset)
    path = str(getattr(robot.cfg.spawn, "usd_path", asset))
    name = Path(path).stem
    return {
        "task": env.name,
        "robot": ROBOTS.get(name, name),
        "joints": _joint_rows(robot, {row["joint"] for row in actions}),
        "actions": actions,
        "action_clip": env.action_clip,
        "observations": [row for group in groups for row in _observation_rows(env, group, asset)],
        "control_period_s": env.step_dt,
        "physics_timestep_s": float(lab.physics_dt),
        "command": _command(env, groups),
    }


def robot_state(env: Any) -> dict[str, Tensor]:
    """Return the robot's signals without noise by the contract's names, (N, size) each."""
    lab = env.env
    if hasattr(lab, "robot_state"):
        return lab.robot_state()
    data = lab.scene.articulations[_robot(env)].data
    signals = {
        "joint_pos": data.joint_pos.torch,
        "joint_vel": data.joint_vel.torch,
        "imu_gyro": data.root_ang_vel_b.torch,
        "imu_quat_wxyz": data.root_quat_w.torch[:, [3, 0, 1, 2]],
    }
    if (name := _command_name(env)) is not None:
        signals["command"] = lab.command_manager.get_command(name)
    return signals


def _robot(env: Any) -> str:
    """Return the articulation that the actions drive."""
    manager = env.env.action_manager
    assets = {manager.get_term(name).cfg.asset_name for name in manager.active_terms}
    if len(assets) != 1:
        raise UserError(f"export: the actions of {env.name} drive {', '.join(sorted(assets))}; one robot is possible")
    return assets.pop()


def _joint_rows(robot: Any, driven: set[str]) -> list[dict[str, Any]]:
    """Return gains, limits and default of every joint: of its actuator's configuration, else of the simulation."""
    data, names = robot.data, list(robot.joint_names)
    kp, kd = _row(data.joint_stiffness), _row(data.joint_damping)
    effort, speed = _row(data.joint_effort_limits), _row(data.joint_vel_limits)
    for actuator in (robot.cfg.actuators or {}).values():
        joints = robot.find_joints(actuator.joint_names_expr)[1]
        for gains, fields in ((kp, ("stiffness",)), (kd, ("damping",)), (effort, EFFORTS), (speed, SPEEDS)):
            for joint, value in _configured(actuator, fields, joints).items():
                gains[names.index(joint)] = value
    default, limits = _row(data.default_joint_pos), data.joint_pos_limits.torch[0].tolist()
    rows = []
    for index, (name, (lower, upper)) in enumerate(zip(names, limits, strict=True)):
        has_motor = name in driven or kp[index] > 0
        rows.append(
            {
                "name": name,
                "default_pos": default[index],
                "kp": kp[index],
                "kd": kd[index] if has_motor else 0.0,
                "effort_limit": _bounded(effort[index], name) if has_motor else 0.0,
                "velocity_limit": speed[index] if 0 < speed[index] < 1e6 else None,
                "lower": lower if abs(lower) < 1e6 else None,
                "upper": upper if abs(upper) < 1e6 else None,
            }
        )
    return rows


def _configured(actuator: Any, fields: tuple[str, ...], joints: list[str]) -> dict[str, float]:
    """Return an actuator's configured value by joint: of the first of these fields that is set."""
    given = next((value for field in fields if (value := getattr(actuator, field, None)) is not None), None)
    if isinstance(given, int | float):
        return dict.fromkeys(joints, float(given))
    if not isinstance(given, Mapping):
        return {}
    return {joint: float(value) for joint in joints for name, value in given.items() if re.fullmatch(name, joint)}


def _bounded(effort: float, joint: str) -> float:
    if not math.isfinite(effort) or effort > 1e6:
        raise UserError(f"export: joint '{joint}' has no effort limit; give its actuator a joint_effort_limit")
    return effort


def _action_rows(env: Any, asset: str) -> list[dict[str, Any]]:
    """Return scale, offset and kind of every action, from the terms' descriptors."""
    manager, rows = env.env.action_manager, []
    for name in manager.active_terms:
        term = manager.get_term(name)
        descriptor = term.IO_descriptor
        kind = ACTIONS.get(type(term).__name__)
        if kind is None:
            raise UserError(
                f"export: action term '{name}' of {env.name} is a {type(term).__name__}, which a robot's joint "
                f"controller does not take; one of {', '.join(ACTIONS)} is possible"
            )
        if getattr(descriptor, "clip", None) is not None:
            raise UserError(f"export: action term '{name}' of {env.name} clips its targets; give action_clip= instead")
        count = len(descriptor.joint_names)
        scale, offset = _values(descriptor.scale, count), _values(descriptor.offset, count)
        for joint, factor, start in zip(descriptor.joint_names, scale, offset, strict=True):
            rows.append({"joint": joint, "kind": kind, "scale": factor, "offset": start})
    return rows


def _observation_rows(env: Any, group: str, asset: str) -> list[dict[str, Any]]:
    manager = env.env.observation_manager
    if group not in manager.active_terms:
        raise UserError(f"export: {env.name} has no observation group of terms called '{group}'")
    if getattr(manager, "_group_obs_time_major", {}).get(group):
        raise UserError(f"export: observation group '{group}' is ordered by time first, must be by term")
    names, cfgs = manager.active_terms[group], manager._group_obs_term_cfgs[group]
    sizes = manager.group_obs_term_dim[group]
    return [_row_of(env, asset, *each) for each in zip(names, cfgs, sizes, strict=True)]


def _row_of(env: Any, asset: str, name: str, cfg: Any, shape: Any) -> dict[str, Any]:
    """Return one term; without a signal if a robot measures nothing equivalent."""
    history = max(1, int(getattr(cfg, "history_length", 0) or 0))
    size = math.prod(shape) // history
    signal, transform, unit, frame = _meaning(cfg, asset)
    if history > 1 and not getattr(cfg, "flatten_history_dim", True):
        raise UserError(f"export: observation '{name}' keeps its history in an axis of its own; flatten_history_dim")
    row = {"name": name, "signal": signal, "transform": transform, "unit": unit, "frame": frame, "size": size}
    row |= {"history": history, "scale": _one_scale(cfg.scale, name), "clip": _clip(cfg.clip), "params": {}}
    if signal in ("joint_pos", "joint_vel"):
        joints, entity = list(env.env.scene.articulations[asset].joint_names), cfg.params.get("asset_cfg")
        ids = slice(None) if entity is None else entity.joint_ids
        chosen = joints[ids] if isinstance(ids, slice) else [joints[int(index)] for index in ids]
        if chosen != joints:
            row["params"] = {"joints": chosen}
    if getattr(cfg.func, "__name__", "") == "joint_vel_rel":
        data = env.env.scene.articulations[asset].data
        if data.default_joint_vel.torch.any():
            raise UserError(f"export: observation '{name}' is relative to default velocities that are not 0")
    return row


def _meaning(cfg: Any, asset: str) -> tuple[str | None, str, str, str]:
    """Return signal, transform, unit and frame of a term; no signal if it is not one of Isaac Lab's own in TERMS."""
    function = getattr(cfg.func, "__wrapped__", cfg.func)
    name, module = getattr(function, "__name__", ""), str(getattr(function, "__module__", ""))
    entity = cfg.params.get("asset_cfg")
    is_other = entity is not None and entity.name != asset
    is_partial = name == "last_action" and cfg.params.get("action_name") is not None
    if name not in TERMS or not module.startswith(LIBRARY) or is_other or is_partial or cfg.modifiers:
        return None, "identity", "1", "none"
    return TERMS[name]


def _one_scale(scale: Any, name: str) -> float:
    values = {1.0} if scale is None else set(torch.as_tensor(scale, dtype=torch.float64).reshape(-1).tolist())
    if len(values) != 1:
        raise UserError(f"export: observation '{name}' has a scale for each component; one for all is possible")
    return values.pop()


def _clip(clip: Any) -> list[float] | None:
    if clip is None or all(math.isinf(bound) for bound in clip):
        return None
    most = torch.finfo(torch.float32).max
    return [max(-most, min(most, float(bound))) for bound in clip]


def _command_name(env: Any, groups: tuple[str, ...] = ("policy",)) -> str | None:
    """Return the command that the policy observes; None without one."""
    manager = env.env.observation_manager
    commands = [
        cfg.params["command_name"]
        for group in groups
        for cfg in manager._group_obs_term_cfgs.get(group, ())
        if getattr(cfg.func, "__name__", "") == "generated_commands"
    ]
    if len(set(commands)) > 1:
        raise UserError(f"export: the policy of {env.name} sees the commands {', '.join(commands)}; one is possible")
    return commands[0] if commands else None


def _command(env: Any, groups: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the ranges of a velocity command, as in training."""
    name = _command_name(env, groups)
    if name is None:
        return None
    ranges = getattr(env.env.command_manager.get_term(name).cfg, "ranges", None)
    ranges_of: dict[str, Any] = {axis: getattr(ranges, lab_name, None) for axis, lab_name in COMMAND.items()}
    if any(limits is None for limits in ranges_of.values()):
        raise UserError(f"export: the command '{name}' of {env.name} is no velocity of the base, as a robot needs it")
    limits = {key: [float(low), float(high)] for key, (low, high) in ranges_of.items()}
    return {"name": name, "ranges": limits, "frame": "base", "draws": "velocity"}


def _row(proxy: Any) -> list[float]:
    return proxy.torch[0].tolist()


def _values(given: Any, count: int) -> list[float]:
    """Return a number for all, one each, or a batch of them, as one each."""
    if isinstance(given, Tensor):
        given = given[0].tolist() if given.ndim == 2 else given.tolist()
    if isinstance(given, Mapping):
        raise UserError("export: an action's scale is given by name and not resolved")
    return [float(given)] * count if isinstance(given, int | float) else [float(value) for value in given]


def check_observations(env: Any, training: Any) -> None:
    """Compare the observations of the environment with those that its description computes from the robot's state.

    Args:
        env: The environment, without noise and delay; it is reset and stepped.
        training: The policy's origin, for the contract.

    Raises:
        UserError: They differ; the line names the term and by how much.
        ContractError: The policy reads a value that no robot can measure.
    """
    from robot_rl_deploy.describe import make_contract
    from robot_rl_deploy.observe import Observer, needed_signals

    contract = make_contract(env.describe_policy(), training)
    observer, generator = Observer(contract, env.num_envs), torch.Generator().manual_seed(0)
    obs, done = env.reset(), np.ones(env.num_envs, bool)
    for step in range(STEPS):
        observer.reset(done)
        state = env.robot_state()
        signals = {name: state[name].detach().cpu().numpy() for name in needed_signals(contract)}
        built = observer.observe(signals)
        given = torch.cat([obs[group] for group in env.policy_groups], dim=-1).cpu().numpy()
        if given.shape != built.shape:
            raise UserError(f"export: {env.name} observes {given.shape[1]} values, its terms have {built.shape[1]}")
        _compare(env.name, contract, given, built, step)
        actions = 0.3 * torch.randn(env.num_envs, env.num_actions, generator=generator)
        if env.action_clip is not None:
            actions = actions.clamp(-env.action_clip, env.action_clip)
        observer.last_action[:] = actions.numpy()
        obs, _, ended, _ = env.step(actions)
        done = ended.cpu().numpy()


def _compare(name: str, contract: Any, given: np.ndarray, built: np.ndarray, step: int) -> None:
    wrong = np.abs(given - built) / np.maximum(1.0, np.abs(given))
    if wrong.max() <= TOLERANCE:
        return
    column, start = int(wrong.max(axis=0).argmax()), 0
    for term in contract.observations:
        if column < start + term.size * term.history:
            raise UserError(
                f"export: observation '{term.name}' of {name} is {given[:, column].max():.6g} where its description "
                f"makes {built[:, column].max():.6g} of the robot's state (step {step}, component {column - start})"
            )
        start += term.size * term.history

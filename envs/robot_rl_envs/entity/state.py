"""The struct of arrays ``s`` that terms read and write, built for one scene and one list of terms.

Frames: ``_w`` world, ``_b`` base. Quaternions are w, x, y, z. One row a world; ``nj`` joints in the robot's order,
``na`` actions, ``nf`` feet. An entity (the robot) and the world have one table each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import warp as wp

from robot_rl_envs.entity.entity import Entity
from robot_rl_envs.entity.objects import SceneElements
from robot_rl_envs.terms.checks import nearest

Table = dict[str, tuple[Any, tuple[str | int, ...], str]]
"""Name -> dtype, trailing shape (a number or the name of a width), meaning."""

ENTITY_FIELDS: Table = {
    "base_pos_w": (wp.vec3, (), "position of the base's origin [m]"),
    "base_quat_wxyz": (wp.vec4, (), "orientation of the base"),
    "base_lin_vel_w": (wp.vec3, (), "velocity of the base's origin [m/s]"),
    "base_lin_vel_b": (wp.vec3, (), "the same in the base frame [m/s]"),
    "base_ang_vel_b": (wp.vec3, (), "angular velocity in the base frame [rad/s]"),
    "projected_gravity_b": (wp.vec3, (), "unit gravity direction in the base frame"),
    "joint_pos": (wp.float32, ("nj",), "joint positions [rad or m]"),
    "joint_vel": (wp.float32, ("nj",), "joint velocities [rad/s or m/s]"),
    "last_joint_vel": (wp.float32, ("nj",), "joint velocities one control step ago"),
    "joint_torque": (wp.float32, ("nj",), "actuator force of the last substep [N m or N]; 0 for passive joints"),
    "action": (wp.float32, ("na",), "last raw action"),
    "prev_action": (wp.float32, ("na",), "raw action one step before"),
    "prev_prev_action": (wp.float32, ("na",), "raw action two steps before"),
    "foot_pos_w": (wp.vec3, ("nf",), "center of each foot [m]"),
    "foot_vel_w": (wp.vec3, ("nf",), "velocity of each foot's center [m/s]"),
    "foot_height_w": (wp.float32, ("nf",), "clearance of each foot's sole above the ground under it [m]"),
    "foot_peak_height_w": (wp.float32, ("nf",), "largest clearance since the foot lifted off [m]"),
    "foot_contact": (wp.float32, ("nf",), "1 if the foot touches the ground"),
    "foot_force": (wp.float32, ("nf",), "magnitude of the net contact force of the last substep [N]"),
    "foot_air_time_s": (wp.float32, ("nf",), "time since the foot lifted off; at touchdown the whole swing's [s]"),
    "foot_contact_time_s": (wp.float32, ("nf",), "time since the foot touched down [s]"),
    "foot_touchdown": (wp.float32, ("nf",), "1 in the step in which the foot touches down"),
}
"""What is known of one entity; without feet ``nf`` is 0, without a floating base its pose stays zero."""

WORLD_FIELDS: Table = {
    "terrain_level": (wp.int32, (), "row of the terrain the world starts on: its difficulty"),
    "terrain_column": (wp.int32, (), "column of the terrain the world starts on: its kind"),
    "env_origin_w": (wp.vec3, (), "start of the world's robot: the ground below its default pose [m]"),
    "command_range": (wp.float32, (), "growth of the commands' range: 0 at first, 1 the full range"),
    "command_left_s": (wp.float32, ("nc",), "time until each command is drawn again [s]"),
    "command_hold": (wp.int32, (), "1: commands are held by hand, nothing draws them"),
    "interval_left_s": (wp.float32, ("ni",), "time until each interval event [s]"),
    "episode_length": (wp.int32, (), "control steps towards the time limit"),
    "step_count": (wp.int32, (), "control steps since the last reset"),
    "counter": (wp.int32, (), "control steps ever: the counter of the random streams"),
    "dirty": (wp.int32, (), "fields written since the last step; bits of robot_rl_envs.engine"),
    "terminated": (wp.int32, (), "1 if the episode ended by a failure"),
    "time_out": (wp.int32, (), "1 if it ended by its time"),
    "quarantined": (
        wp.int32,
        (),
        "why this step quarantined the world: FAULT_* bits of robot_rl_envs.engine, 0 if not",
    ),
    "fault_term": (wp.int32, (), "index of the reward or observation term that was not finite in this step, else -1"),
    "reward": (wp.float32, (), "this step's reward"),
    "episode_return": (wp.float32, (), "sum of rewards of the running episode"),
    "reward_sums": (wp.float32, ("nr",), "sum of each reward term since the metrics were last read"),
    "metric_values": (wp.float32, ("nm",), "each metric after this step's physics; the last known where quarantined"),
    "termination_bits": (wp.int32, (), "the task's terminations that held in this step: 1 << k for the k-th"),
}

FIELDS = ENTITY_FIELDS | WORLD_FIELDS

ENGINE_FIELDS: Table = {
    "qpos": (wp.float32, ("nq",), "MuJoCo's positions [rad or m]; quaternions of free joints in the world frame"),
    "qvel": (wp.float32, ("nv",), "MuJoCo's velocities [rad/s or m/s]"),
    "ctrl": (wp.float32, ("nu",), "MuJoCo's controls: the targets or efforts of the actuators"),
    "sensordata": (wp.float32, ("nsensordata",), "MuJoCo's sensors, each with its own unit and frame"),
    "actuator_force": (wp.float32, ("nu",), "forces of the actuators [N or N m]"),
}
"""The arrays of the engine."""

_POSES = {"pos_w": (wp.vec3, "position [m]"), "quat_wxyz": (wp.vec4, "orientation")}
_POSES |= {"lin_vel_w": (wp.vec3, "velocity [m/s]"), "ang_vel_w": (wp.vec3, "angular velocity [rad/s]")}

TASK_FIELDS: Table = {
    "command": (Any, (), "the command: component k is command[i][k], with the unit and frame that its term declares"),
    **{
        f"{kind}_{name}": (dtype, (count,), f"{meaning} of each {text}, world frame")
        for kind, count, text in (("object", "no", "object"), ("site", "ns", "site that a term names"))
        for name, (dtype, meaning) in _POSES.items()
    },
    "object_joint_pos": (wp.float32, ("noj",), "joint positions of the objects [rad or m]"),
    "object_joint_vel": (wp.float32, ("noj",), "joint velocities of the objects [rad/s or m/s]"),
    "contact_force": (wp.float32, ("nk",), "force of each contact that a term names [N]"),
    "measured": (wp.float32, ("nms",), "values of the terms with measured=, in their units and frames"),
    "height_scan": (wp.float32, ("npoint",), "height of the base above the ground at each point of the scan [m]"),
    "imu_acc": (wp.vec3, (), "the accelerometer's value [m/s^2], frame of the IMU"),
    "foot_forces": (wp.float32, ("nff",), "force of each foot in the last substeps, substep by substep [N]"),
    "joint_target": (wp.float32, ("na",), "target of each explicit actuator [rad or m]"),
    "kp": (wp.float32, ("na",), "stiffness of each explicit actuator [N m/rad or N/m]"),
    "kd": (wp.float32, ("na",), "damping of each explicit actuator [N m s/rad or N s/m]"),
    "strength": (wp.float32, ("na",), "factor of the torque of each explicit actuator"),
    "delay_steps": (wp.int32, (), "delay of the actuators [substeps]"),
    "motion_id": (wp.int32, (), "the reference motion of the world"),
    "motion_start": (wp.int32, (), "frame of it that the episode began with"),
    "active": (wp.int32, (), "of a team: 1 if the robot takes part"),
    "acted": (wp.int32, (), "of a team: 1 if it did in this step"),
    "start_pos_w": (wp.vec3, (), "of a team: the robot's start [m]"),
    "start_yaw": (wp.float32, (), "of a team: the robot's heading at its start [rad], world frame"),
}
"""Fields of a task that has such parts: a command, objects, sensors, explicit actuators, motions, a team."""

TEAM_FIELDS: Table = {
    "team_pos_w": (wp.vec3, ("nt",), "position of the base of each robot of the world [m]"),
    "team_quat_wxyz": (wp.vec4, ("nt",), "its orientation"),
    "team_lin_vel_w": (wp.vec3, ("nt",), "its velocity [m/s]"),
    "team_ang_vel_b": (wp.vec3, ("nt",), "its angular velocity, in its base's frame [rad/s]"),
    "team_active": (wp.int32, ("nt",), "1 if it takes part"),
}
"""Fields of all robots of a team, with a row for each world."""

RECOMPUTED = ("metric_values", "termination_bits", "reward_sums")
"""Fields that a checkpoint does not need: each step writes them before they are read, or the log contains them."""

CONSTANTS: dict[str, tuple[Any, int, str]] = {
    "default_joint_pos": (wp.float32, 1, "(nj,) default pose [rad or m]"),
    "joint_lower": (wp.float32, 1, "(nj,) lower limits"),
    "joint_upper": (wp.float32, 1, "(nj,) upper limits"),
    "effort_limit": (wp.float32, 1, "(nj,) effort limits"),
    "velocity_limit": (wp.float32, 1, "(nj,) velocity limits [rad/s or m/s]"),
    "default_qpos": (wp.float32, 1, "(nq,) standing pose of the whole model"),
    "joint_qpos": (wp.int32, 1, "(nj,) address in qpos"),
    "joint_dof": (wp.int32, 1, "(nj,) address in qvel"),
    "joint_ctrl": (wp.int32, 1, "(nj,) index in ctrl, -1 passive"),
    "joint_follows": (
        wp.vec3,
        1,
        "(nj,) the joint that it follows by an equality of the model (-1: none), factor and offset",
    ),
    "foot_geoms": (wp.int32, 1, "(nf,) geom ids"),
    "foot_phase": (wp.float32, 1, "(nf,) phase of each foot in an alternating gait: 0, or 0.5 for half a period later"),
    "terrain_heights": (wp.float32, 2, "(ny, nx) height map [m]; (1, 1) on an endless plane"),
    "terrain_origins": (wp.vec3, 2, "(rows, columns) a robot's start on each tile [m]"),
}


@wp.struct
class Chain:
    """The joints between the base and each foot, foot after foot, one node a joint or a jointless body.

    Attributes:
        start: (nf + 1,) the nodes of foot f are ``start[f]`` .. ``start[f + 1]``, from the base down.
        pos, quat: pose of the node in the one above [m], w x y z.
        kind: 0 fixed, 1 hinge, 2 slider.
        axis, anchor: joint axis and anchor in the node's frame.
        qpos, dof: index into qpos and qvel; 0 where fixed.
        ref: joint position at which the node's pose holds [rad or m].
        foot_pos: (nf,) the foot's center in its last node [m].
        foot_sensor: (nf,) address of its contact sensor.
        site_pos, site_quat: (ns,) pose of each site that terms read in its last node; the nodes of the sites follow
            those of the feet.
        site_object: (ns,) index of the object that a site belongs to; -1: the robot.
        foot_radius: distance of its center from its sole [m].
        floating: whether the base is.
    """

    start: wp.array(dtype=wp.int32)
    pos: wp.array(dtype=wp.vec3)
    quat: wp.array(dtype=wp.vec4)
    kind: wp.array(dtype=wp.int32)
    axis: wp.array(dtype=wp.vec3)
    anchor: wp.array(dtype=wp.vec3)
    qpos: wp.array(dtype=wp.int32)
    dof: wp.array(dtype=wp.int32)
    ref: wp.array(dtype=wp.float32)
    foot_pos: wp.array(dtype=wp.vec3)
    foot_sensor: wp.array(dtype=wp.int32)
    site_pos: wp.array(dtype=wp.vec3)
    site_quat: wp.array(dtype=wp.vec4)
    site_object: wp.array(dtype=wp.int32)
    foot_radius: float
    floating: int


def chain_values(entity: Entity, things: SceneElements) -> dict[str, Any]:
    """Return the arrays of `Chain` for the robot's feet and the named sites, by name; those that are empty may lack."""
    values = entity.chain | {"foot_sensor": entity.foot_sensor}
    sites = things.chain(entity.base_body_id)
    starts = values["start"][-1] + np.cumsum(sites.pop("count"))
    values["start"] = np.concatenate([values["start"], starts])
    for name, more in sites.items():
        values[name] = np.concatenate([values[name], more]) if name in values else more
    return values


def make_chain(entity: Entity, things: SceneElements, device: str) -> Any:
    """Put the kinematic chains of the robot's feet and of the named sites on ``device``."""
    chain, values = Chain(), chain_values(entity, things)
    for name, field in Chain.vars.items():
        if isinstance(field.type, wp.array):
            dtype = field.type.dtype
            given = values.get(name, np.zeros((0, *getattr(dtype, "_shape_", ()))))
            setattr(chain, name, wp.array(given, dtype=dtype, device=device))
    chain.foot_radius, chain.floating = float(entity.robot.foot_radius), int(entity.base)
    return chain


def make_struct(extra: dict[str, tuple[Any, int]]) -> Any:
    """Build the Warp struct type: engine arrays, :data:`FIELDS`, :data:`CONSTANTS` and ``extra`` (dtype, ndim)."""
    annotations: dict[str, Any] = {}
    for name in ("qpos", "qvel", "ctrl", "sensordata", "actuator_force"):
        annotations[name] = wp.array(dtype=wp.float32, ndim=2)
    annotations["overflow"] = wp.array(dtype=wp.int32)
    for name, (dtype, shape, _) in FIELDS.items():
        annotations[name] = wp.array(dtype=dtype, ndim=1 + len(shape))
    for name, (dtype, ndim, _) in CONSTANTS.items():
        annotations[name] = wp.array(dtype=dtype, ndim=ndim)
    for name, (dtype, ndim) in extra.items():
        if name in annotations:
            raise ValueError(f"state field {name!r} is taken; choose another name")
        annotations[name] = wp.array(dtype=dtype, ndim=ndim)
    scalars = {"seed": wp.int32, "world_offset": wp.int32, "step_dt": wp.float32, "step_dt64": wp.float64}
    scalars |= {"terrain_grid": wp.vec3, "terrain_stepped": wp.int32, "terrain_tile_size": wp.float32}
    scalars |= {"episode_steps": wp.int32, "base_qpos": wp.int32, "base_dof": wp.int32}
    annotations |= scalars
    return wp.struct(type("SceneState", (), {"__annotations__": annotations, "__module__": __name__}))


class State:
    """Torch views of every field of ``s``: ``env.state.base_lin_vel_b`` is (N, 3), live, nothing is copied."""

    def __init__(self, arrays: dict[str, Any]):
        self._views = {name: wp.to_torch(array) for name, array in arrays.items()}

    def __getattr__(self, name: str) -> Any:
        try:
            return object.__getattribute__(self, "_views")[name]
        except (KeyError, AttributeError):
            hint = nearest(name, self.__dict__.get("_views", ()))
            raise AttributeError(f"the state lacks a field {name!r}; {hint}") from None

    def __dir__(self) -> list[str]:
        return sorted(self._views)


def check_indices(tensors: Mapping[str, Any], tiles: Sequence[int]) -> None:
    """Refuse restored values that kernels would use as indices outside of their arrays.

    ``tensors`` are as of `Env.state_dict`, ``tiles`` the rows and columns of the terrain.
    """
    bounds = {"terrain_level": tiles[0], "terrain_column": tiles[1], "step_count": 2**31, "episode_length": 2**31}
    for name, size in bounds.items():
        value = tensors.get(f"state.{name}")
        if value is not None and value.numel() and not 0 <= int(value.min()) <= int(value.max()) < size:
            raise ValueError(
                f"environment state {name!r}: {int(value.min())} to {int(value.max())}, wants 0 to {size - 1}"
            )

"""The motions of a task as arrays for the kernels: frames at the control rate, one motion after the other.

Velocities are central differences, poses of bodies MuJoCo's kinematics, and a foot of the reference is in contact if
its sole is within 2 cm of the floor and slower than 0.3 m/s. Motions are cut into bins of up to a second, for which
failures are counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import mujoco
import numpy as np
import warp as wp

from robot_rl_envs.entity.entity import Entity
from robot_rl_envs.launch import CHUNK_WORLDS
from robot_rl_envs.motions import rotation
from robot_rl_envs.motions.kinematics import lowest_point
from robot_rl_envs.motions.motion import Motion

BIN_S = 1.0
CONTACT_M, CONTACT_M_S = 0.02, 0.3

_FRAMES: dict[str, tuple[Any, str]] = {
    "joint_pos": (wp.float32, "joints"),
    "joint_vel": (wp.float32, "joints"),
    "base_pos_w": (wp.vec3, ""),
    "base_quat_wxyz": (wp.vec4, ""),
    "base_lin_vel_w": (wp.vec3, ""),
    "base_ang_vel_b": (wp.vec3, ""),
    "body_pos_w": (wp.vec3, "tracked"),
    "body_quat_wxyz": (wp.vec4, "tracked"),
    "body_lin_vel_w": (wp.vec3, "tracked"),
    "body_ang_vel_w": (wp.vec3, "tracked"),
    "foot_contact": (wp.float32, "feet"),
}
"""Fields ``reference_<name>``: dtype and second dimension."""
_COUNTS = ("motion_first", "motion_frames", "motion_loops")
_BINS = ("bin_motion", "bin_first", "bin_frames")
FIELDS = (*(f"reference_{name}" for name in _FRAMES), *_COUNTS, *_BINS, "tracked_site")
"""What never changes."""


class ReferenceMotions:
    """The motions of a task for one compiled model.

    Attributes:
        names: of the motions, in order.
        motions: each at the control rate.
        tracked: names of the bodies that are followed.
        sizes: widths that terms and state fields name: "tracked" and "motion_bins".
        values: the constants of ``s`` by name.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        entity: Entity,
        motions: Mapping[str, Motion],
        tracked: Sequence[str],
        sites: Mapping[str, Any],
        *,
        step_dt: float,
        floor: float = 0.0,
    ):
        self._model, self._entity, self._floor = model, entity, floor
        self.names, self.tracked = list(motions), list(tracked)
        self.motions = {name: motion.resampled(1.0 / step_dt) for name, motion in motions.items()}
        self._bodies = [_body(model, name) for name in tracked]
        parts = [self._frames(motion, step_dt) for motion in self.motions.values()]
        self.values: dict[str, np.ndarray] = {
            f"reference_{name}": np.concatenate([part[name] for part in parts]) for name in _FRAMES if parts
        }
        at = list(sites)
        self.values["tracked_site"] = np.array([at.index(name) for name in tracked], dtype=np.int32)
        self._add_bins(step_dt)
        self.sizes = {"tracked": len(self.tracked), "motion_bins": len(self.values["bin_motion"])}

    def _add_bins(self, step_dt: float) -> None:
        first, frames, bins = 0, [], []
        for k, motion in enumerate(self.motions.values()):
            count = len(motion.joint_pos)
            frames.append((first, count - 1 if motion.loops else count, int(motion.loops)))
            edges = np.linspace(0, count - 1, int(np.ceil((count - 1) * step_dt / BIN_S)) + 1).round().astype(int)
            bins += [(k, lo, hi - lo) for lo, hi in pairwise(edges)]
            first += count
        for names, rows in ((_COUNTS, frames), (_BINS, bins)):
            table = np.array(rows, dtype=np.int32).reshape(-1, 3)
            self.values |= {name: table[:, k].copy() for k, name in enumerate(names)}

    def _frames(self, motion: Motion, dt: float) -> dict[str, np.ndarray]:
        """Return the arrays that terms read of each frame of one motion."""
        poses = [self._pose(motion, k) for k in range(len(motion.joint_pos))]
        body_pos, body_quat, foot_height, foot_pos = (np.array([pose[k] for pose in poses]) for k in range(4))
        joint_vel = rotation.velocity(motion.joint_pos, dt)
        if motion.loops:  # over the seam: the last frame is the first
            joint_vel[0] = joint_vel[-1] = (motion.joint_pos[1] - motion.joint_pos[-2]) / (2.0 * dt)
        base_pos, base_quat = motion.base_pos, rotation.normalize(motion.base_quat_wxyz)
        slow = np.linalg.norm(rotation.velocity(foot_pos, dt), axis=-1) < CONTACT_M_S
        return {
            "joint_pos": motion.joint_pos,
            "joint_vel": joint_vel,
            "base_pos_w": base_pos,
            "base_quat_wxyz": base_quat,
            "base_lin_vel_w": rotation.velocity(base_pos, dt),
            "base_ang_vel_b": rotation.angular_velocity(base_quat, dt, body=True),
            "body_pos_w": body_pos,
            "body_quat_wxyz": body_quat,
            "body_lin_vel_w": rotation.velocity(body_pos, dt),
            "body_ang_vel_w": rotation.angular_velocity(body_quat, dt, body=False),
            "foot_contact": (slow & (foot_height < CONTACT_M)).astype(np.float32),
        }

    def qpos(self, motion: Motion, frame: int) -> np.ndarray:
        """Return qpos (nq,) of the model in a frame of a motion with the robot's joints."""
        qpos = self._model.qpos0.copy()
        at = self._entity.base_qpos
        qpos[at : at + 3] = motion.base_pos[frame] + [0.0, 0.0, self._floor]
        qpos[at + 3 : at + 7] = motion.base_quat_wxyz[frame]
        qpos[self._entity.joint_qpos] = motion.joint_pos[frame]
        return qpos

    def commands(self, name: str) -> np.ndarray:
        """Return the frames of a motion as a player sends them (T, width): see `.mdp.motions.reference_motion`."""
        first = int(self.values["motion_first"][self.names.index(name)])
        rows = slice(first, first + len(self.motions[name].joint_pos))
        part = {field: self.values[f"reference_{field}"][rows] for field in _FRAMES}
        back = rotation.conjugate(part["base_quat_wxyz"])
        gravity = rotation.rotate(back, np.broadcast_to([0.0, 0.0, -1.0], part["base_pos_w"].shape))
        speed = rotation.rotate(back, part["base_lin_vel_w"])
        columns = [part["joint_pos"], part["joint_vel"], gravity, part["base_ang_vel_b"], speed]
        return np.concatenate([*columns, part["base_pos_w"][:, 2:]], axis=1)

    def _pose(self, motion: Motion, frame: int) -> tuple[np.ndarray, ...]:
        """Return positions and orientations of the tracked bodies, clearances [m] and positions of the feet."""
        model, data = self._model, self._data
        data.qpos[:] = self.qpos(motion, frame)
        mujoco.mj_kinematics(model, data)
        feet = self._entity.foot_geoms
        clearance = np.array([lowest_point(model, data, [geom])[0] - self._floor for geom in feet])
        pose = data.xpos[self._bodies].copy(), data.xquat[self._bodies].copy()
        return *pose, clearance, data.geom_xpos[feet].copy()

    @property
    def _data(self) -> mujoco.MjData:
        if not hasattr(self, "_scratch"):
            self._scratch = mujoco.MjData(self._model)
        return self._scratch

    def fields(self, num_envs: int) -> dict[str, tuple[Any, int, tuple[int, ...]]]:
        """Return fields of ``s``: name -> dtype, number of dimensions, shape; none without motions.

        ``reference_<name>`` (frames,) or (frames, n): joints [rad], base [m], the tracked bodies' poses and velocities
        and the feet's contacts. ``motion_first``, ``motion_frames`` (its period, if it loops) and ``motion_loops`` of
        each motion; ``bin_motion``, ``bin_first``, ``bin_frames`` of each bin. ``motion_id`` and ``motion_start`` (N,)
        are a world's motion and the frame of it that its episode began with. ``bin_failed`` and ``bin_seconds`` are
        counts of the bins; ``new_failed`` and ``new_steps`` (chunks of worlds, bins) those of the current step.
        """
        if not self.names:
            return {}
        found: dict[str, tuple[Any, int, tuple[int, ...]]] = {}
        for name, (dtype, second) in _FRAMES.items():
            shape = self.values[f"reference_{name}"].shape[: 2 if second else 1]
            found[f"reference_{name}"] = (dtype, len(shape), shape)
        for name in (*_COUNTS, *_BINS, "tracked_site"):
            found[name] = (wp.int32, 1, self.values[name].shape)
        bins = self.sizes["motion_bins"]
        found |= dict.fromkeys(("motion_id", "motion_start"), (wp.int32, 1, (num_envs,)))
        found |= dict.fromkeys(("bin_failed", "bin_seconds"), (wp.float32, 1, (bins,)))
        rows = -(-num_envs // CHUNK_WORLDS)
        return found | dict.fromkeys(("new_failed", "new_steps"), (wp.int32, 2, (rows, bins)))

    def check_state(self, tensors: Mapping[str, Any]) -> None:
        """Refuse restored values, as of `Env.state_dict`, that kernels would use as indices outside of their arrays."""
        value = tensors.get("state.motion_id")
        if value is not None and not 0 <= int(value.min()) <= int(value.max()) < len(self.names):
            found = f"{int(value.min())} to {int(value.max())}"
            raise ValueError(f"environment state 'motion_id': {found}, wants 0 to {len(self.names) - 1}")
        start = tensors.get("state.motion_start")
        if start is not None and int(start.min()) < 0:
            raise ValueError(f"environment state 'motion_start': {int(start.min())}, wants 0 or more")

    def fill(self, arrays: dict[str, wp.array]) -> None:
        """Set the arrays that do not change."""
        if self.names:
            for name, value in self.values.items():
                arrays[name].assign(value.astype(np.int32 if value.dtype.kind == "i" else np.float32))


def _body(model: mujoco.MjModel, name: str) -> int:
    return int(model.body(name).id)

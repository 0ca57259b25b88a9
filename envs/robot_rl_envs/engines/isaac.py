"""Isaac Lab's scene and Newton's physics behind the engine protocol, with a task's own terms and events.

Isaac Lab names what MuJoCo numbers: joints, bodies and feet are matched by name once, and what terms read is copied
after each step into MuJoCo's layout. A world's position is relative to where Isaac Lab put it. Newton solves contacts
with MuJoCo Warp of an older version, from the USD file that :mod:`robot_rl_assets.usd` writes.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import warp as wp

from robot_rl_envs.engine import DIRTY_MODEL, DIRTY_STATE, DIRTY_VELOCITY, EngineData
from robot_rl_envs.engines.isaac_model import ModelFields
from robot_rl_envs.engines.isaac_scene import Worlds, open_worlds
from robot_rl_envs.entity.scene import Scene


class IsaacEngine:
    """Isaac Lab on Newton; see :class:`robot_rl_envs.engine.Engine`."""

    name = "isaac"
    capturable = False

    def __init__(self, scene: Scene, *, num_envs: int, device: str, worlds: Worlds | None = None):
        """Open the worlds, or use those of an Isaac Lab environment: a running scene made of `isaac_scene.scene_cfg`.

        Raises:
            ValueError: Isaac Lab is missing, or the task needs what it does not do.
        """
        self.model, self.num_envs, self.device = scene.model, num_envs, device
        self._worlds = worlds or open_worlds(scene, num_envs, device)
        self._base = scene.base
        self._servo = scene.actions.kind == "position" and not scene.actions.actuator.explicit
        self.data = EngineData.zeros(self.model, num_envs, device)
        self._qpos, self._qvel = wp.to_torch(self.data.qpos), wp.to_torch(self.data.qvel)
        self._ctrl, self._force = wp.to_torch(self.data.ctrl), wp.to_torch(self.data.actuator_force)
        self._sensors = wp.to_torch(self.data.sensordata)
        self._match(scene)
        self._fields = ModelFields(scene, self._worlds, num_envs, device)
        self._origins = self._worlds.scene.env_origins.to(device)
        self._read()

    def _match(self, scene: Scene) -> None:
        """Find the task's joints and feet among Isaac Lab's, by name."""
        robot, names = scene.robot, list(self._worlds.robot.joint_names)
        every = [self.model.joint(i).name for i in range(self.model.njnt) if int(self.model.jnt_type[i]) in (2, 3)]
        missing = sorted(set(every) ^ set(names))
        if missing:
            raise ValueError(f"engine='isaac': joints of {robot.name!r} are not the same there: {', '.join(missing)}")

        def index(values: list[int]) -> torch.Tensor:
            return torch.tensor(values, dtype=torch.long, device=self.device)

        self._qpos_at = index([int(self.model.joint(name).qposadr[0]) for name in names])
        self._qvel_at = index([int(self.model.joint(name).dofadr[0]) for name in names])
        self._driven = index([names.index(name) for name in scene.actuated])
        self._joint_ids = self._driven.int()
        limits = [joint.effort_limit for joint in robot.joints if not joint.passive]
        self._limits = torch.tensor(limits, dtype=torch.float32, device=self.device)
        if robot.feet:
            found = [str(name).rpartition("/")[2] for name in self._worlds.feet.sensor_names]
            self._feet = index([found.index(foot) for foot in robot.feet])
            self._feet_at = [int(at) for at in scene.foot_sensor]

    # -- stepping ----------------------------------------------------------------------------------------------------

    def step(self, substeps: int) -> None:
        """Advance every world by ``substeps`` physics steps."""
        w = self._worlds
        if self._servo:
            w.robot.set_joint_position_target_index(target=self._ctrl, joint_ids=self._joint_ids)
        else:
            # Isaac Lab hands an implicit actuator's effort on as it is; MuJoCo's motor has a range.
            effort = torch.clamp(self._ctrl, -self._limits, self._limits)
            w.robot.set_joint_effort_target_index(target=effort, joint_ids=self._joint_ids)
        for _ in range(substeps):
            w.scene.write_data_to_sim()
            w.sim.step(render=False)
            w.scene.update(dt=w.sim.cfg.dt)
        self._read()

    def _read(self) -> None:
        """Copy state, torques and contacts into MuJoCo's layout."""
        data = self._worlds.robot.data
        if self._base:
            pose, vel = data.root_link_pose_w.torch, data.root_link_vel_w.torch
            self._qpos[:, :3] = pose[:, :3] - self._origins
            self._qpos[:, 3:7] = pose[:, [6, 3, 4, 5]]
            self._qvel[:, :3] = vel[:, :3]
            self._qvel[:, 3:6] = rotate_inverse(pose[:, 3:7], vel[:, 3:6])
        self._qpos[:, self._qpos_at] = data.joint_pos.torch
        self._qvel[:, self._qvel_at] = data.joint_vel.torch
        self._force[:] = data.applied_torque.torch[:, self._driven]
        if self._worlds.feet is not None:
            forces = self._worlds.feet.data.net_forces_w.torch[:, self._feet]
            for k, at in enumerate(self._feet_at):
                self._sensors[:, at] = (forces[:, k].norm(dim=1) > 0).float()
                self._sensors[:, at + 1 : at + 4] = forces[:, k]

    def write_back(self, dirty: wp.array) -> None:
        """Write the rows that events and resets changed; see the protocol."""
        bits = wp.to_torch(dirty)
        if bool((bits & DIRTY_MODEL).any()):
            self._fields.push()
        moved = ((bits & (DIRTY_STATE | DIRTY_VELOCITY)) != 0).nonzero().flatten()
        if len(moved):
            fresh = ((bits & DIRTY_STATE) != 0).nonzero().flatten()
            if len(fresh):
                self._worlds.scene.reset(fresh.int())
            self._write_state(moved)

    def _write_state(self, rows: torch.Tensor) -> None:
        robot, ids = self._worlds.robot, rows.int()
        if self._base:
            quat = self._qpos[rows, 3:7]
            quat = (quat / quat.norm(dim=1, keepdim=True))[:, [1, 2, 3, 0]]
            pose = torch.cat([self._qpos[rows, :3] + self._origins[rows], quat], dim=1)
            vel = torch.cat([self._qvel[rows, :3], rotate(quat, self._qvel[rows, 3:6])], dim=1)
            robot.write_root_link_pose_to_sim_index(root_pose=pose.contiguous(), env_ids=ids)
            robot.write_root_link_velocity_to_sim_index(root_velocity=vel.contiguous(), env_ids=ids)
        pos, speed = self._qpos[rows][:, self._qpos_at], self._qvel[rows][:, self._qvel_at]
        robot.write_joint_position_to_sim_index(position=pos.contiguous(), env_ids=ids)
        robot.write_joint_velocity_to_sim_index(velocity=speed.contiguous(), env_ids=ids)

    def explain(self, world: int, overflow: int, needed: tuple[int, int]) -> str:
        """Newton does not report which of its buffers was full."""
        return "sim.njmax or sim.nconmax may be too small for Newton"

    # -- randomized models -------------------------------------------------------------------------------------------

    def expand(self, field: str) -> wp.array:
        """Give a model field per-world values; see the protocol."""
        return self._fields.expand(field)

    def set_const(self, *, again: bool = False) -> None:
        """Newton derives its constants itself where masses change."""

    def wrenches(self) -> wp.array:
        """Not implemented for this engine."""
        raise ValueError("events: engine='isaac' applies no forces to bodies; use mujoco or mujoco_warp")

    # -- what this engine does not have ------------------------------------------------------------------------------

    def watch(self, field: str) -> wp.array:
        """Refused when the scene is opened."""
        raise ValueError(f"engine='isaac' does not have {field}")

    def look(self, dirty: wp.array) -> bool:
        """Nothing is watched."""
        self.write_back(dirty)
        return False

    def rays(self, origins: Any, directions: Any) -> Any:
        """Refused when the scene is opened."""
        raise ValueError("sensors: engine='isaac' casts no rays; use mujoco or mujoco_warp")

    def make_rays(self, count: int, *, ground_only: bool = False) -> Any:
        """Refused when the scene is opened."""
        return self.rays(None, None)

    def history(self) -> wp.array:
        """Refused when the scene is opened."""
        raise ValueError("engine='isaac' has no delays of MuJoCo's own")

    def warnings(self) -> None:
        """Newton keeps no warning count."""
        return None

    # -- state -------------------------------------------------------------------------------------------------------

    def get_state(self) -> np.ndarray:
        """Return (num_envs, nq + nv) float32; the solver's warm start is not part of it."""
        return torch.cat([self._qpos, self._qvel], dim=1).cpu().numpy()

    def set_state(self, state: np.ndarray) -> None:
        """Restore :meth:`get_state`'s array."""
        width = self.model.nq + self.model.nv
        if state.shape != (self.num_envs, width):
            raise ValueError(f"engine state has shape {state.shape}, wants {(self.num_envs, width)}")
        values = torch.from_numpy(np.ascontiguousarray(state, dtype=np.float32)).to(self.device)
        self._qpos.copy_(values[:, : self.model.nq])
        self._qvel.copy_(values[:, self.model.nq :])
        self._write_state(torch.arange(self.num_envs, device=self.device))

    def close(self) -> None:
        """End the simulation if this engine owns it."""
        self._worlds.close()


def rotate(quat_xyzw: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """Rotate vectors (N, 3) by quaternions (N, 4), x y z w."""
    axis, w = quat_xyzw[:, :3], quat_xyzw[:, 3:]
    t = 2.0 * torch.linalg.cross(axis, vector)
    return vector + w * t + torch.linalg.cross(axis, t)


def rotate_inverse(quat_xyzw: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """Rotate vectors (N, 3) by the inverse of quaternions (N, 4), x y z w."""
    return rotate(torch.cat([-quat_xyzw[:, :3], quat_xyzw[:, 3:]], dim=1), vector)

"""Isaac Lab's scene and Newton's physics behind the engine protocol, with a task's own terms and events.

Isaac Lab has names, MuJoCo numbers: joints, bodies and feet are matched by name once; the arrays of terms are copied
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
from robot_rl_envs.engines.isaac_scene import Worlds, open_worlds
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.quat import rotate_inverse

MASSES = ("body_mass", "body_inertia", "body_ipos")
GAINS = ("actuator_gainprm", "actuator_biasprm")
RANDOMIZED = (*MASSES, *GAINS, "geom_friction")


class IsaacEngine:
    """Isaac Lab on Newton; see :class:`robot_rl_envs.engine.Engine`."""

    name = "isaac"
    capturable = False

    def __init__(self, scene: Scene, *, num_envs: int, device: str, worlds: Worlds | None = None):
        """Open the worlds, or use those of an Isaac Lab environment: a running scene made of `isaac_scene.scene_cfg`.

        Raises:
            ValueError: Isaac Lab is missing, or the task needs a feature that it lacks.
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
        driven = [joint for joint in robot.joints if not joint.passive]
        limits = [joint.effort_limit for joint in driven]
        self._limits = torch.tensor(limits, dtype=torch.float32, device=self.device)
        self._held = index([k for k, joint in enumerate(driven) if not joint.by_speed])
        self._turned = index([k for k, joint in enumerate(driven) if joint.by_speed])
        if robot.feet:
            found = [str(name).rpartition("/")[2] for name in self._worlds.feet.sensor_names]
            self._feet = index([found.index(foot) for foot in robot.feet])
            self._feet_at = [int(at) for at in scene.foot_sensor]

    # -- stepping ----------------------------------------------------------------------------------------------------

    def step(self, substeps: int) -> None:
        """Advance every world by ``substeps`` physics steps."""
        w = self._worlds
        if self._servo:
            setters = (
                (self._held, w.robot.set_joint_position_target_index),
                (self._turned, w.robot.set_joint_velocity_target_index),
            )
            for columns, set_target in setters:
                if len(columns):
                    set_target(target=self._ctrl[:, columns].contiguous(), joint_ids=self._joint_ids[columns])
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
            self._qvel[:, 3:6] = rotate_inverse(self._qpos[:, 3:7], vel[:, 3:6])
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
            quat = quat / quat.norm(dim=1, keepdim=True)
            pose = torch.cat([self._qpos[rows, :3] + self._origins[rows], quat[:, [1, 2, 3, 0]]], dim=1)
            back = quat * quat.new_tensor([1.0, -1.0, -1.0, -1.0])
            vel = torch.cat([self._qvel[rows, :3], rotate_inverse(back, self._qvel[rows, 3:6])], dim=1)
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

    # -- missing from this engine -----------------------------------------------------------------------------------

    def watch(self, field: str) -> wp.array:
        """Refused when the scene is opened."""
        raise ValueError(f"engine='isaac' does not have {field}")

    def look(self, dirty: wp.array) -> bool:
        """Nothing is watched."""
        self.write_back(dirty)
        return False

    def make_rays(self, count: int, *, ground_only: bool = False) -> Any:
        """Refused when the scene is opened."""
        raise ValueError("sensors: engine='isaac' casts no rays; use mujoco or mujoco_warp")

    def history(self) -> wp.array:
        """Refused when the scene is opened."""
        raise ValueError("engine='isaac' does not have MuJoCo's own delays")

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


class ModelFields:
    """Per-world values of model fields under MuJoCo's names, and their way to Isaac Lab.

    Sliding friction, masses, inertias, centres of mass and the gains of position servos can be randomized.
    """

    def __init__(self, scene: Scene, worlds: Worlds, num_envs: int, device: str):
        """Match bodies and joints by name."""
        self._model, self._worlds, self._num_envs, self._device = scene.model, worlds, num_envs, device
        self._arrays: dict[str, wp.array] = {}
        self._pushed: dict[str, torch.Tensor] = {}
        names = list(worlds.robot.body_names)
        self._bodies = torch.tensor([int(scene.model.body(name).id) for name in names], device=device)
        joints = list(worlds.robot.joint_names)
        self._joints = torch.tensor([joints.index(name) for name in scene.actuated], dtype=torch.int32, device=device)
        self._servo = scene.actions.kind == "position" and not scene.actions.actuator.explicit

    def expand(self, field: str) -> wp.array:
        """Return the values of a field, (num_envs, n, k) float32, which `push` writes to Isaac Lab."""
        if field not in RANDOMIZED or (field in GAINS and not self._servo):
            raise ValueError(
                f"events: engine='isaac' does not randomize {field}; it takes {', '.join(RANDOMIZED)}; "
                "leave the event out, or use mujoco"
            )
        if field not in self._arrays:
            value = np.asarray(getattr(self._model, field), dtype=np.float32)
            value = value.reshape(value.shape[0], -1)
            tiled = np.repeat(value[None], self._num_envs, axis=0)
            self._arrays[field] = wp.array(tiled, dtype=wp.float32, device=self._device)
            self._pushed[field] = wp.to_torch(self._arrays[field]).clone()
        return self._arrays[field]

    def push(self) -> None:
        """Write the fields that have changed since the last call."""
        changed = set()
        for field, array in self._arrays.items():
            value = wp.to_torch(array)
            if not torch.equal(value, self._pushed[field]):
                changed.add(field)
                self._pushed[field].copy_(value)
        if changed & set(MASSES):
            self._push_masses()
        if changed & set(GAINS):
            self._push_gains()
        if "geom_friction" in changed:
            self._push_friction()

    def _of(self, field: str) -> torch.Tensor:
        return wp.to_torch(self.expand(field))

    def _push_masses(self) -> None:
        """Write masses, centres of mass and the inertias about them along the body's own axes."""
        import mujoco

        robot = self._worlds.robot
        turns = np.zeros((self._model.nbody, 9))
        for body in range(self._model.nbody):
            mujoco.mju_quat2Mat(turns[body], self._model.body_iquat[body])
        turn = torch.tensor(turns.reshape(-1, 3, 3), dtype=torch.float32, device=self._device)[self._bodies]
        diagonal = torch.diag_embed(self._of("body_inertia")[:, self._bodies])
        inertia = turn @ diagonal @ turn.transpose(1, 2)
        robot.set_masses_index(masses=self._of("body_mass")[:, self._bodies, 0].contiguous())
        robot.set_coms_index(coms=self._of("body_ipos")[:, self._bodies].contiguous())
        robot.set_inertias_index(inertias=inertia.flatten(2).contiguous())

    def _push_gains(self) -> None:
        """Write servo gains: kp and kd are the last two numbers of the bias."""
        robot, bias = self._worlds.robot, self._of("actuator_biasprm")
        stiffness, damping = -bias[:, :, 1], -bias[:, :, 2]
        robot.write_joint_stiffness_to_sim_index(stiffness=stiffness.contiguous(), joint_ids=self._joints)
        robot.write_joint_damping_to_sim_index(damping=damping.contiguous(), joint_ids=self._joints)

    def _push_friction(self) -> None:
        """Write the sliding friction of every shape that collides."""
        import mujoco
        from newton import ModelFlags

        manager, view = self._worlds.manager, self._worlds.robot.root_view
        binding = wp.to_torch(view.get_attribute("shape_material_mu", manager.get_model())[:, 0])
        for shape, name in enumerate(shape_names(view)):
            geom = mujoco.mj_name2id(self._model, mujoco.mjtObj.mjOBJ_GEOM, name)
            if geom >= 0:
                binding[:, shape] = self._of("geom_friction")[:, geom, 0]
        manager.add_model_change(ModelFlags.SHAPE_PROPERTIES)


def shape_names(view: Any) -> list[str]:
    """Return the last names of a robot's shapes, in the order of Newton's view."""
    return [str(name).rpartition("/")[2] for name in view.shape_names]

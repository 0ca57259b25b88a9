"""Randomized model fields on their way to Isaac Lab: MuJoCo's arrays, world by world, and what they mean there."""

# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import warp as wp

from robot_rl_envs.engines.isaac_scene import Worlds
from robot_rl_envs.entity.scene import Scene

MASSES = ("body_mass", "body_inertia", "body_ipos")
GAINS = ("actuator_gainprm", "actuator_biasprm")
FIELDS = (*MASSES, *GAINS, "geom_friction")


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
        if field not in FIELDS or (field in GAINS and not self._servo):
            raise ValueError(
                f"events: engine='isaac' does not randomize {field}; it takes {', '.join(FIELDS)}; "
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
        """Write servo gains: kp is the gain, kd the last number of the bias."""
        robot = self._worlds.robot
        stiffness, damping = self._of("actuator_gainprm")[:, :, 0], -self._of("actuator_biasprm")[:, :, 2]
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

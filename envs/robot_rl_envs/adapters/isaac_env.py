"""A native task as an environment of Isaac Lab: a ``DirectRLEnv`` around the task's terms.

Isaac Lab makes the scene and steps the physics; observations, rewards, commands, resets and randomization are the
task's own, in their own kernels, so that a policy means the same in both. "policy" is the group "actor".
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from isaaclab.envs import DirectRLEnv, DirectRLEnvCfg
from isaaclab.utils import configclass

from robot_rl_envs.engines.isaac import IsaacEngine
from robot_rl_envs.engines.isaac_scene import check_scene, find_parts, quiet, scene_cfg, silence, sim_cfg, write_assets
from robot_rl_envs.entity.scene import make_scene
from robot_rl_envs.env import Env
from robot_rl_envs.task import Task

GROUPS = {"actor": "policy", "critic": "critic"}
"""Our names of the observation groups, and Isaac Lab's."""


@configclass
class RobotEnvCfg(DirectRLEnvCfg):
    """The configuration of a native task for Isaac Lab, made by `make_cfg`.

    Attributes:
        task: the :class:`~robot_rl_envs.task.Task`.
        folder: of the USD files, deleted with the environment.
    """

    task: Any = None
    folder: str = ""


def make_cfg(task: Task, num_envs: int | None = None, device: str = "cpu") -> RobotEnvCfg:
    """Return the configuration of an environment of ``task``, its robot and ground written as USD.

    ``num_envs`` is by default the task's own, ``device`` "cpu" or "cuda[:k]".

    Raises:
        ValueError: the task needs a feature that Isaac Lab's engine lacks.
    """
    scene = make_scene(task)
    check_scene(scene)
    folder = write_assets(scene)
    worlds = task.num_envs[int(device != "cpu")] if num_envs is None else num_envs
    cfg = RobotEnvCfg(
        decimation=task.sim.decimation,
        episode_length_s=task.episode_length_s,
        scene=scene_cfg(scene, worlds, folder),
        sim=sim_cfg(scene, device),
        action_space=len(scene.actuated),
        observation_space=0,
        state_space=0,
        seed=0,
        folder=str(folder),
    )
    cfg.task = task  # Given above, Isaac Lab would copy it, and kernels that were compiled for it cannot be.
    cfg.sim.render_interval = task.sim.decimation
    cfg.observation_space, cfg.state_space = _widths(task, scene)
    return cfg


def _widths(task: Task, scene: Any) -> tuple[int, int]:
    from robot_rl_envs.codegen.layout import make_layout

    widths = make_layout(task, scene).widths
    return widths["actor"], widths.get("critic", 0)


class RobotEnv(DirectRLEnv):
    """Worlds of a native task, stepped by Isaac Lab.

    Attributes:
        worlds: the :class:`~robot_rl_envs.env.Env` with everything that terms read; None while it is being made.
    """

    cfg: RobotEnvCfg
    worlds: Env | None = None

    def __init__(self, cfg: RobotEnvCfg, render_mode: str | None = None, **kwargs: Any):
        """Make the scene and the task's terms on it, with the time step and episode length of ``cfg``."""
        cfg.sim.physics.use_cuda_graph = "cuda" in cfg.sim.device
        self._length = torch.zeros(0)
        task = cfg.task
        task.sim.timestep, task.sim.decimation = cfg.sim.dt, cfg.decimation
        task.episode_length_s = cfg.episode_length_s
        with quiet():
            super().__init__(cfg, render_mode, **kwargs)
        silence(self.sim)

        def engine(scene: Any) -> IsaacEngine:
            parts = find_parts(self.sim, self.scene, Path(cfg.folder), owned=False)
            return IsaacEngine(scene, num_envs=self.num_envs, device=str(self.device), worlds=parts)

        self.worlds = Env(task, num_envs=self.num_envs, device=str(self.device), engine=engine, seed=int(cfg.seed or 0))
        self.reward_buf = self.worlds.state.reward

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset every world. Random streams depend on ``cfg.seed``; ``seed`` is ignored."""
        assert self.worlds is not None
        self.obs_buf = self._named(self.worlds.reset())
        return self.obs_buf, self.extras

    def step(self, action: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Apply ``action`` for one control period.

        Returns:
            Observation groups, rewards, and whether each world terminated or reached its time limit, (N,) bool each; in
            the extras "log" and, with ``cfg.compute_final_obs``, "final_obs": its rows are the last observations of
            ended episodes.
        """
        assert self.worlds is not None
        obs, self.reward_buf, done, extras = self.worlds.step(action.to(self.device))
        self.obs_buf = self._named(obs)
        self.reset_time_outs = extras["time_outs"].bool()
        self.reset_terminated = done.bool() & ~self.reset_time_outs
        self.reset_buf = self.reset_terminated | self.reset_time_outs
        self.common_step_counter += 1
        self._sim_step_counter += self.cfg.decimation
        self.extras = {"log": extras["log"], "time_outs": self.reset_time_outs}
        if self.cfg.compute_final_obs:
            self.extras["final_obs"] = self._named(extras["final_obs"])
        return self.obs_buf, self.reward_buf, self.reset_terminated, self.reset_time_outs, self.extras

    @property
    def episode_length_buf(self) -> torch.Tensor:
        """(N,) control steps towards the time limit."""
        return self._length if self.worlds is None else self.worlds.episode_length_buf

    @episode_length_buf.setter
    def episode_length_buf(self, value: torch.Tensor) -> None:
        if self.worlds is None:
            self._length = value
        else:
            self.worlds.episode_length_buf = value

    def describe_policy(self) -> dict[str, Any]:
        """Return the task's own description of a policy's inputs and outputs, for the exported contract."""
        assert self.worlds is not None
        return self.worlds.describe_policy()

    def robot_state(self) -> dict[str, torch.Tensor]:
        """Return the robot's raw signals without noise, one row a world."""
        assert self.worlds is not None
        return self.worlds.robot_state()

    def close(self) -> None:
        """End the simulation and delete the USD files."""
        if self.worlds is not None:
            self.worlds.close()
            self.worlds = None
        super().close()
        shutil.rmtree(self.cfg.folder, ignore_errors=True)

    @staticmethod
    def _named(groups: Any) -> dict[str, torch.Tensor]:
        return {GROUPS.get(str(name), str(name)): groups[name] for name in groups.keys()}  # noqa: SIM118 (a TensorDict)

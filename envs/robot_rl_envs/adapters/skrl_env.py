"""A task's environment in skrl's form; the critic group is skrl's state, so that asymmetric agents train.

    from robot_rl_envs.make import make_env
    from robot_rl_envs.adapters.skrl_env import SkrlEnv
    from robot_rl_tasks.registry import get_task
    env = SkrlEnv(make_env(get_task("go2_flat"), num_envs=512, seed=1))

It needs skrl 2, which the extra ``runners`` brings.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import torch
from skrl.envs.wrappers.torch import Wrapper

from robot_rl_envs.adapters.shared import PolicyGroups, action_box
from robot_rl_envs.env import Env


class SkrlEnv(Wrapper):
    """Worlds that reset themselves; skrl's trainers use them as a vector environment."""

    def __init__(self, env: Env, *, observation: str = "actor", state: str | None = "critic") -> None:
        """Wrap; see :class:`.shared.PolicyGroups`."""
        super().__init__(env)
        self._task_env, self._groups = env, PolicyGroups(env, observation, state)
        self._actions = action_box(env)
        self._fresh = False

    @property
    def observation_space(self) -> gymnasium.Space:
        """A Box (D,) without bounds."""
        return self._groups.observations

    @property
    def state_space(self) -> gymnasium.Space | None:
        """The same of the critic's group, or None."""
        return self._groups.states

    @property
    def action_space(self) -> gymnasium.Space:
        """A Box (A,); the task clips actions to it."""
        return self._actions

    def reset(self) -> tuple[torch.Tensor, dict[str, Any]]:
        """Reset all worlds the first time; later only return the observations, since worlds reset themselves."""
        if not self._fresh:
            self._task_env.reset()
            self._fresh = True
        return self._groups.observe(), {}

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, Any]:
        """Apply actions (N, A) for one control period.

        Returns:
            Observations (N, D), rewards, terminated and truncated, each (N, 1), and an info: "final_obs" and "valid" as
            of `robot_rl_envs.env.Env.step`.
        """
        _, rewards, dones, extras = self._task_env.step(actions)
        truncated = extras["time_outs"]
        info = {"final_obs": self._groups.observe(extras["final_obs"]), "valid": extras["valid"].clone()}
        flags = [flag.clone().view(-1, 1) for flag in (dones & ~truncated, truncated)]
        return self._groups.observe(), rewards.clone().view(-1, 1), *flags, info

    def state(self) -> torch.Tensor | None:
        """The critic's observations (N, S), or None."""
        return self._groups.state()

    def render(self, *_: Any, **__: Any) -> None:
        """Do nothing: robot-rl play and robot-rl video show a task."""

    def close(self) -> None:
        """Close the worlds."""
        self._task_env.close()

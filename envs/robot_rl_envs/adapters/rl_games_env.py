"""A task's environment in the form of rl_games; the critic group goes to its central value function.

    from robot_rl_envs.adapters.rl_games_env import register
    from robot_rl_tasks.registry import get_task
    register("go2_flat", get_task("go2_flat"))  # in the configuration: `env_name: go2_flat`, `num_actors: 512`

It needs rl_games 1.6, which the extra ``runners`` brings.
"""

from __future__ import annotations

from typing import Any

import torch
from rl_games.common import env_configurations, vecenv
from rl_games.common.ivecenv import IVecEnv

from robot_rl_envs.adapters.shared import PolicyGroups, action_box, make_env_of_one
from robot_rl_envs.env import Env
from robot_rl_envs.task import Task

VECENV = "ROBOT_RL"


class RlGamesEnv(IVecEnv):
    """Worlds that reset themselves, around ``env``."""

    def __init__(self, env: Env, *, observation: str = "actor", state: str | None = "critic") -> None:
        """Wrap; see :class:`.shared.PolicyGroups`."""
        self.env, self._groups = env, PolicyGroups(env, observation, state)

    def get_env_info(self) -> dict[str, Any]:
        """Return the spaces."""
        info = {"observation_space": self._groups.observations, "action_space": action_box(self.env), "agents": 1}
        return info | {"state_space": self._groups.states, "use_global_observations": self._groups.states is not None}

    def reset(self) -> Any:
        """Reset all worlds; return the observations."""
        self.env.reset()
        return self._shown()

    def step(self, actions: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Apply actions (N, A) for one control period.

        Returns:
            Observations, rewards (N,), dones (N,) uint8, and an info with "time_outs" (N,) bool, for `value_bootstrap`.
        """
        _, rewards, dones, extras = self.env.step(actions)
        return self._shown(), rewards.clone(), dones.to(torch.uint8), {"time_outs": extras["time_outs"].clone()}

    def close(self) -> None:
        """Close the worlds."""
        self.env.close()

    def _shown(self) -> Any:
        seen, state = self._groups.observe(), self._groups.state()
        return seen if state is None else {"obs": seen, "states": state}


def register(name: str, task: Task, **options: Any) -> None:
    """Register a task with rl_games under the ``env_name`` of a configuration.

    The configuration's `num_actors` is the number of worlds, its `env_config` may contain `observation`, `state` and
    more ``options`` of `robot_rl_envs.make.make_env`, such as device, engine and seed.
    """

    def make(_: str, num_actors: int, **more: Any) -> RlGamesEnv:
        groups = {key: more.pop(key) for key in ("observation", "state") if key in more}
        return RlGamesEnv(make_env_of_one(task, num_envs=num_actors, **(options | more)), **groups)

    vecenv.register(f"{VECENV}:{name}", make)
    env_configurations.register(name, {"vecenv_type": f"{VECENV}:{name}", "env_creator": None})

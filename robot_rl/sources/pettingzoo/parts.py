"""A robot divided among agents: each sees and drives a part of it, as MaMuJoCo has it, in our worlds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from robot_rl.sources.team_rows import TeamRows

SEEN = "actor"
"""The group of the robot that is divided; the agents' critic sees the same parts, of all of them."""
PASSED_ON = ("pop_metrics", "pop_notices", "state_dict", "load_state_dict", "quarantine_dir", "scene", "close")
"""What the robot's own environment is asked for."""


class PartsEnv(TeamRows, VecEnv):
    """The worlds of a task of one robot, with a row for each of its agents; `env` is the environment of the robot."""

    def __init__(self, env: Any, seen: Mapping[str, Sequence[int]], driven: Mapping[str, Sequence[int]]) -> None:
        """Divide a robot: for each agent the components of the group "actor" that it sees, and the actions it gives.

        Raises:
            ValueError: An action is given by no agent, or by several.
        """
        given = sorted(index for part in driven.values() for index in part)
        if given != list(range(env.num_actions)):
            raise ValueError(f"driven={given}: must give each of the {env.num_actions} actions once")
        self.env: Any = env
        self.device = str(env.device)
        self._set_team({name: (len(seen[name]), len(driven[name])) for name in seen}, env.num_envs)
        self._seen = _table(seen, self._width, self.device)
        self._driven = _table(driven, self.num_actions, self.device)
        self.cfg: Any = env.cfg
        self.step_dt, self.max_episode_length = env.step_dt, env.max_episode_length

    @property
    def episode_length_buf(self) -> Tensor:
        """(N T,) control steps towards the time limit, a copy."""
        return self.env.episode_length_buf.repeat_interleave(self.team_size)

    @episode_length_buf.setter
    def episode_length_buf(self, value: Tensor) -> None:
        self.env.episode_length_buf = value.view(self.num_worlds, -1)[:, 0]

    def _parts(self, obs: TensorDict) -> TensorDict:
        # A column of zeros for agents that see less than others.
        whole = torch.nn.functional.pad(obs[SEEN], (0, 1))
        rows = whole[:, self._seen].flatten(0, 1)
        return TensorDict({SEEN: rows, "critic": rows}, batch_size=[self.num_envs], device=self.device)

    def get_observations(self) -> TensorDict:
        """Return the groups "actor" and "critic", (N T, width) each: each agent's part of the robot's."""
        return self._parts(self.env.get_observations())

    def reset(self) -> TensorDict:
        """Reset every world; return the first observations."""
        return self._parts(self.env.reset())

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """Apply the agents' actions (N T, num_actions) for one control period; all agents have the robot's reward."""
        whole = torch.zeros(self.num_worlds, self.env.num_actions + 1, device=self.device)
        rows = actions.view(self.num_worlds, -1)
        whole[:, self._driven.flatten()] = rows
        obs, reward, done, extras = self.env.step(whole[:, :-1])
        each = {
            name: extras[name].repeat_interleave(self.team_size) for name in ("time_outs", "valid") if name in extras
        }
        each |= {"final_obs": self._parts(extras["final_obs"]), "log": {}}
        return self._parts(obs), reward.repeat_interleave(self.team_size), done.repeat_interleave(self.team_size), each

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the robot's own environment."""
        if name in PASSED_ON:
            return getattr(self.__dict__["env"], name)
        raise AttributeError(name)


def _table(parts: Mapping[str, Sequence[int]], width: int, device: str) -> Tensor:
    """Return the indices (T, width) of each agent; the missing ones are that of a further column."""
    rows = [[*part, *[-1] * (width - len(part))] for part in parts.values()]
    return torch.tensor(rows, dtype=torch.int64, device=device)

"""PettingZoo's parallel environments for the learner: several of one kind, a row for each agent that there may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from robot_rl.errors import UserError
from robot_rl.sources.host import HostEnv, Statistics
from robot_rl.sources.quarantine import Quarantine
from robot_rl.sources.team_rows import TeamRows


class ZooEnv(TeamRows, HostEnv):
    """Worlds of a `pettingzoo.ParallelEnv`, with a row for each agent; a return is the mean of the agents'.

    Agents that are not in an episode, or no longer, take no part: ``extras["valid"]`` is False there. A world with a
    number that is not finite is quarantined (docs/quarantine.md): the sample of no agent is valid, and it is reset.
    """

    def __init__(self, make: Callable[[], Any], num_worlds: int, *, seed: int = 0, device: str = "cpu") -> None:
        """Make the worlds.

        Raises:
            UserError: An agent's observations or actions are not vectors of numbers.
        """
        self.envs = [make() for _ in range(num_worlds)]
        first = self.envs[0]
        self.device = device
        self._set_team({agent: _sizes(first, agent) for agent in first.possible_agents}, num_worlds)
        self._bounds = {agent: (first.action_space(agent).low, first.action_space(agent).high) for agent in self.agents}
        fps = float((first.metadata or {}).get("render_fps") or 0)
        self.step_dt, self.max_episode_length = (1.0 / fps if fps > 0 else 1.0), 0
        self.cfg: Any = first
        self._statistics = Statistics(num_worlds, self.step_dt)
        self._quarantine = Quarantine(str(first), num_worlds, self.team_size)
        self._obs = np.zeros((num_worlds, self.team_size, self._width), np.float32)
        self._in = np.zeros((num_worlds, self.team_size), bool)
        for world in range(num_worlds):
            self._restart(world, seed + world)
        self._begin(np.ones(num_worlds, bool))

    def _restart(self, world: int, seed: int | None = None) -> None:
        observed, _ = self.envs[world].reset(seed=seed)
        self._read(self._obs[world], observed)
        self._in[world] = [agent in observed for agent in self.agents]

    def _begin(self, worlds: np.ndarray) -> None:
        """Begin an episode in worlds (N,) bool; one with a first observation that is not finite stays in quarantine."""
        self._quarantine.begin(worlds, self._unsound(self._obs))
        self._obs[self._quarantine.broken > 0] = 0.0

    def _unsound(self, obs: np.ndarray) -> np.ndarray:
        rows = {f"the observation of {agent}": torch.from_numpy(obs[:, k]) for k, agent in enumerate(self.agents)}
        return self._quarantine.check("observation", rows)

    def _read(self, rows: np.ndarray, observed: dict[str, Any]) -> None:
        """Write observations by agent into the rows (T, width) of a world; the others become zeros."""
        rows[:] = 0.0
        for k, agent in enumerate(self.agents):
            if agent in observed:
                with np.errstate(over="ignore"):  # What is beyond float32 is quarantined.
                    rows[k, : self._sizes[agent][0]] = np.asarray(observed[agent], np.float32).ravel()

    def _groups(self, rows: np.ndarray) -> TensorDict:
        flat = torch.from_numpy(rows.reshape(self.num_envs, -1).copy()).to(self.device)
        return TensorDict({"actor": flat, "critic": flat}, batch_size=[self.num_envs], device=self.device)

    def get_observations(self) -> TensorDict:
        """Return the groups "actor" and "critic", (N T, width) each."""
        return self._groups(self._obs)

    def reset(self) -> TensorDict:
        """Reset every world; return the first observations."""
        for world in range(self.num_worlds):
            self._restart(world)
        self._begin(np.ones(self.num_worlds, bool))
        self._statistics.clear()
        return self.get_observations()

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """Apply actions (N T, num_actions), clipped to each agent's box; see :class:`ZooEnv` for the rows."""
        given = actions.detach().cpu().numpy().reshape(self.num_worlds, self.team_size, -1)
        shape = (self.num_worlds, self.team_size)
        reward, ended, cut = np.zeros(shape, np.float32), np.zeros(shape, bool), np.zeros(shape, bool)
        acted, final = self._in.copy(), np.zeros_like(self._obs)
        is_lost = self._quarantine.check("action", {"an action": torch.from_numpy(given)})
        given = np.where(is_lost[:, None, None], 0.0, given)
        for world, env in enumerate(self.envs):
            # Agents that terminated before others take no action any more.
            live = {a: self._clipped(a, given[world, k]) for k, a in enumerate(self.agents) if acted[world, k]}
            observed, rewards, terminations, truncations, _ = env.step(live)
            self._read(self._obs[world], observed)
            for k, agent in enumerate(self.agents):
                with np.errstate(over="ignore"):
                    reward[world, k] = rewards.get(agent, 0.0)
                ended[world, k] = bool(terminations.get(agent, False)) and acted[world, k]
                cut[world, k] = bool(truncations.get(agent, False)) and acted[world, k] and not ended[world, k]
            final[world] = self._obs[world]
            self._in[world] = [agent in env.agents for agent in self.agents]
            self._obs[world][~self._in[world]] = 0.0
        broken = self._find_broken(is_lost, reward, final, np.zeros(self.num_worlds, bool))
        reward[broken], ended[broken], cut[broken], final[broken] = 0.0, acted[broken], False, 0.0
        over = broken | ~self._in.any(axis=1)
        shares, terminated = reward.sum(1) / np.maximum(acted.sum(1), 1), ended.any(1) & over & ~broken
        self._statistics.drop(broken)
        self._statistics.add(shares, over & ~broken, terminated, broken)
        for world in np.flatnonzero(over):
            self._restart(int(world))
        self._begin(over)
        flags = {"time_outs": cut, "valid": acted & ~broken[:, None], "acted": acted}
        flags["ended"] = np.broadcast_to(over[:, None], shape)
        extras: dict[str, Any] = {
            name: torch.from_numpy(value.reshape(-1).copy()).to(self.device) for name, value in flags.items()
        }
        done = torch.from_numpy((ended | cut).reshape(-1)).to(self.device)
        extras |= {"final_obs": self._groups(final), "log": {}}
        return self._groups(self._obs), torch.from_numpy(reward.reshape(-1)).to(self.device), done, extras

    def _clipped(self, agent: str, action: np.ndarray) -> np.ndarray:
        low, high = self._bounds[agent]
        size = self._sizes[agent][1]
        return np.clip(action[:size].reshape(low.shape), low, high).astype(np.float32)

    def close(self) -> None:
        """Close the worlds."""
        for env in self.envs:
            env.close()


def _sizes(env: Any, agent: str) -> tuple[int, ...]:
    """Return the components of an agent's observation and action."""
    from gymnasium.spaces import Box

    spaces = {"observation_space": env.observation_space(agent), "action_space": env.action_space(agent)}
    for name, space in spaces.items():
        if not isinstance(space, Box):
            raise UserError(f"{name}({agent}): is {space}, must be a Box of numbers")
    return tuple(int(np.prod(space.shape)) for space in spaces.values())

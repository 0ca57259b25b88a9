"""Adapt a `DirectMARLEnv` of Isaac Lab, with several agents in a world, to the environment that team learners take.

Isaac Lab resets a world when all its agents have terminated, or all are out of time. An agent that ends before takes no
part until then, as in PettingZoo's parallel environments; so does one without an observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from robot_rl.errors import UserError
from robot_rl.sources.isaaclab.adapter import Advance, LabEnv, read_actions
from robot_rl.sources.team_rows import TeamRows

SEEN, STATE = "policy", "state"
"""The observation groups: the observation of each agent, and the world's state if the environment has one."""


class IsaacTeamEnv(TeamRows, LabEnv):
    """Worlds of a `DirectMARLEnv`, with a row for each agent. See `LabEnv` for the arguments.

    The group "policy" has the agents' observations, filled up with zeros where others see more. The group "state" has
    the world's state, the same in the rows of all its agents, where `state_space` of the configuration is not 0. Rows
    of agents that take no part are zeros.

    Raises:
        UserError: An agent's observations or actions are not numbers.
    """

    def __init__(self, env: Any, *, name: str, **options: Any) -> None:
        super().__init__(env, name=name, **options)
        self._set_team({agent: _sizes(env, agent, name) for agent in env.possible_agents}, int(env.num_envs))
        self._everyone = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
        states = getattr(env.cfg, "state_space", 0)
        self._has_state = bool(states)
        self._last_state: _LastState | None = None
        if self._has_state and not (isinstance(states, int) and states < 0):
            self._last_state = env._reset_idx = _LastState(env)
        self.reset()

    def reset(self, seed: int | None = None) -> TensorDict:
        """Reset all worlds and return the first observations; without a seed their random streams continue."""
        obs = super().reset(seed)
        self._acts = self._present
        return obs

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """Apply actions (N T, num_actions) for one step; see `LabEnv.step`.

        Further extras are "valid" and "acted" (N T,), the agent took part; "ended" (N T,), the world's episode is over.
        """
        acted = self._acts
        obs, reward, done, extras = super().step(actions)
        over = self._rows(self._over)
        self._acts = self._present & (~self._out | over)
        blank = ~self._acts
        self._obs = TensorDict(
            {str(key): group.masked_fill(blank[:, None], 0.0) for key, group in obs.items()},
            batch_size=[self.num_envs],
            device=self.device,
        )
        extras |= {"valid": acted, "acted": acted, "ended": over}
        return self._obs, reward.masked_fill(~acted, 0.0), done & acted, extras

    @property
    def episode_length_buf(self) -> Tensor:
        """(N T,) steps since the reset of each agent's world, a copy."""
        return self._rows(self.env.episode_length_buf)

    @episode_length_buf.setter
    def episode_length_buf(self, value: Tensor) -> None:
        self.env.episode_length_buf[:] = value.view(self.num_worlds, -1)[:, 0]

    def _begin(self, seed: int | None) -> Mapping[str, Any]:
        obs, extras = self.env.reset(seed=seed)
        self._pop(extras)
        self._present = self._who(obs)
        return self._grouped(obs, self._state())

    def _advance(self, actions: Tensor) -> Advance:
        obs, reward, terminated, truncated, extras = self.env.step(self._to_env(actions))
        final, log = self._pop(extras)
        ended, cut = (self._join(flags).bool() for flags in (terminated, truncated))
        self._present, self._out = self._who(obs), ended | cut
        return Advance(
            obs=self._grouped(obs, self._state()),
            final=None if final is None else self._grouped(final, self._state_before(final)),
            reward=torch.where(self._acts, self._join(reward).float(), 0.0),
            terminated=ended & self._acts,
            truncated=cut & self._acts,
            was_reset=self.env.reset_buf.bool().clone(),
            log=log,
        )

    def _pop(self, extras: dict[str, Any]) -> tuple[dict[str, Tensor] | None, dict[str, Any]]:
        """Remove the observations before a reset, and the log, from Isaac Lab's extras and return them."""
        log, final = dict(extras.pop("log", None) or {}), {}
        for agent in self.agents:
            agent_extras = extras.get(agent) or {}
            log |= {f"{agent}/{key}": value for key, value in (agent_extras.pop("log", None) or {}).items()}
            if (last := agent_extras.pop("final_obs", None)) is not None:
                final[agent] = last
        return final or None, log

    def _grouped(self, obs: Mapping[str, Tensor], state: Tensor | None) -> dict[str, Tensor]:
        """Return the groups (N T, ...) from observations by agent and the state (N, S)."""
        rows = torch.zeros(self.num_worlds, self.team_size, self._width, device=self.device)
        for place, agent in enumerate(self.agents):
            if agent in obs:
                rows[:, place, : self._sizes[agent][0]] = obs[agent].flatten(1)
        groups = {SEEN: rows.flatten(0, 1)}
        return groups if state is None else groups | {STATE: self._rows(state.flatten(1))}

    def _who(self, obs: Mapping[str, Tensor]) -> Tensor:
        """Return which rows (N T,) have an observation."""
        if len(obs) == self.team_size:  # As good as always: nothing is copied to the device.
            return self._everyone
        return torch.tensor([agent in obs for agent in self.agents], device=self.device).repeat(self.num_worlds)

    def _state(self) -> Tensor | None:
        """Return the worlds' state (N, S) now, of the next episode if one ended."""
        return self.env.state() if self._has_state else None

    def _state_before(self, final: Mapping[str, Tensor]) -> Tensor | None:
        """Return the worlds' state (N, S) before a reset, from the observations before it if it consists of them."""
        if self._last_state is not None:
            return self._last_state.value
        return torch.cat([final[agent].flatten(1) for agent in self.agents], dim=1) if self._has_state else None

    def _join(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return the rows (N T,) of values (N,) by agent; those of a missing agent are 0."""
        nothing = torch.zeros_like(next(iter(values.values())))
        return torch.stack([values.get(agent, nothing) for agent in self.agents], dim=1).flatten()

    def _to_env(self, actions: Tensor) -> dict[str, Tensor]:
        given = self._clipped(actions.to(self.device)).view(self.num_worlds, self.team_size, -1)
        return {agent: given[:, place, : self._sizes[agent][1]] for place, agent in enumerate(self.agents)}

    def _worlds(self, rows: Tensor) -> Tensor:
        return rows.view(self.num_worlds, -1).any(dim=1)

    def _rows(self, worlds: Tensor) -> Tensor:
        return worlds.repeat_interleave(self.team_size, dim=0)


class _LastState:
    """An environment's `_reset_idx`, which keeps the state before it: Isaac Lab only has the next episode's."""

    def __init__(self, env: Any) -> None:
        self._env, self._reset = env, env._reset_idx
        self.value: Tensor | None = None

    def __call__(self, env_ids: Any) -> Any:
        """Keep the state of all worlds, and reset some."""
        # Before the first step an environment may have none.
        self.value = self._env._get_states().clone() if getattr(self._env, "common_step_counter", 0) else None
        return self._reset(env_ids)


def _sizes(env: Any, agent: str, name: str) -> tuple[int, int]:
    """Return the components of an agent's observation and action."""
    seen = env.observation_spaces[agent]
    if type(seen).__name__ != "Box":
        raise UserError("task", name, f"agent {agent} observes a {type(seen).__name__}", "numbers (Box) can be learned")
    size, choices = read_actions(env.action_spaces[agent], name)
    if choices is not None:
        raise UserError("task", name, f"the actions of agent {agent} are choices", "those of a team are numbers (Box)")
    return int(torch.Size(seen.shape).numel()), size

"""A team's task as one of PettingZoo's parallel environments: one world, a dictionary entry for each robot.

from robot_rl_envs.adapters.pettingzoo_env import TeamParallelEnv

env = TeamParallelEnv(get_task("go2_pair_carry"))
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Space
from pettingzoo import ParallelEnv

from robot_rl_envs.make import make_env
from robot_rl_envs.task import Task


class TeamParallelEnv(ParallelEnv):
    """One world of a task with several robots.

    Robots that drop out leave :attr:`agents`; a robot that joins later is there from its first observation on.

    Attributes:
        possible_agents: the robots' names.
        agents: those that take part.
    """

    metadata: dict[str, Any] = {"name": "robot_rl_team", "render_modes": []}  # noqa: RUF012  (as PettingZoo has it)

    def __init__(self, task: Task, *, observation: str = "actor", seed: int = 0, **options: Any) -> None:
        """Build the world.

        Args:
            task: a task with ``robots``.
            observation: the group that the agents see.
            seed: of the world, where :meth:`reset` is given none.
            options: of :func:`robot_rl_envs.make.make_env`, such as engine.

        Raises:
            ValueError: the task has one robot, or no such group.
        """
        if not task.robots:
            raise ValueError(f"task={task.name!r}: has one robot; use its Gymnasium environment")
        self._task, self._group, self._options = task, observation, options
        self.metadata = {**type(self).metadata, "name": task.name}
        self._build(seed)
        groups = [str(name) for name in self._env.get_observations().keys()]  # noqa: SIM118  (a TensorDict)
        if observation not in groups:
            raise ValueError(f"observation={observation!r}: must be one of {', '.join(groups)}")
        self.possible_agents = list(self._env.agents)
        self.agents: list[str] = []
        clip = task.actions.clip
        crews = self._env.crews.items()
        widths = {role: crew.out[observation].shape[1] for role, crew in crews if observation in crew.out}
        sizes = {
            role: (widths.get(role, self._env.get_observations()[observation].shape[1]), crew.num_actions)
            for role, crew in crews
        }
        self._shapes = {agent: sizes[role] for agent, role in zip(self._env.agents, self._env.roles, strict=True)}
        self.observation_spaces: dict[str, Space] = {
            a: Box(-np.inf, np.inf, (s[0],), np.float32) for a, s in self._shapes.items()
        }
        self.action_spaces = {a: Box(-clip, clip, (s[1],), np.float32) for a, s in self._shapes.items()}

    def _build(self, seed: int) -> None:
        env = make_env(self._task, num_envs=1, seed=seed, **self._options)
        self._env, self._is_new = env, True

    def observation_space(self, agent: str) -> Space:
        """Return the space of an agent's observations."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Space:
        """Return the space of an agent's actions."""
        return self.action_spaces[agent]

    def _present(self) -> list[str]:
        flags = self._env.taking_part.tolist()
        return [agent for agent, is_in in zip(self.possible_agents, flags, strict=True) if is_in]

    def _seen(self, obs: Any, agents: list[str]) -> dict[str, np.ndarray]:
        rows = obs[self._group].cpu().numpy()
        return {agent: rows[self.possible_agents.index(agent), : self._shapes[agent][0]].copy() for agent in agents}

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
        """Begin an episode; a seed builds the world again."""
        if seed is not None:
            self._env.close()
            self._build(seed)
        obs = self._env.get_observations() if self._is_new else self._env.reset()
        self._is_new = False
        self.agents = self._present()
        return self._seen(obs, self.agents), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, np.ndarray]) -> tuple[dict, dict, dict, dict, dict]:
        """Apply the actions of the agents for one control period; see PettingZoo's `ParallelEnv.step`."""
        rows = torch.zeros(len(self.possible_agents), self._env.num_actions)
        for agent, action in actions.items():
            values = torch.as_tensor(np.asarray(action, np.float32).ravel())
            rows[self.possible_agents.index(agent), : len(values)] = values
        obs, reward, done, extras = self._env.step(rows.to(self._env.device))
        here, place = self.agents, {agent: k for k, agent in enumerate(self.possible_agents)}
        over = bool(extras["ended"][0])
        last = {agent: bool(done[place[agent]]) for agent in here}
        seen = self._seen(obs, [agent for agent in here if not last[agent]])
        seen |= self._seen(extras["final_obs"], [agent for agent in here if last[agent]])
        cut = {agent: bool(extras["time_outs"][place[agent]]) for agent in here}
        ended = {agent: last[agent] and not cut[agent] for agent in here}
        rewards = {agent: float(reward[place[agent]]) for agent in here}
        infos = {agent: {"valid": bool(extras["valid"][place[agent]])} for agent in here}
        joined = [] if over else [agent for agent in self._present() if agent not in here]
        seen |= self._seen(obs, joined)
        for agent in joined:
            rewards[agent], ended[agent], cut[agent], infos[agent] = 0.0, False, False, {"valid": False}
        self.agents = [] if over else [agent for agent in self.possible_agents if agent in seen and not last.get(agent)]
        self._is_new = over  # The world has begun the next episode by itself.
        return seen, rewards, ended, cut, infos

    def state(self) -> np.ndarray:
        """Return the state of the whole team: the critics' groups side by side."""
        obs = self._env.get_observations()
        return obs["critic" if "critic" in obs else self._group].cpu().numpy().ravel()

    def close(self) -> None:
        """Close the world."""
        self._env.close()

"""A PPO of our own with the settings that CleanRL publishes for ppo_continuous_action. It is not CleanRL's program.

CleanRL is a collection of single files that no package index carries for today's Gymnasium, so a benchmark that
installs its rivals cannot run it. This program follows its documentation (docs.cleanrl.dev, PPO, continuous actions):
one environment, Gymnasium's wrappers for clipping and normalization, separate 64-64 tanh networks with orthogonal
weights, a deviation that does not depend on the state, Adam with a rate that falls linearly to zero, advantages
normalized in each minibatch, clipped surrogate and clipped value loss, any end of an episode taken as terminal.
Schulman et al. 2017, https://arxiv.org/abs/1707.06347; Huang et al. 2022, "The 37 implementation details of PPO".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from episodes import EpisodeLog  # type: ignore[import-not-found]
from torch import Tensor, nn
from torch.distributions import Normal


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """CleanRL's published defaults."""

    rollout: int = 2048
    minibatches: int = 32
    epochs: int = 10
    learning_rate: float = 3e-4
    adam_eps: float = 1e-5
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    value_coef: float = 0.5
    entropy_coef: float = 0.0
    max_grad_norm: float = 0.5
    hidden: int = 64
    limit: float = 10.0
    """Bound on normalized observations and rewards."""


class ActorCritic(nn.Module):
    """Mean and deviation of the action, and the value, by two networks that share nothing."""

    def __init__(self, obs_dim: int, action_dim: int, hidden: int):
        super().__init__()
        self.mean = _tanh_network(obs_dim, hidden, action_dim, gain=0.01)
        self.value = _tanh_network(obs_dim, hidden, 1, gain=1.0)
        self.log_std = nn.Parameter(torch.zeros(action_dim))

    def forward(self, obs: Tensor) -> tuple[Normal, Tensor]:
        """Observations (B, D) -> the actions' distribution (B, A), values (B,)."""
        mean = self.mean(obs)
        return Normal(mean, self.log_std.exp().expand_as(mean)), self.value(obs).squeeze(-1)


def _tanh_network(size: int, hidden: int, out: int, gain: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width, height, scale in ((size, hidden, math.sqrt(2.0)), (hidden, hidden, math.sqrt(2.0)), (hidden, out, gain)):
        layer = nn.Linear(width, height)
        nn.init.orthogonal_(layer.weight, scale)
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


class Worlds:
    """One environment behind Gymnasium's wrappers; its episodes go to a log with Gymnasium's own rewards."""

    def __init__(self, env_id: str, settings: Settings, log: EpisodeLog):
        def make() -> Any:
            env = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make(env_id))
            env = self._normalizer = gymnasium.wrappers.NormalizeObservation(gymnasium.wrappers.ClipAction(env))
            env = gymnasium.wrappers.TransformObservation(env, self._bounded, env.observation_space)
            env = gymnasium.wrappers.NormalizeReward(env, gamma=settings.gamma)
            return gymnasium.wrappers.TransformReward(env, self._bounded)

        self._limit, self._log, self._steps = settings.limit, log, 0
        self.vector = gymnasium.vector.SyncVectorEnv([make], autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP)
        self.obs_dim = self.vector.single_observation_space.shape[0]  # type: ignore[index]
        self.action_dim = self.vector.single_action_space.shape[0]  # type: ignore[index]

    def reset(self, seed: int) -> Tensor:
        """Observations (1, D)."""
        return torch.as_tensor(self.vector.reset(seed=seed)[0], dtype=torch.float32)

    def step(self, action: Tensor) -> tuple[Tensor, float, bool]:
        """Actions (1, A) -> observations (1, D), the normalized reward, whether the episode ended."""
        obs, reward, terminated, truncated, info = self.vector.step(action.numpy())
        over = bool(terminated[0] or truncated[0])
        if over:
            episode = info["final_info"]["episode"]
            self._log.add(episode["r"][0], episode["l"][0])
        self._steps += 1
        self._log.tick(self._steps)
        return torch.as_tensor(obs, dtype=torch.float32), float(reward[0]), over

    def normalize(self, obs: np.ndarray) -> np.ndarray:
        """The policy's input for an observation (D,), with the statistics as they are now."""
        known = self._normalizer.obs_rms
        return self._bounded((obs - known.mean) / np.sqrt(known.var + self._normalizer.epsilon))

    def _bounded(self, values: Any) -> Any:
        return np.clip(values, -self._limit, self._limit)


@dataclass(slots=True)
class Rollout:
    """T steps of the one environment, and what is learned from."""

    obs: Tensor
    action: Tensor
    log_prob: Tensor
    value: Tensor
    reward: Tensor
    over: Tensor
    next_value: Tensor

    def advantages(self, gamma: float, lam: float) -> Tensor:
        """Generalized advantage estimates (T,), Schulman et al. 2016, equation 16; every end counts as terminal."""
        result = torch.zeros_like(self.reward)
        alive, following, running = 1.0 - self.over, self.next_value, torch.zeros(())
        for t in range(len(result) - 1, -1, -1):
            error = self.reward[t] + gamma * alive[t] * following - self.value[t]
            running = error + gamma * lam * alive[t] * running
            result[t], following = running, self.value[t]
        return result


@torch.no_grad()
def collect(worlds: Worlds, policy: ActorCritic, obs: Tensor, steps: int) -> tuple[Rollout, Tensor]:
    """Act for some steps from observations (1, D); return the rollout and the observations after it."""
    rows = [torch.zeros(steps, n) for n in (worlds.obs_dim, worlds.action_dim)] + [torch.zeros(steps) for _ in range(4)]
    rollout = Rollout(*rows, next_value=torch.zeros(()))
    for t in range(steps):
        chances, value = policy(obs)
        action = chances.sample()
        rollout.obs[t], rollout.action[t], rollout.value[t] = obs[0], action[0], value[0]
        rollout.log_prob[t] = chances.log_prob(action).sum()
        obs, reward, over = worlds.step(action)
        rollout.reward[t], rollout.over[t] = reward, float(over)
    rollout.next_value = policy(obs)[1][0]
    return rollout, obs


def learn(policy: ActorCritic, optimizer: torch.optim.Optimizer, rollout: Rollout, settings: Settings) -> None:
    """Go over the rollout in minibatches, in a new order each epoch."""
    advantage = rollout.advantages(settings.gamma, settings.gae_lambda)
    target = advantage + rollout.value
    size = settings.rollout // settings.minibatches
    for _ in range(settings.epochs):
        for rows in torch.randperm(settings.rollout).split(size):
            chances, value = policy(rollout.obs[rows])
            ratio = (chances.log_prob(rollout.action[rows]).sum(-1) - rollout.log_prob[rows]).exp()
            scaled = advantage[rows]
            scaled = (scaled - scaled.mean()) / (scaled.std() + 1e-8)
            near = ratio.clamp(1.0 - settings.clip, 1.0 + settings.clip)
            surrogate = -torch.minimum(ratio * scaled, near * scaled).mean()
            old = rollout.value[rows]
            held = old + (value - old).clamp(-settings.clip, settings.clip)
            squared = torch.maximum((value - target[rows]).square(), (held - target[rows]).square())
            entropy = chances.entropy().sum(-1).mean()
            loss = surrogate + settings.value_coef * 0.5 * squared.mean() - settings.entropy_coef * entropy
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), settings.max_grad_norm)
            optimizer.step()


def train(env_id: str, seed: int, log: EpisodeLog) -> Callable[[Any], Any]:
    """Train for log.steps control steps.

    Args:
        env_id: such as "HalfCheetah-v5".
        seed: of everything.
        log: takes the episodes; its clock is started here.

    Returns:
        The policy that was found: observation (D,) -> mean action (A,).
    """
    settings = Settings()
    torch.manual_seed(seed)
    worlds = Worlds(env_id, settings, log)
    policy = ActorCritic(worlds.obs_dim, worlds.action_dim, settings.hidden)
    optimizer = torch.optim.Adam(policy.parameters(), lr=settings.learning_rate, eps=settings.adam_eps)
    iterations = log.steps // settings.rollout
    log.begin()
    obs = worlds.reset(seed)
    for k in range(iterations):
        optimizer.param_groups[0]["lr"] = settings.learning_rate * (1.0 - k / iterations)
        rollout, obs = collect(worlds, policy, obs, settings.rollout)
        learn(policy, optimizer, rollout, settings)

    @torch.no_grad()
    def act(raw: np.ndarray) -> np.ndarray:
        return policy.mean(torch.as_tensor(worlds.normalize(raw), dtype=torch.float32)).numpy()

    return act

"""Random network distillation (Burda et al. 2019): a reward for states that a predictor does not know yet.

A random network that never changes maps a state to features; a second one learns to predict them from the visited
states. A large error means that few such states were seen. Departures from the paper: the error is divided by its own
running root mean square and not by the deviation of its discounted return, so the reward is about 1 a step at the start
for any networks, and there is one value function for both rewards.
"""

from __future__ import annotations

import torch
from rsl_rl.env import VecEnv
from torch import Tensor

from robot_rl.errors import UserError
from robot_rl.learn.auxiliaries.auxiliary import Auxiliary
from robot_rl.learn.auxiliaries.config import RndCfg
from robot_rl.learn.networks.layout import make_layout
from robot_rl.learn.networks.mlp import Mlp
from robot_rl.learn.networks.normalizer import Normalizer
from robot_rl.learn.optim import Trainer
from robot_rl.learn.ranks import SINGLE_PROCESS, ProcessGroup
from robot_rl.learn.rollout import Rollout
from robot_rl.settings import NetworkCfg

CLIP = 5.0
"""Greatest magnitude of a normalized component, as in the paper: the random network is known only there."""
SEED_OFFSET = 100
"""Added to the run's seed, so that no other stream has the same numbers."""


class Rnd(Auxiliary):
    """The reward of a step is the error at its next state, over its running root mean square, times the weight.

    If an episode ends and the environment gives no final observation, it is the error at the state before.

    Attributes:
        normalizer: of the observations; frozen while a rollout is rewarded and learned from.
        target: the random network.
        predictor: learns to predict it.
        trainer: steps the predictor.
        weight: () current factor of the reward.
        square: () mean of the squared error over everything seen.
        count: () states seen.
    """

    name = "rnd"
    weight: Tensor
    square: Tensor
    count: Tensor

    def __init__(
        self,
        cfg: RndCfg,
        size: int,
        *,
        device: torch.device | str = "cpu",
        seed: int = 0,
        ranks: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        super().__init__()
        self.cfg, self.groups, self.ranks = cfg, tuple(cfg.groups), ranks
        generator = torch.Generator().manual_seed(seed + SEED_OFFSET)
        network = NetworkCfg(hidden=cfg.hidden, output_gain=1.0)
        self.normalizer = Normalizer(size)
        self.target = Mlp(size, cfg.features, network, generator).requires_grad_(False)
        self.predictor = Mlp(size, cfg.features, network, generator)
        self.register_buffer("weight", torch.tensor(cfg.weight))
        self.register_buffer("square", torch.zeros(()))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.to(device)
        self.trainer = Trainer((self.predictor,), cfg.learning_rate, seed + SEED_OFFSET + 1, ranks=ranks)
        self._reward = torch.zeros((), device=device)

    @torch.no_grad()
    def reward(self, rollout: Rollout) -> Tensor:
        """Return the reward (T, N), 0 for invalid samples; its errors join the running mean."""
        states, valid = self._states(rollout)
        inputs = self._normalized(states)
        error = torch.where(valid, _error(self.predictor(inputs), self.target(inputs)), 0.0)
        square, size = self.ranks.sum_(torch.stack((error.square().sum(), valid.sum()))).unbind()
        self.count += size.to(self.count.dtype)
        self.square += (square - size * self.square) / self.count.clamp(min=1)
        reward = self.weight * error / (self.square.sqrt() + 1e-8)
        self._reward = reward.sum() / valid.sum().clamp(min=1)
        return reward.view(rollout.done.shape)

    def update(self, rollout: Rollout, progress: float) -> dict[str, Tensor]:
        """Let the predictor learn from a rollout's valid states, then update the normalizer."""
        states, valid = self._states(rollout)
        inputs, weight = self._normalized(states), valid.to(states.dtype)
        with torch.no_grad():
            features = self.target(inputs)
        minibatches = self.cfg.minibatches
        if minibatches > len(states):
            raise UserError(f"rnd.minibatches: {minibatches} is more than the {len(states)} samples")
        size, total = len(states) // minibatches, torch.zeros((), device=states.device)
        for _ in range(self.cfg.epochs):
            order = self.trainer.shuffle(len(states))
            for start in range(0, size * minibatches, size):
                rows = order[start : start + size]
                error = _error(self.predictor(inputs[rows]), features[rows])
                loss = (error * weight[rows]).sum() / weight[rows].sum().clamp(min=1)
                self.trainer.step(loss)
                total += loss.detach()
        self.normalizer.update(states, valid if rollout.has_invalid else None, self.ranks)
        if self.cfg.decay > 0:
            self.weight.fill_(self.cfg.weight * max(0.0, 1.0 - progress / self.cfg.decay))
        return {"rnd/reward": self._reward, "rnd/loss": total / (self.cfg.epochs * minibatches)}

    def _states(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Return the next states (T N, D) of the steps, and which of them are valid (T N,); the others are zeros."""
        valid, parts = rollout.valid if rollout.has_invalid else torch.ones_like(rollout.done), []
        for group in self.groups:
            after, known = rollout.next_observations(group)
            state = torch.where(known[..., None], after, rollout.groups[group][:-1])
            parts.append(torch.where(valid[..., None], state, 0.0))
        return torch.cat(parts, dim=-1).flatten(0, 1), valid.reshape(-1)

    def _normalized(self, states: Tensor) -> Tensor:
        return self.normalizer(states).clamp_(-CLIP, CLIP)


def make_rnd(
    cfg: RndCfg, env: VecEnv, device: torch.device | str, seed: int, ranks: ProcessGroup = SINGLE_PROCESS
) -> Rnd:
    """Build the curiosity for an environment; raise UserError for a group that it does not have."""
    size = make_layout(env.get_observations(), cfg.groups, "rnd.groups").size
    return Rnd(cfg, size, device=device, seed=seed, ranks=ranks)


def _error(prediction: Tensor, features: Tensor) -> Tensor:
    """Return the mean squared error (B,) of predicted features (B, F)."""
    return (prediction - features).square().mean(-1)

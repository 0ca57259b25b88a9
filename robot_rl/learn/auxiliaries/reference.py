"""A penalty toward a frozen policy: weight times KL(reference || policy) is added to the policy's loss.

Without it, fine-tuning soon loses abilities that the new reward does not require. Departures from the penalties of
language models (Ziegler et al. 2019): the divergence is exact, in the loss and not in the reward, and taken from the
reference, so the policy has to keep everything that the reference does (Kickstarting, Schmitt et al. 2018).
"""

from __future__ import annotations

import torch
from rsl_rl.env import VecEnv
from torch import Tensor

from robot_rl.errors import UserError
from robot_rl.learn.algorithms import read_learner
from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.learn.auxiliaries.config import ReferenceCfg
from robot_rl.learn.auxiliaries.frozen import FrozenObjective, FrozenPolicy, make_frozen
from robot_rl.learn.dims import EnvSpec
from robot_rl.learn.networks.distributions import Params, make_distribution
from robot_rl.learn.rollout import Batch, Rollout, mean_over


class Reference(FrozenObjective):
    """The penalty. The reference, like the policy in its distribution, is evaluated once a rollout.

    Attributes:
        weight: () current factor of the penalty.
    """

    name = "reference"
    weight: Tensor

    def __init__(
        self, cfg: ReferenceCfg, frozen: FrozenPolicy, worlds: int, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(frozen, frozen.initial_state(worlds, device))
        self.cfg = cfg
        self.groups = tuple(frozen.layout.shapes)
        self.register_buffer("weight", torch.tensor(cfg.weight, device=device))
        self._sums = torch.zeros(2, device=device)

    @torch.no_grad()
    def samples(self, rollout: Rollout) -> dict[str, Tensor]:
        """Return the reference's labels (T, N, L)."""
        return {self.name: self.labels(rollout)}

    def loss(self, batch: Batch, params: Params) -> Tensor:
        """Return weight * KL(reference || policy), the mean over a minibatch ()."""
        divergence = mean_over(self.frozen.kl(batch.more[self.name], params), batch.weight)
        self._sums += torch.stack((divergence.detach(), torch.ones_like(divergence)))
        return self.weight * divergence

    def update(self, rollout: Rollout, progress: float) -> dict[str, Tensor]:
        """Decay the weight; return the mean divergence over the minibatches and the weight that it had."""
        statistics = {"reference/kl": self._sums[0] / self._sums[1], "reference/weight": self.weight.clone()}
        self._sums.zero_()
        if self.cfg.decay > 0:
            self.weight.fill_(self.cfg.weight * max(0.0, 1.0 - progress / self.cfg.decay))
        return statistics


def make_reference(cfg: PPOLearnerCfg, env: VecEnv, dims: EnvSpec, device: torch.device | str) -> Reference:
    """Load the reference for an environment; raise UserError if it, or its distribution, does not fit."""
    frozen = make_frozen(cfg.reference, env, dims, device, "reference")
    distribution = make_distribution(dims.action, cfg.actor, choices=dims.choices)
    if not frozen.is_alike(distribution):
        theirs = read_learner(frozen.policy.meta["learner"]).actor
        raise UserError(
            f"reference.run: the policy of '{frozen.policy.path}' has actor.distribution={theirs.distribution} of "
            f"bound {theirs.bound:g}, must be {cfg.actor.distribution} of bound {cfg.actor.bound:g}"
        )
    return Reference(cfg.reference, frozen, env.num_envs, device)

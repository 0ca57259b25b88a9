"""HAPPO: a team's policies, improved one after the other, each with regard to what the ones before it changed.

    robot-rl train task=go2_pair_carry learner=examples.happo:HAPPOLearnerCfg

Heterogeneous-agent PPO (Zhong et al. 2024, arXiv 2304.09870, algorithm 4), an example of an algorithm from outside the
project: its settings build on those of `learner=mappo`, its algorithm on `PPO`. Each policy's advantages are multiplied
by the probability ratios of the robots whose policies were improved before it in the same iteration, so that the
improvement of the team's return adds up. The ratios are those of whole updates, over the samples of one world and step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from robot_rl.errors import UserError
from robot_rl.learn.algorithm import Context
from robot_rl.learn.algorithms.mappo.config import MAPPOLearnerCfg
from robot_rl.learn.algorithms.ppo.ppo import PPO, adapt_learning_rate, make_ppo, policy_loss, probability_ratio
from robot_rl.learn.networks.team import TeamActor
from robot_rl.learn.optim import FlatAdam
from robot_rl.learn.rollout import Batch, Rollout
from robot_rl.settings.schema import setting

ORDERS = ("random", "fixed")


@dataclass(kw_only=True, slots=True)
class HAPPOLearnerCfg(MAPPOLearnerCfg):
    """The settings: those of MAPPO, by default with a policy for each robot.

    Attributes:
        order: in which the policies are improved in an iteration: "random", drawn each time, or "fixed".
    """

    supports_stale_rollouts: ClassVar[bool] = False

    name: str = "happo"
    sharing: str = "separate"
    order: str = setting("random", choices=ORDERS)

    def __post_init__(self) -> None:
        """Check the ranges."""
        MAPPOLearnerCfg.__post_init__(self)


def make_algorithm(cfg: HAPPOLearnerCfg, context: Context) -> HAPPO:
    """Build the policies, the critic and the algorithm; UserError for what it cannot be combined with."""
    algorithm = make_ppo(cfg, context, HAPPO)
    algorithm.order = cfg.order
    return algorithm


class HAPPO(PPO):
    """Improves several policies in sequence, and their critic.

    Attributes:
        order: "random" or "fixed".
        optimizers: one for each policy, and one for the critic.
    """

    order: str = "random"

    def __init__(self, actor: Any, critic: Any, cfg: Any, **options: Any) -> None:
        super().__init__(actor, critic, cfg, **options)
        if not isinstance(actor, TeamActor):
            raise UserError("learner=happo: has 1 policy to improve in sequence, needs 2 or more; use sharing=separate")
        if self.auxiliaries or self.symmetry is not None:
            name = self.auxiliaries[0].name if self.auxiliaries else "symmetry=augment"
            raise UserError(f"learner=happo: {name} is not for policies that are improved in sequence; leave it out")
        networks: list[list[nn.Module]] = [[each] for each in actor.each()] + [critic.parts()]
        self.optimizers = [
            FlatAdam(parts, cfg.learning_rate, cfg.max_grad_norm, ranks=self.ranks) for parts in networks
        ]
        self.optimizer, self.graphed = self.optimizers[0], None

    @property
    def team(self) -> TeamActor:
        """The policies."""
        actor: Any = self.actor
        return actor

    def stateful(self) -> dict[str, Any]:
        """Return the optimizers."""
        return {f"optimizer.{k}": optimizer for k, optimizer in enumerate(self.optimizers)}

    def update(self, rollout: Rollout, progress: float = 0.0) -> dict[str, Tensor]:
        """Learn from a rollout: each policy in turn, then the critic; then update the normalizers."""
        if self.cfg.schedule == "linear":
            for optimizer in self.optimizers:
                optimizer.learning_rate.fill_(self.cfg.learning_rate * (1.0 - progress))
        batch = self.make_batch(rollout)
        order = list(range(len(self.team.each())))
        if self.order == "random":
            order = torch.randperm(len(order), generator=self.generator, device=batch.value.device).tolist()
        factor = torch.ones(batch.value.shape[0] // batch.group_size, device=batch.value.device)
        total = torch.zeros(len(self.statistics), device=batch.value.device)
        for k in order:
            found, ratio = self._improve(k, batch, rollout.frozen, factor)
            total += found / len(order)
            factor = factor * ratio
        total[0] = self._fit_critic(batch)
        self.update_normalizers(rollout, batch.returns)
        self.quantizers.calibrate(rollout)
        statistics = dict(zip(self.statistics, total.unbind(), strict=True))
        statistics["policy/learning_rate"] = self.optimizer.learning_rate
        statistics["policy/factor"] = factor.mean()
        if (spread := self.actor.distribution.spread(rollout.out)) is not None:
            statistics["policy/std"] = spread
        return statistics

    def _improve(self, k: int, batch: Batch, frozen: Tensor | None, factor: Tensor) -> tuple[Tensor, Tensor]:
        """Improve policy k; return its statistics, and the ratio of its robots' actions (n,) after and before.

        `factor` (n,) are the ratios of the robots before it.
        """
        actor, optimizer = self.team.each()[k], self.optimizers[k]
        own = self._rows(k, batch, factor)
        mine = self._frozen(k, frozen)
        total = torch.zeros(len(self.statistics), device=factor.device)

        def step(index: Tensor) -> None:
            optimizer.zero_grad()
            part = own.rows(index)
            loss = policy_loss(actor, part, mine, self.cfg.clip)
            (loss.surrogate - self.cfg.entropy_coef * loss.entropy).backward()
            with torch.no_grad():
                divergence, clip_share = loss.measure(actor, part, mine)
                optimizer.averaged_scalar.copy_(divergence)
                total[1:] += torch.stack((loss.surrogate, loss.entropy, divergence, clip_share))
            optimizer.reduce()
            if self.cfg.schedule == "adaptive":
                adapt_learning_rate(optimizer.learning_rate, optimizer.averaged_scalar, self.cfg)
            optimizer.apply()

        self._each_minibatch(own.value.shape[0], factor.device, step)
        with torch.no_grad():
            params = actor.distribution.params(actor.outputs(own.actor_in))
            ratio = probability_ratio(actor.distribution.log_prob(own.action, params), own.log_prob)
            if own.weight is not None:
                ratio = torch.where(own.weight > 0, ratio, 1.0)
        robots = len(self.team.members.groups[k])
        return total / (self.cfg.epochs * self.cfg.minibatches), ratio.view(-1, robots).prod(dim=1)

    def _rows(self, k: int, batch: Batch, factor: Tensor) -> Batch:
        """Return the samples of policy k's robots, their advantages multiplied by the factor (n,) of their moment."""
        actor, members = self.team.each()[k], self.team.members

        def rows(x: Tensor, width: int | None = None) -> Tensor:
            return members.split(x, width)[k]

        robots = len(members.groups[k])
        distribution = actor.distribution
        return Batch(
            actor_in=rows(batch.actor_in, actor.obs_dim),
            critic_in=rows(batch.critic_in),
            action=rows(batch.action, distribution.action_dim),
            out=rows(batch.out, distribution.out_dim),
            log_prob=rows(batch.log_prob),
            value=rows(batch.value),
            advantage=rows(batch.advantage) * factor.repeat_interleave(robots),
            returns=rows(batch.returns),
            weight=None if batch.weight is None else rows(batch.weight),
        )

    def _frozen(self, k: int, frozen: Tensor | None) -> Tensor | None:
        """Return policy k's part of a snapshot of all distributions."""
        if frozen is None:
            return None
        sizes = [0 if (own := each.distribution.snapshot()) is None else own.numel() for each in self.team.each()]
        start = sum(sizes[:k])
        return frozen[start : start + sizes[k]] if sizes[k] else None

    def _fit_critic(self, batch: Batch) -> Tensor:
        """Improve the critic, and return the mean of its loss ()."""
        optimizer, total = self.optimizers[-1], torch.zeros((), device=batch.value.device)

        def step(index: Tensor) -> None:
            optimizer.zero_grad()
            loss = self.value_loss(batch.rows(index))
            (self.cfg.value_coef * loss).backward()
            total.add_(loss.detach())
            optimizer.step()

        self._each_minibatch(batch.num_units, batch.value.device, step)
        return total / (self.cfg.epochs * self.cfg.minibatches)

    def _each_minibatch(self, units: int, device: torch.device, step: Any) -> None:
        """Call `step` with the indices of every minibatch of every epoch."""
        size = units // self.cfg.minibatches
        if size == 0:
            raise UserError(f"ppo.minibatches: {self.cfg.minibatches} is more than the {units} samples")
        for _ in range(self.cfg.epochs):
            order = torch.randperm(units, generator=self.generator, device=device)
            for start in range(0, size * self.cfg.minibatches, size):
                step(order[start : start + size])

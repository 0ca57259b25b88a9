"""Proximal policy optimization (Schulman et al. 2017) with a critic that may see more than the actor.

Departures from the usual implementations: the critic is not evaluated while the rollout is collected but once after it;
a time-out bootstraps from the value of the observation it ended at; minibatches are drawn again in each epoch; the step
size is on the device, so the adaptive schedule (as in rsl_rl) reads nothing back. Everything else is an object that
`PPO` calls: curiosity, a motion prior or a reference policy (`robot_rl.learn.auxiliaries.auxiliary`), the policy that
ratios are taken to (`off_policy_correction`), mirrored samples, quantized layers, and replayed CUDA graphs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from robot_rl.errors import UserError
from robot_rl.learn import build
from robot_rl.learn.algorithm import Algorithm, Context
from robot_rl.learn.algorithms.ppo.augment import AugmentSymmetry, make_augmentation
from robot_rl.learn.algorithms.ppo.config import PPOCfg, PPOLearnerCfg
from robot_rl.learn.algorithms.ppo.graphed import make_graphed
from robot_rl.learn.algorithms.ppo.objectives import make_auxiliaries
from robot_rl.learn.algorithms.ppo.off_policy_correction import ProximalPolicy, corrected_policy, recorded_policy
from robot_rl.learn.algorithms.ppo.quantization import UpdateQuantizers
from robot_rl.learn.algorithms.ppo.targets import TargetEstimator
from robot_rl.learn.auxiliaries.auxiliary import Auxiliaries, Auxiliary
from robot_rl.learn.dims import EnvSpec, Mirrors
from robot_rl.learn.networks.actor_critic import Actor, Critic
from robot_rl.learn.networks.distributions import Params
from robot_rl.learn.optim import FlatAdam
from robot_rl.learn.ranks import SINGLE_PROCESS, ProcessGroup
from robot_rl.learn.rollout import MOST_AGES, Batch, Rollout, mean_over

MAX_LOG_RATIO = 40.0
"""Logarithm of the greatest probability ratio: its products stay finite in float32, with exp finite up to 88.7."""
ROUNDING = 1e-6
"""Divergence that float32 may show between equal policies [nat]."""
STATISTICS = ("loss/value", "loss/surrogate", "loss/entropy", "loss/kl", "loss/clip_share")


class PPO(Algorithm):
    """Improves an actor and a critic, both on their final device, from rollouts.

    Attributes:
        symmetry: adds mirrored samples to every batch.
        generator: source of the minibatches, on the device of the networks.
        max_age: largest staleness of a rollout [versions] that has its own statistic.
        optimizer: steps both networks.
        targets: estimates advantages and returns.
        quantizers: the networks' layers that compute in less than float32.
        graphed: replays the steps from CUDA graphs; None if there are none.
        statistics: names of the statistics of a minibatch.
    """

    statistics: tuple[str, ...] = STATISTICS

    def __init__(
        self,
        actor: Actor,
        critic: Critic,
        cfg: PPOCfg,
        *,
        symmetry: AugmentSymmetry | None = None,
        generator: torch.Generator | None = None,
        auxiliaries: Sequence[Auxiliary] = (),
        reward_weights: Sequence[float] = (),
        ranks: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        self.actor, self.critic, self.cfg = actor, critic, cfg
        self.max_age = 1
        self.symmetry, self.generator = symmetry, generator
        self.auxiliaries, self.ranks = Auxiliaries(auxiliaries), ranks
        self.indexed_by_world = all(auxiliary.indexed_by_world for auxiliary in self.auxiliaries if auxiliary.worlds())
        self.critic_memory = critic.state_size
        self.optimizer = FlatAdam((actor, *critic.parts()), cfg.learning_rate, cfg.max_grad_norm, ranks=ranks)
        self.targets = TargetEstimator(
            critic, cfg, auxiliaries=self.auxiliaries, reward_weights=reward_weights, ranks=ranks
        )
        self.quantizers = UpdateQuantizers(actor, critic, ranks)
        self.graphed = make_graphed(self, next(actor.parameters()).device)

    def modules(self) -> dict[str, nn.Module]:
        """Return actor and critic."""
        return {"actor": self.actor, "critic": self.critic}

    def stateful(self) -> dict[str, Any]:
        """Return the optimizer and the auxiliaries."""
        return {"optimizer": self.optimizer} | {f"auxiliary.{each.name}": each for each in self.auxiliaries}

    def streams(self) -> dict[str, torch.Generator]:
        """Return the random stream of the minibatches."""
        return {} if self.generator is None else {"random.order": self.generator}

    def described(self) -> dict[str, Any]:
        """Return the auxiliaries' descriptions."""
        return {"auxiliaries": {auxiliary.name: auxiliary.described() for auxiliary in self.auxiliaries}}

    def check(self, described: Mapping[str, Any]) -> None:
        """Raise UserError for a checkpoint with other auxiliaries."""
        self.auxiliaries.check(described.get("auxiliaries", {}))

    def update(self, rollout: Rollout, progress: float = 0.0) -> dict[str, Tensor]:
        """Learn from a rollout, then update the normalizers.

        Returns the means of `statistics` over the minibatches, the step size, the spread of the actions, and the
        statistics of the auxiliaries, each a tensor () on the device.
        """
        if self.cfg.schedule == "linear":
            self.optimizer.learning_rate.fill_(self.cfg.learning_rate * (1.0 - progress))
        policy = self.proximal_policy(rollout)
        batch = self.make_batch(rollout, policy)
        mismatch = {} if policy.is_older else self.quantizers.mismatch(batch, self._minibatch_size(batch))
        statistics = self.fit(batch, policy.frozen) | mismatch | policy.statistics | rollout.ages(self.max_age)
        statistics |= self.auxiliaries.update(rollout, progress)
        self.update_normalizers(rollout, batch.returns)
        self.quantizers.calibrate(rollout)
        statistics["policy/learning_rate"] = self.optimizer.learning_rate
        if (spread := self.actor.distribution.spread(rollout.out)) is not None:
            statistics["policy/std"] = spread
        return statistics

    def proximal_policy(self, rollout: Rollout) -> ProximalPolicy:
        """Return the policy that ratios are taken to at a rollout's samples: the one that acted, or a newer one."""
        if rollout.learner_version is None:
            return recorded_policy(self.actor, rollout)
        return corrected_policy(self.actor, self.cfg.correction, rollout, clip=self.cfg.clip, ranks=self.ranks)

    @torch.no_grad()
    def make_batch(self, rollout: Rollout, policy: ProximalPolicy | None = None) -> Batch:
        """Return a rollout's samples with advantages and returns, flattened over steps and worlds.

        `policy` is the result of `proximal_policy` for it; None: the one that acted.
        """
        self.auxiliaries.begin(rollout)
        flat, policy = rollout.flat, policy or recorded_policy(self.actor, rollout)
        critic_in = self.critic.encode(rollout.critic_obs.flatten(0, 1)).unflatten(0, rollout.critic_obs.shape[:2])
        values, states = self.targets.values(rollout, critic_in)
        advantage, traced = map(flat, self.targets.advantages(rollout, values, states, policy.trace))
        value, valid = flat(values[:-1]), flat(rollout.valid) if rollout.has_invalid else None
        batch = Batch(
            actor_in=policy.actor_in,
            critic_in=flat(critic_in[:-1]),
            action=flat(rollout.action),
            out=policy.out,
            log_prob=policy.log_prob,
            importance=policy.importance,
            value=value,
            advantage=self.targets.combine(advantage, valid),
            returns=traced + value,
            more={name: flat(tensor) for name, tensor in self.auxiliaries.samples(rollout).items()},
            group_size=max(self.actor.group_size, self.critic.group_size),
            **rollout.sequences(states),
        )
        if valid is not None:
            weight = valid.to(value.dtype)
            batch.weight = weight / self.ranks.mean_(weight.mean()).clamp(min=1e-8)
        if self.symmetry is None:
            return batch
        more = self.auxiliaries.mirrored(batch.more, self.symmetry.action)
        return self.symmetry.extend(batch, rollout, self.actor, self.critic, more=more, ranks=self.ranks)

    def fit(self, batch: Batch, frozen: Tensor | None) -> dict[str, Tensor]:
        """Run the epochs over a batch, and return the means of `statistics` over the minibatches.

        `frozen` is the `Distribution.snapshot` of the policy that acted, here and below.
        """
        units, size = batch.num_units, self._minibatch_size(batch)
        total = torch.zeros(len(self.statistics), device=batch.value.device)
        step = self.graphed.bind(batch, size, frozen) if self.graphed else partial(self.step, batch, frozen=frozen)
        for _ in range(self.cfg.epochs):
            order = torch.randperm(units, generator=self.generator, device=batch.value.device)
            for start in range(0, size * self.cfg.minibatches, size):
                total += step(order[start : start + size])
        total /= self.cfg.epochs * self.cfg.minibatches
        return dict(zip(self.statistics, total.unbind(), strict=True))

    def _minibatch_size(self, batch: Batch) -> int:
        """Return the units of a minibatch; raise UserError if there are more minibatches than units."""
        if size := batch.num_units // self.cfg.minibatches:
            return size
        kind = "samples" if batch.start is None else f"sequences of {batch.start.shape[0]} steps"
        raise UserError(f"ppo.minibatches: {self.cfg.minibatches} is more than the {batch.num_units} {kind}")

    def step(self, batch: Batch, index: Tensor, frozen: Tensor | None) -> Tensor:
        """Learn from a minibatch and return the `statistics`; the arguments are those of `differentiate`."""
        statistics = self.differentiate(batch, index, frozen)
        self.optimizer.reduce()
        self.improve()
        return statistics

    def differentiate(self, batch: Batch, index: Tensor, frozen: Tensor | None) -> Tensor:
        """Compute the gradient of the loss of the rows `index` (`Batch.rows`), and return the `statistics`."""
        self.optimizer.zero_grad()
        loss, statistics = self.loss(batch.rows(index), frozen)
        loss.backward()
        return statistics

    def improve(self) -> None:
        """Adapt the step size to the divergence, and step along the gradient; both are means over the ranks."""
        if self.cfg.schedule == "adaptive":
            adapt_learning_rate(self.optimizer.learning_rate, self.optimizer.averaged_scalar, self.cfg)
        self.optimizer.apply()

    def loss(self, batch: Batch, frozen: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return a minibatch's loss () and `statistics`; its divergence is the optimizer's `averaged_scalar`."""
        cfg = self.cfg
        policy = policy_loss(self.actor, batch, frozen, cfg.clip)
        value_loss = self.value_loss(batch)
        total = policy.surrogate + cfg.value_coef * value_loss - cfg.entropy_coef * policy.entropy
        total = self.auxiliaries.add_loss(total, batch, policy.params)
        with torch.no_grad():
            divergence, clip_share = policy.measure(self.actor, batch, frozen)
            self.optimizer.averaged_scalar.copy_(divergence)
            statistics = torch.stack((value_loss, policy.surrogate, policy.entropy, divergence, clip_share)).detach()
        return total, statistics

    def value_loss(self, batch: Batch) -> Tensor:
        """Return the critic's squared error () over a minibatch."""
        value, clip = self.critic.values(batch.critic_in, batch.critic_past), self.cfg.clip
        old, returns = batch.value, batch.returns
        if (normalizer := self.critic.value_normalizer) is not None:  # In deviations of the returns.
            scale = normalizer.scale if value.ndim == 2 else normalizer.scale[0]
            value, old, returns = value * scale, old * scale, returns * scale
        error = (value - returns).square()
        if self.cfg.clip_value_loss:
            near = old + (value - old).clamp(-clip, clip)
            error = torch.maximum(error, (near - returns).square())
        return mean_over(error if error.ndim == 1 else error.sum(-1), batch.weight)

    def update_normalizers(self, rollout: Rollout, returns: Tensor) -> None:
        """Update the normalizers from a rollout and its returns (B,) or (B, K), which mirror images may follow."""
        valid = rollout.valid.reshape(-1) if rollout.has_invalid else None
        for network, obs in ((self.actor, rollout.actor_obs), (self.critic, rollout.critic_obs[:-1])):
            if network.normalizer is not None:
                network.normalizer.update(obs.flatten(0, 1), valid, self.ranks)
        if self.critic.value_normalizer is not None:
            seen = returns[: rollout.done.numel()].reshape(-1, self.critic.num_values)
            valid = rollout.flat(rollout.valid) if rollout.has_invalid else None
            self.critic.value_normalizer.update(seen, valid, self.ranks)


def adapt_learning_rate(rate: Tensor, divergence: Tensor, cfg: PPOCfg) -> None:
    """Adapt a step size () so that the divergence stays between half and twice the desired one.

    Before the first step of an update the policy is still the one that acted: the divergence is rounding then, and
    changes nothing.
    """
    slower = (rate / 1.5).clamp(min=cfg.min_learning_rate)
    faster = (rate * 1.5).clamp(max=cfg.max_learning_rate)
    is_low = (divergence < 0.5 * cfg.desired_kl) & (divergence > ROUNDING)
    rate.copy_(torch.where(divergence > 2.0 * cfg.desired_kl, slower, torch.where(is_low, faster, rate)))


@dataclass(slots=True)
class PolicyLoss:
    """The policy's part of the loss over a minibatch.

    Attributes:
        surrogate: () the clipped surrogate (Schulman et al. 2017, equation 7), to be made small.
        entropy: () of the policy [nat].
        params: parameters of the distribution at the samples.
        ratio, clipped: (B,) probability ratios.
    """

    surrogate: Tensor
    entropy: Tensor
    params: Params
    ratio: Tensor
    clipped: Tensor

    def measure(self, actor: Actor, batch: Batch, frozen: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the divergence () from the policy that acted [nat], and the share () of clipped ratios."""
        distribution = actor.distribution
        divergence = mean_over(distribution.kl(distribution.params(batch.out, frozen), self.params), batch.weight)
        return divergence, mean_over((self.ratio != self.clipped).to(self.ratio.dtype), batch.weight)


def policy_loss(actor: Actor, batch: Batch, frozen: Tensor | None, clip: float) -> PolicyLoss:
    """Return the policy's part of the loss over a minibatch; `frozen` as of `PPO.fit`."""
    distribution, weight = actor.distribution, batch.weight
    params = distribution.params(actor.outputs(batch.actor_in, batch.actor_past))
    ratio = probability_ratio(distribution.log_prob(batch.action, params), batch.log_prob)
    clipped = ratio.clamp(1.0 - clip, 1.0 + clip)
    gain = torch.minimum(batch.advantage * ratio, batch.advantage * clipped)
    surrogate = -mean_over(gain if batch.importance is None else batch.importance * gain, weight)
    entropy = distribution.entropy(params)
    entropy = entropy if entropy.ndim == 0 else mean_over(entropy, weight)
    return PolicyLoss(surrogate, entropy, params, ratio, clipped)


def probability_ratio(log_prob: Tensor, old_log_prob: Tensor) -> Tensor:
    """Return the ratio (B,) of the probability of an action under two policies, at most exp(MAX_LOG_RATIO).

    A mirrored sample that the policy would hardly have drawn is many deviations from its mean, and there a small step
    changes the log-probability by a hundred. Its weight is 0, but 0 times infinity is not. Beyond the bound the
    value is the bound, and its gradient the bound times that of the log-ratio, so that an action that was too bad still
    becomes less probable. Below it nothing changes.
    """
    log_ratio = log_prob - old_log_prob
    return torch.exp(log_ratio - (log_ratio.detach() - MAX_LOG_RATIO).clamp(min=0.0))


P = TypeVar("P", bound=PPO)
ORDER = 2
"""Added to the run's seed for the stream that minibatches are drawn from."""


def make_networks(
    cfg: PPOLearnerCfg, dims: EnvSpec, mirrors: Mirrors | None, generator: torch.Generator | None = None
) -> tuple[Actor, Critic]:
    """Build actor and critic on the CPU; arguments and errors are those of `build.make_actor`."""
    actor = build.make_actor(cfg, dims, mirrors, generator)
    return actor, build.make_critic(cfg, dims, mirrors, generator)


def make_algorithm(cfg: PPOLearnerCfg, context: Context) -> PPO:
    """Build the algorithm for an environment; errors are those of `make_ppo`."""
    return make_ppo(cfg, context)


def make_ppo(cfg: PPOLearnerCfg, context: Context, kind: type[P] = PPO, first: tuple[Auxiliary, ...] = ()) -> P:
    """Build the algorithm, of class `kind`, for an environment; `first` are its own auxiliary objectives.

    Raises UserError for an unknown observation group, recorded motion or a policy that does not fit, or an auxiliary
    objective that cannot be built.
    """
    generator = torch.Generator().manual_seed(context.seed)
    networks = make_networks(cfg, context.dims, context.mirrors, generator)
    actor, critic = (network.to(context.device) for network in networks)
    algorithm = kind(
        actor,  # type: ignore[arg-type]
        critic,  # type: ignore[arg-type]
        cfg.ppo if cfg.graph != "off" else replace(cfg.ppo, cuda_graph=False),
        symmetry=make_augmentation(cfg, context),
        generator=context.generator(ORDER),
        auxiliaries=make_auxiliaries(cfg, context, first),
        reward_weights=cfg.reward_weights,
        ranks=context.ranks,
    )
    algorithm.max_age = min(max(1, cfg.staleness.max), MOST_AGES)
    return algorithm

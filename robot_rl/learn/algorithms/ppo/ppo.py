"""Proximal policy optimization (Schulman et al. 2017) with a critic that may see more than the actor.

Departures from the usual implementations: the critic is not evaluated while the rollout is collected but once after it;
a time-out bootstraps from the value of the observation it ended at; minibatches are drawn again in each epoch; the step
size is on the device, so the adaptive schedule (as in rsl_rl) reads nothing back. Everything else (curiosity, a motion
prior, a reference policy) is an object of `robot_rl.learn.auxiliaries.auxiliary`.
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
from robot_rl.learn.algorithms.ppo.augment import AugmentSymmetry
from robot_rl.learn.algorithms.ppo.config import PPOCfg, PPOLearnerCfg
from robot_rl.learn.algorithms.ppo.gae import advantages, policy_advantages, timeout_bonus
from robot_rl.learn.algorithms.ppo.graphed import make_graphed
from robot_rl.learn.algorithms.ppo.stale import Proximal, make_proximal
from robot_rl.learn.auxiliaries.amp import make_amp
from robot_rl.learn.auxiliaries.auxiliary import Auxiliary
from robot_rl.learn.auxiliaries.reference import make_reference
from robot_rl.learn.auxiliaries.rnd import make_rnd
from robot_rl.learn.checkpoints.worlds import under
from robot_rl.learn.dims import Dims, Mirrors
from robot_rl.learn.networks.actor_critic import Actor, Critic
from robot_rl.learn.networks.distributions import Params
from robot_rl.learn.optim import FlatAdam
from robot_rl.learn.precision.conversion import layers_of, measure
from robot_rl.learn.ranks import ALONE, Ranks
from robot_rl.learn.rollout import MOST_AGES, Batch, Rollout, mean_over
from robot_rl.plugins import load_reference, make

MAX_LOG_RATIO = 40.0
"""Logarithm of the greatest probability ratio: its products stay finite in float32, with exp finite up to 88.7."""
ROUNDING = 1e-6
"""Divergence that float32 may show between equal policies [nat]."""
MEASURED_ROWS = 4096
"""Rows of a rollout that grids are fitted to, about."""
STATISTICS = ("loss/value", "loss/surrogate", "loss/entropy", "loss/kl", "loss/clip_share")


class PPO(Algorithm):
    """Improves an actor and a critic, both on their final device, from rollouts.

    Attributes:
        symmetry: adds mirrored samples to every batch.
        generator: source of the minibatches, on the device of the networks.
        reward_weights: (K,) weight of each critic's advantages; all 1 by default.
        max_age: versions by which rollouts may be older, each with its own statistic.
        optimizer: steps both networks.
        is_quantized: whether a network computes in less than float32.
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
        ranks: Ranks = ALONE,
    ) -> None:
        self.actor, self.critic, self.cfg = actor, critic, cfg
        self.max_age = 1
        self.symmetry, self.generator = symmetry, generator
        self.auxiliaries, self.ranks = tuple(auxiliaries), ranks
        self.keeps_order = all(auxiliary.keeps_order for auxiliary in auxiliaries if auxiliary.worlds())
        self.critic_memory = critic.state_size
        device = next(actor.parameters()).device
        self.reward_weights = torch.tensor(list(reward_weights) or [1.0] * critic.num_values, device=device)
        self.optimizer = FlatAdam((actor, *critic.parts()), cfg.learning_rate, cfg.max_grad_norm, ranks=ranks)
        self.is_quantized = bool(layers_of(actor) or layers_of(critic))
        self.graphed = make_graphed(self, device)

    def modules(self) -> dict[str, nn.Module]:
        """Return actor and critic."""
        return {"actor": self.actor, "critic": self.critic}

    def state(self) -> dict[str, Tensor]:
        """Return the state of the optimizer, of the auxiliaries and of the random stream."""
        state = {f"optimizer.{name}": tensor for name, tensor in self.optimizer.state_dict().items()}
        for auxiliary in self.auxiliaries:
            state |= {f"auxiliary.{auxiliary.name}.{name}": t for name, t in auxiliary.state_dict().items()}
        return state | {name: stream.get_state() for name, stream in self.streams().items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Load the output of `state`."""
        self.optimizer.load_state_dict(under(state, "optimizer."))
        for auxiliary in self.auxiliaries:
            auxiliary.load_state_dict(under(state, f"auxiliary.{auxiliary.name}."))
        for name, stream in self.streams().items():
            stream.set_state(state[name])

    def streams(self) -> dict[str, torch.Generator]:
        """Return the random stream of the minibatches."""
        return {} if self.generator is None else {"random.order": self.generator}

    def worlds(self) -> dict[str, Tensor]:
        """Return the state that the auxiliaries keep of each world."""
        return {f"auxiliary.{a.name}.{name}": tensor for a in self.auxiliaries for name, tensor in a.worlds().items()}

    def acting_worlds(self) -> dict[str, Tensor]:
        """Return the state that the auxiliaries' hooks keep of each world."""
        found = {a.name: a.hook.worlds() for a in self.auxiliaries if a.hook is not None}
        return {f"auxiliary.{part}.{name}": tensor for part, own in found.items() for name, tensor in own.items()}

    def acting_streams(self) -> dict[str, torch.Generator]:
        """Return the random streams of the auxiliaries' hooks."""
        found = {a.name: a.hook.streams() for a in self.auxiliaries if a.hook is not None}
        return {f"auxiliary.{part}.{name}": stream for part, own in found.items() for name, stream in own.items()}

    def described(self) -> dict[str, Any]:
        """Return the auxiliaries' descriptions."""
        return {"auxiliaries": {auxiliary.name: auxiliary.described() for auxiliary in self.auxiliaries}}

    def check(self, described: Mapping[str, Any]) -> None:
        """Raise UserError for a checkpoint with other auxiliaries."""
        before = described.get("auxiliaries", {})
        missing = sorted(set(before) - {auxiliary.name for auxiliary in self.auxiliaries})
        if missing:
            raise UserError(
                f"auxiliaries: the run was trained with '{missing[0]}', which is missing here; give the learner the "
                "same auxiliary objectives"
            )
        for auxiliary in self.auxiliaries:
            auxiliary.check(before.get(auxiliary.name, {}))

    def update(self, rollout: Rollout, progress: float = 0.0) -> dict[str, Tensor]:
        """Learn from a rollout, then update the normalizers.

        Returns the means of `statistics` over the minibatches, the step size, the spread of the actions, and the
        statistics of the auxiliaries, each a tensor () on the device.
        """
        if self.cfg.schedule == "linear":
            self.optimizer.learning_rate.fill_(self.cfg.learning_rate * (1.0 - progress))
        proximal = self.make_proximal(rollout)
        batch = self.make_batch(rollout, proximal)
        frozen = rollout.frozen if proximal is None or batch.importance is None else self.actor.distribution.snapshot()
        mismatch = self.mismatch(batch) if self.is_quantized and proximal is None else {}
        statistics = self.fit(batch, frozen) | mismatch
        if proximal is not None:
            statistics |= proximal.statistics
        statistics |= rollout.ages(self.max_age)
        for auxiliary in self.auxiliaries:
            statistics |= auxiliary.update(rollout, progress)
        self.update_normalizers(rollout, batch.returns)
        self.calibrate_quantizers(rollout)
        statistics["policy/learning_rate"] = self.optimizer.learning_rate
        if (spread := self.actor.distribution.spread(rollout.out)) is not None:
            statistics["policy/std"] = spread
        return statistics

    def make_proximal(self, rollout: Rollout) -> Proximal | None:
        """Return the policy as it is at a rollout's samples, if an older one acted; None if this one did."""
        if rollout.learner_version is None:
            return None
        actor_in = self.actor.encode(rollout.flat(rollout.actor_obs))
        found, past = rollout.sequences(None), None
        if (state := found.get("actor_state")) is not None and (start := found["start"]) is not None:
            past = state, start
        more = {"clip": self.cfg.clip, "ranks": self.ranks}
        return make_proximal(self.actor, self.cfg.correction, rollout, actor_in=actor_in, past=past, **more)

    @torch.no_grad()
    def mismatch(self, batch: Batch) -> dict[str, Tensor]:
        """Return how the policy that learns differs from the one that acted, over the first minibatch, before it.

        "precision/log_ratio" () is the mean magnitude of the logarithm of the ratio of their probabilities, and
        "precision/log_ratio_max" the greatest. Both are 0 unless rollouts have another precision than the update.
        """
        size = max(1, batch.num_units // self.cfg.minibatches)
        part = batch.rows(torch.arange(size, device=batch.value.device))
        params = self.actor.distribution.params(self.actor.outputs(part.actor_in, part.actor_past))
        difference = (self.actor.distribution.log_prob(part.action, params) - part.log_prob).abs()
        if part.weight is not None:
            difference = torch.where(part.weight > 0, difference, 0.0)
        return {"precision/log_ratio": difference.mean(), "precision/log_ratio_max": difference.amax()}

    @torch.no_grad()
    def calibrate_quantizers(self, rollout: Rollout) -> None:
        """Fit the grids of quantized layers to the values that the networks, as they are now, compute at a rollout.

        Nothing changes if no layer has a grid. A recurrent network computes its first sequence of every world,
        others the steps of a part of the rollout.
        """
        if not self.is_quantized:
            return
        parts = (
            (self.actor, rollout.actor_obs, None if rollout.actor_state is None else rollout.actor_state[0]),
            (self.critic, rollout.critic_obs[:-1], rollout.critic_state),
        )
        for network, obs, state in parts:
            steps = slice(None, None, max(1, obs[..., 0].numel() // MEASURED_ROWS))
            steps = steps if state is None else slice(rollout.sequence)
            past = None if state is None else (state, rollout.starts()[steps])
            x = network.encode(obs[steps].flatten(0, 1))
            measure(network, partial(network.outputs, x, past), self.ranks.mean_)

    @torch.no_grad()
    def make_batch(self, rollout: Rollout, proximal: Proximal | None = None) -> Batch:
        """Return a rollout's samples with advantages and returns, flattened over steps and worlds.

        `proximal` is the result of `make_proximal` for it.
        """
        for auxiliary in self.auxiliaries:
            auxiliary.begin(rollout)
        flat, is_decoupled = rollout.flat, proximal is not None and self.cfg.correction.objective == "decoupled"
        critic_in = self.critic.encode(rollout.critic_obs.flatten(0, 1)).unflatten(0, rollout.critic_obs.shape[:2])
        values, states = self.values(rollout, critic_in)
        valid = rollout.valid if rollout.has_invalid else None
        advantage, traced = map(flat, self._both_advantages(rollout, values, valid, states, proximal))
        value = flat(values[:-1])
        batch = Batch(
            actor_in=self.actor.encode(flat(rollout.actor_obs)) if proximal is None else proximal.actor_in,
            critic_in=flat(critic_in[:-1]),
            action=flat(rollout.action),
            out=proximal.out if proximal is not None and is_decoupled else flat(rollout.out),
            log_prob=proximal.log_prob if proximal is not None and is_decoupled else flat(rollout.log_prob),
            importance=proximal.importance if proximal is not None and is_decoupled else None,
            value=value,
            advantage=self._combine(advantage, None if valid is None else flat(valid)),
            returns=traced + value,
            more={name: flat(t) for auxiliary in self.auxiliaries for name, t in auxiliary.samples(rollout).items()},
            moment=max(self.actor.moment, self.critic.moment),
            **rollout.sequences(states),
        )
        if valid is not None:
            weight = flat(valid).to(value.dtype)
            batch.weight = weight / self.ranks.mean_(weight.mean()).clamp(min=1e-8)
        if self.symmetry is not None:
            more: dict[str, Tensor] = {}
            for auxiliary in self.auxiliaries:
                more |= auxiliary.mirrored(batch.more, self.symmetry.action)
            batch = self.symmetry.extend(batch, rollout, self.actor, self.critic, more=more, ranks=self.ranks)
        return batch

    def values(self, rollout: Rollout, critic_in: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the values of a rollout's encoded states (T + 1, N, F), and record the critic's memory after it.

        They are (T + 1, N), or (T + 1, N, K) with several critics; with them comes a recurrent critic's state after
        each observation, (T + 1, N, S), None without a memory.
        """
        shape, states = critic_in.shape[:2], None
        if rollout.critic_state is None or rollout.critic_after is None:
            values = self.critic.values(critic_in.flatten(0, 1))
        else:
            starts = rollout.starts()
            values, states = self.critic.trace(critic_in.flatten(0, 1), (rollout.critic_state, starts))
            rollout.critic_after.copy_(states[-2].masked_fill(starts[-1, :, None], 0.0))
        return values.unflatten(0, shape), states

    def advantages(
        self, rollout: Rollout, values: Tensor, valid: Tensor | None, states: Tensor | None = None
    ) -> Tensor:
        """Return the advantages of a rollout, (T, N), or (T, N, K) with several critics.

        `values` and `states` are those of `PPO.values`, and `valid` (T, N) the samples that may be learned from; None:
        all.
        """
        return advantages(*self._rewards(rollout, values, valid, states), self.cfg.gamma, self.cfg.lam)

    def _both_advantages(
        self,
        rollout: Rollout,
        values: Tensor,
        valid: Tensor | None,
        states: Tensor | None,
        proximal: Proximal | None,
    ) -> tuple[Tensor, Tensor]:
        """Return the policy's advantages, and those that the critic's targets are made of: the same but for V-trace."""
        if proximal is None or self.cfg.correction.advantages == "gae":
            found = self.advantages(rollout, values, valid, states)
            return found, found
        found = self._rewards(rollout, values, valid, states)
        trace = rollout.unflat(proximal.trace)
        trace = trace if values.ndim == 2 else trace[..., None]
        traced = advantages(*found, self.cfg.gamma, self.cfg.lam, trace=trace)
        return policy_advantages(*found, self.cfg.gamma, self.cfg.lam, traced=traced), traced

    def _rewards(
        self, rollout: Rollout, values: Tensor, valid: Tensor | None, states: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return rewards, values and episode ends as `advantages` takes them; the arguments are its."""
        reward, done, time_out = rollout.reward, rollout.done, rollout.time_out
        for auxiliary in self.auxiliaries:
            if (added := auxiliary.reward(rollout)) is not None:
                added = added if reward.ndim == 2 else added[..., None] / reward.shape[-1]
                reward = auxiliary.reward_weight * reward + added
        if values.ndim == 3:  # Each critic has its own value; episodes end for all of them.
            done, time_out = done[..., None], time_out[..., None]
            valid = None if valid is None else valid[..., None]
        reward = reward + timeout_bonus(self._timeout_values(rollout, values, states), time_out, self.cfg.gamma)
        if valid is not None:
            # A quarantined sample passes nothing on to the samples before it, not even a value of its state: the one
            # before it continues with its own.
            before = torch.cat((values[:1], values[:-2]))
            values = torch.cat((torch.where(valid, values[:-1], before), values[-1:]))
            reward, done = torch.where(valid, reward, values[:-1]), done | ~valid
        return reward, values, done

    def fit(self, batch: Batch, frozen: Tensor | None) -> dict[str, Tensor]:
        """Run the epochs over a batch, and return the means of `statistics` over the minibatches.

        `frozen` is the `Distribution.snapshot` of the policy that acted, here and below.
        """
        units, size = batch.num_units, batch.num_units // self.cfg.minibatches
        if size == 0:
            kind = "samples" if batch.start is None else f"sequences of {batch.start.shape[0]} steps"
            raise UserError(f"ppo.minibatches: {self.cfg.minibatches} is more than the {units} {kind}")
        total = torch.zeros(len(self.statistics), device=batch.value.device)
        step = self.graphed.bind(batch, size, frozen) if self.graphed else partial(self.step, batch, frozen=frozen)
        for _ in range(self.cfg.epochs):
            order = torch.randperm(units, generator=self.generator, device=batch.value.device)
            for start in range(0, size * self.cfg.minibatches, size):
                total += step(order[start : start + size])
        total /= self.cfg.epochs * self.cfg.minibatches
        return dict(zip(self.statistics, total.unbind(), strict=True))

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
            adapt(self.optimizer.learning_rate, self.optimizer.averaged_scalar, self.cfg)
        self.optimizer.apply()

    def loss(self, batch: Batch, frozen: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return a minibatch's loss () and `statistics`; its divergence is the optimizer's `averaged_scalar`."""
        cfg = self.cfg
        policy = policy_loss(self.actor, batch, frozen, cfg.clip)
        value_loss = self.value_loss(batch)
        total = policy.surrogate + cfg.value_coef * value_loss - cfg.entropy_coef * policy.entropy
        for auxiliary in self.auxiliaries:
            if (term := auxiliary.loss(batch, policy.params)) is not None:
                total = total + term
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

    def _timeout_values(self, rollout: Rollout, values: Tensor, states: Tensor | None) -> Tensor:
        """Return (T, N), or (T, N, K), the value at which an episode that was cut short would have continued."""
        if self.cfg.bootstrap == "state" or not rollout.has_final_obs:
            return values[:-1]
        final, past = rollout.final_obs.flatten(0, 1), None if states is None else states[:-1].flatten(0, 1)
        if final.device.type != "cpu":
            return self.critic.value(final, past).view_as(rollout.reward)
        cut = rollout.time_out.reshape(-1, self.critic.moment)
        if self.critic.moment > 1:  # whole worlds
            cut = cut.any(1, keepdim=True).expand_as(cut)
        rows = cut.reshape(-1).nonzero().squeeze(-1)  # No device waits here: this is the CPU.
        result = torch.zeros_like(values[:-1].flatten(0, 1))
        result[rows] = self.critic.value(final[rows], None if past is None else past[rows])
        return result.view_as(rollout.reward)

    def _combine(self, advantage: Tensor, valid: Tensor | None) -> Tensor:
        """Return the policy's advantages (B,), of mean 0 and deviation 1.

        With several critics each one's are normalized separately, weighted and added, so that no group of rewards
        dominates another by its scale (Mysore et al. 2022); the sum is normalized again.
        """
        if advantage.ndim == 1:
            return _normalize(advantage, valid, self.ranks)
        parts = [_normalize(part, valid, self.ranks) for part in advantage.unbind(-1)]
        return _normalize(torch.stack(parts, dim=-1) @ self.reward_weights, valid, self.ranks)


def adapt(rate: Tensor, divergence: Tensor, cfg: PPOCfg) -> None:
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
    changes the log-probability by a hundred. Its weight is 0, but 0 times infinity is not. Beyond the bound the ratio
    has the gradient of the bound, so that an action that was too bad still becomes less probable. Below it nothing
    changes.
    """
    log_ratio = log_prob - old_log_prob
    return torch.exp(log_ratio - (log_ratio.detach() - MAX_LOG_RATIO).clamp(min=0.0))


def _normalize(advantage: Tensor, valid: Tensor | None, ranks: Ranks) -> Tensor:
    """Return advantages (B,) with mean 0 and deviation 1 over the valid ones of all ranks; the others become 0."""
    if valid is None and ranks.size == 1:
        deviation = advantage.std(correction=min(1, advantage.numel() - 1))  # A single sample has none.
        return (advantage - advantage.mean()) / (deviation + 1e-8)
    valid = torch.ones_like(advantage, dtype=torch.bool) if valid is None else valid
    count, total = ranks.sum_(torch.stack((valid.sum(), torch.where(valid, advantage, 0.0).sum()))).unbind()
    count = count.clamp(min=2)
    centered = torch.where(valid, advantage - total / count, 0.0)
    return centered / ((ranks.sum_(centered.square().sum()) / (count - 1)).sqrt() + 1e-8)


P = TypeVar("P", bound=PPO)
ORDER = 2
"""Added to the run's seed for the stream that minibatches are drawn from."""


def make_networks(
    cfg: PPOLearnerCfg, dims: Dims, mirrors: Mirrors | None, generator: torch.Generator | None = None
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
        symmetry=_augmentation(cfg, context),
        generator=context.generator(ORDER),
        auxiliaries=make_auxiliaries(cfg, context, first),
        reward_weights=cfg.reward_weights,
        ranks=context.ranks,
    )
    algorithm.max_age = min(max(1, cfg.staleness.max), MOST_AGES)
    return algorithm


def make_auxiliaries(cfg: PPOLearnerCfg, context: Context, own: tuple[Auxiliary, ...] = ()) -> tuple[Auxiliary, ...]:
    """Return the auxiliary objectives of a configuration, on their device; `own` are those of the algorithm itself."""
    env, device, seed, ranks = context.env, context.device, context.seed, context.ranks
    found: list[Auxiliary] = []
    if cfg.amp.weight > 0:  # Before those that add rewards: only the task's reward gives way to it.
        found.append(make_amp(cfg.amp, env, device, seed, ranks))
    if cfg.rnd.weight > 0:
        found.append(make_rnd(cfg.rnd, env, device, seed, ranks))
    found += own
    if cfg.reference.run:
        found.append(make_reference(cfg, env, context.dims, device))
    found += [_users(name, context) for name in cfg.auxiliaries]
    names = [auxiliary.name for auxiliary in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"auxiliaries: two are called '{twice[0]}'; give one of them another `name`")
    return tuple(found)


def _users(name: str, context: Context) -> Auxiliary:
    """Return the auxiliary objective that "module:name" makes."""
    line, right = f"auxiliaries={name}", "must return an `Auxiliary` with a name"
    made = make(load_reference(name, "auxiliaries"), Auxiliary, line, right, context)
    if not made.name:
        raise UserError(f"{line}: {right}, found {made!r}")
    return made.to(context.device)


def _augmentation(cfg: PPOLearnerCfg, context: Context) -> AugmentSymmetry | None:
    """Return the object that adds mirrored samples, for symmetry=augment."""
    if cfg.symmetry != "augment" or context.mirrors is None:
        return None
    moved = {name: (p.to(context.device), sign.to(context.device)) for name, (p, sign) in context.mirrors.items()}
    return AugmentSymmetry(**moved)

"""Proximal policy optimization (Schulman et al. 2017) with a critic that may see more than the actor.

Where this departs from the usual implementations: the critic is not evaluated while the rollout is collected but once
after it; a time-out bootstraps from the value of the observation it ended at; minibatches are drawn anew in each epoch;
the step size lives on the device, so the adaptive schedule (as in rsl_rl) reads nothing back.
"""

from __future__ import annotations

import torch
from torch import Tensor

from robot_rl.config import PPOCfg
from robot_rl.errors import UserError
from robot_rl.learn import gaussian
from robot_rl.learn.gae import advantages, timeout_bonus
from robot_rl.learn.networks import Actor, Critic
from robot_rl.learn.optim import FlatAdam
from robot_rl.learn.storage import Batch, Rollout
from robot_rl.learn.symmetry import AugmentSymmetry

ROUNDING = 1e-6
"""Divergence that float32 may show between equal policies [nat]."""
STATISTICS = ("loss/value", "loss/surrogate", "loss/entropy", "loss/kl", "loss/clip_share")


class PPO:
    """Improves an actor and a critic from rollouts.

    Attributes:
        actor: the policy.
        critic: the value function.
        optimizer: steps both.
        cfg: the hyperparameters.
    """

    def __init__(
        self,
        actor: Actor,
        critic: Critic,
        cfg: PPOCfg,
        *,
        symmetry: AugmentSymmetry | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        """Take over two networks, which must be on their final device.

        Args:
            actor: the policy.
            critic: the value function.
            cfg: the hyperparameters.
            symmetry: adds mirrored samples to every batch.
            generator: source of the minibatches, on the device of the networks.
        """
        self.actor, self.critic, self.cfg = actor, critic, cfg
        self.symmetry, self.generator = symmetry, generator
        self.optimizer = FlatAdam((actor, critic), cfg.learning_rate, cfg.max_grad_norm)

    def update(self, rollout: Rollout, progress: float = 0.0) -> dict[str, Tensor]:
        """Learn from a rollout, then let the normalizers see it.

        Args:
            rollout: the rollout; its samples must stem from the current policy.
            progress: share of the training that is done, in [0, 1], for the linear schedule.

        Returns:
            Means over the minibatches by name (STATISTICS), each a tensor () on the device.
        """
        if self.cfg.schedule == "linear":
            self.optimizer.learning_rate.fill_(self.cfg.learning_rate * (1.0 - progress))
        statistics = self.fit(self.make_batch(rollout))
        self.update_normalizers(rollout)
        return statistics

    @torch.no_grad()
    def make_batch(self, rollout: Rollout) -> Batch:
        """Turn a rollout into samples with advantages and returns, flattened over steps and worlds."""
        num_steps, num_envs = rollout.reward.shape
        actor_in = self.actor.encode(rollout.actor_obs.flatten(0, 1))
        critic_in = self.critic.encode(rollout.critic_obs.flatten(0, 1))
        values = self.critic.body(critic_in).view(num_steps + 1, num_envs)
        reward = rollout.reward + timeout_bonus(self._timeout_values(rollout, values), rollout.time_out, self.cfg.gamma)
        valid = rollout.valid if rollout.has_invalid else None
        done = rollout.done
        if valid is not None:  # A quarantined sample passes nothing on to the samples before it.
            reward, done = torch.where(valid, reward, values[:-1]), done | ~valid
        advantage = advantages(reward, values, done, self.cfg.gamma, self.cfg.lam)
        count = num_steps * num_envs
        value, action, mean = values[:-1].reshape(-1), rollout.action.flatten(0, 1), rollout.mean.flatten(0, 1)
        batch = Batch(
            actor_in=actor_in,
            critic_in=critic_in[:count],
            action=action,
            mean=mean,
            log_prob=gaussian.log_prob(action, mean, self.actor.current_log_std()),
            value=value,
            advantage=_normalize(advantage.reshape(-1), None if valid is None else valid.reshape(-1)),
            returns=advantage.reshape(-1) + value,
        )
        if valid is not None:
            weight = valid.reshape(-1).to(value.dtype)
            batch.weight = weight / weight.mean().clamp(min=1e-8)
        if self.symmetry is not None:
            batch = self.symmetry.extend(batch, rollout, self.actor, self.critic)
        return batch

    def fit(self, batch: Batch) -> dict[str, Tensor]:
        """Run the epochs over a batch and return the means of STATISTICS over the minibatches."""
        size = batch.value.shape[0] // self.cfg.minibatches
        if size == 0:
            raise UserError(f"ppo.minibatches: {self.cfg.minibatches} is more than the {batch.value.shape[0]} samples")
        old_log_std = self.actor.current_log_std().detach().clone()
        total = torch.zeros(len(STATISTICS), device=batch.value.device)
        for _ in range(self.cfg.epochs):
            order = torch.randperm(batch.value.shape[0], generator=self.generator, device=batch.value.device)
            for start in range(0, size * self.cfg.minibatches, size):
                part = batch.rows(order[start : start + size])
                loss, statistics = self.loss(part, old_log_std)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                total += statistics
        total /= self.cfg.epochs * self.cfg.minibatches
        return dict(zip(STATISTICS, total.unbind(), strict=True))

    def loss(self, batch: Batch, old_log_std: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss () of a minibatch and its STATISTICS; adapts the step size to the divergence on the way.

        Args:
            batch: the minibatch.
            old_log_std: (A,) log deviation of the policy that acted.
        """
        cfg, weight = self.cfg, batch.weight
        mean, log_std = self.actor.body(batch.actor_in), self.actor.current_log_std()
        value = self.critic.body(batch.critic_in).squeeze(-1)
        ratio = torch.exp(gaussian.log_prob(batch.action, mean, log_std) - batch.log_prob)
        clipped = ratio.clamp(1.0 - cfg.clip, 1.0 + cfg.clip)
        surrogate = -_mean(torch.minimum(batch.advantage * ratio, batch.advantage * clipped), weight)
        error = (value - batch.returns).square()
        if cfg.clip_value_loss:
            near = batch.value + (value - batch.value).clamp(-cfg.clip, cfg.clip)
            error = torch.maximum(error, (near - batch.returns).square())
        value_loss, entropy = _mean(error, weight), gaussian.entropy(log_std)
        with torch.no_grad():
            divergence = _mean(gaussian.kl(batch.mean, old_log_std, mean, log_std), weight)
            if cfg.schedule == "adaptive":
                self._adapt(divergence)
            clip_share = _mean((ratio != clipped).to(ratio.dtype), weight)
            statistics = torch.stack((value_loss, surrogate, entropy, divergence, clip_share)).detach()
        return surrogate + cfg.value_coef * value_loss - cfg.entropy_coef * entropy, statistics

    def update_normalizers(self, rollout: Rollout) -> None:
        """Let the normalizers see the observations of a rollout."""
        valid = rollout.valid.reshape(-1) if rollout.has_invalid else None
        for network, obs in ((self.actor, rollout.actor_obs), (self.critic, rollout.critic_obs[:-1])):
            if network.normalizer is not None:
                network.normalizer.update(obs.flatten(0, 1), valid)

    def _timeout_values(self, rollout: Rollout, values: Tensor) -> Tensor:
        """Return (T, N) the value at which an episode that was cut short would have gone on."""
        if self.cfg.bootstrap == "state" or not rollout.has_final_obs:
            return values[:-1]
        final = rollout.final_obs.flatten(0, 1)
        if final.device.type != "cpu":
            return self.critic.value(final).view_as(rollout.reward)
        rows = rollout.time_out.reshape(-1).nonzero().squeeze(-1)  # No device waits here: this is the CPU.
        result = torch.zeros_like(rollout.reward).reshape(-1)
        result[rows] = self.critic.value(final[rows])
        return result.view_as(rollout.reward)

    def _adapt(self, divergence: Tensor) -> None:
        """Steer the step size so that the divergence stays between half and twice the desired one.

        Before the first step of an update the policy is still the one that acted: what is measured then is rounding,
        and changes nothing.
        """
        cfg, rate = self.cfg, self.optimizer.learning_rate
        slower = (rate / 1.5).clamp(min=cfg.min_learning_rate)
        faster = (rate * 1.5).clamp(max=cfg.max_learning_rate)
        is_low = (divergence < 0.5 * cfg.desired_kl) & (divergence > ROUNDING)
        rate.copy_(torch.where(divergence > 2.0 * cfg.desired_kl, slower, torch.where(is_low, faster, rate)))


def _mean(x: Tensor, weight: Tensor | None) -> Tensor:
    return x.mean() if weight is None else (x * weight).mean()


def _normalize(advantage: Tensor, valid: Tensor | None) -> Tensor:
    """Return advantages (B,) with mean 0 and deviation 1 over the valid ones; the others become 0."""
    if valid is None:
        return (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    count = valid.sum().clamp(min=2)
    centered = torch.where(valid, advantage, 0.0)
    centered = torch.where(valid, advantage - centered.sum() / count, 0.0)
    return centered / ((centered.square().sum() / (count - 1)).sqrt() + 1e-8)

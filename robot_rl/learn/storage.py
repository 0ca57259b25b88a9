"""One rollout, held as plain tensors [T, N, ...] that are allocated once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(slots=True, kw_only=True)
class Dims:
    """Sizes that the environment dictates.

    Attributes:
        actor: components of the actor's observation.
        critic: components of the critic's observation.
        action: components of an action.
    """

    actor: int
    critic: int
    action: int


@dataclass(slots=True)
class Rollout:
    """What was seen and done in T steps of N worlds.

    Attributes:
        actor_obs: (T, N, Da) raw observations of the actor before each step.
        critic_obs: (T + 1, N, Dc) raw observations of the critic before each step, and after the last.
        final_obs: (T, N, Dc) critic observations at which episodes ended; rows without an end hold anything.
        noise: (T, N, A) standard normal numbers that the actions are made of.
        action: (T, N, A) actions.
        mean: (T, N, A) their means.
        reward: (T, N) rewards.
        done: (T, N) bool, the episode ended with this step.
        time_out: (T, N) bool, it was cut short.
        valid: (T, N) bool, the sample may be learned from; false where a world was quarantined.
        has_final_obs: the environment told final observations.
        has_invalid: `valid` may hold false.
    """

    actor_obs: Tensor
    critic_obs: Tensor
    final_obs: Tensor
    noise: Tensor
    action: Tensor
    mean: Tensor
    reward: Tensor
    done: Tensor
    time_out: Tensor
    valid: Tensor
    has_final_obs: bool = False
    has_invalid: bool = False

    def blank_invalid(self) -> None:
        """Replace what a quarantined world left, which need not be finite, by zeros."""
        bad = ~self.valid
        for tensor in (self.actor_obs, self.critic_obs[:-1], self.final_obs, self.action, self.mean):
            tensor.masked_fill_(bad[..., None], 0.0)
        self.critic_obs[-1].masked_fill_(bad[-1, :, None], 0.0)
        self.reward.masked_fill_(bad, 0.0)


def make_rollout(num_steps: int, num_envs: int, dims: Dims, device: str | torch.device) -> Rollout:
    """Allocate a rollout of T = num_steps steps and N = num_envs worlds."""
    shape = (num_steps, num_envs)

    def floats(*tail: int, steps: int = num_steps) -> Tensor:
        return torch.zeros(steps, num_envs, *tail, device=device)

    def flags(value: bool) -> Tensor:
        return torch.full(shape, value, dtype=torch.bool, device=device)

    return Rollout(
        actor_obs=floats(dims.actor),
        critic_obs=floats(dims.critic, steps=num_steps + 1),
        final_obs=floats(dims.critic),
        noise=floats(dims.action),
        action=floats(dims.action),
        mean=floats(dims.action),
        reward=floats(),
        done=flags(False),
        time_out=flags(False),
        valid=flags(True),
    )


@dataclass(slots=True)
class Batch:
    """Samples to learn from, B = T N of them or a minibatch.

    Attributes:
        actor_in: (B, Fa) what the actor's network takes (`Actor.encode`).
        critic_in: (B, Fc) what the critic's network takes.
        action: (B, A) actions.
        mean: (B, A) means under the policy that acted.
        log_prob: (B,) log-probabilities under it.
        value: (B,) values before the update.
        advantage: (B,) normalized advantages.
        returns: (B,) targets of the value function.
        weight: (B,) weight in every mean, mean 1; None: all alike.
    """

    actor_in: Tensor
    critic_in: Tensor
    action: Tensor
    mean: Tensor
    log_prob: Tensor
    value: Tensor
    advantage: Tensor
    returns: Tensor
    weight: Tensor | None = None

    def tensors(self) -> list[Tensor]:
        """Return the fields that are there, in order."""
        fields = [self.actor_in, self.critic_in, self.action, self.mean]
        fields += [self.log_prob, self.value, self.advantage, self.returns]
        return fields if self.weight is None else [*fields, self.weight]

    def rows(self, index: Tensor) -> Batch:
        """Return the samples at the indices (b,)."""
        return Batch(*(tensor.index_select(0, index) for tensor in self.tensors()))

    def join(self, other: Batch) -> Batch:
        """Return these samples followed by others."""
        pairs = zip(self.tensors(), other.tensors(), strict=True)
        return Batch(*(torch.cat(pair) for pair in pairs))

"""Rollouts, as tensors (T, N, ...) that are allocated once, and the batches of samples made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from robot_rl.learn.dims import EnvSpec
from robot_rl.learn.networks.distributions import Distribution


@dataclass(slots=True)
class Rollout:
    """The observations and actions of T steps of N worlds, and the policy that acted.

    The learner takes log-probabilities and parameters of the policy that acted from here, never from its own weights,
    which may be newer.

    Attributes:
        actor_obs: (T, N, Da) raw observations of the actor before each step.
        critic_obs: (T + 1, N, Dc) raw observations of the critic before each step, and after the last.
        final_obs: (T, N, Dc) critic observations at which episodes ended; other rows are undefined.
        noise: (T, N, A) random numbers of the actions.
        action: (T, N, A) raw actions (`Distribution.sample`).
        out: (T, N, P) outputs of the actor's network that they were drawn at.
        reward: (T, N) rewards, (T, N, K) with several critics.
        done: (T, N) bool, the episode ended with this step.
        time_out: (T, N) bool, it was cut short.
        valid: (T, N) bool, the sample may be learned from; false for a quarantined world.
        groups: other observation groups that are learned from, (T + 1, N, D) each.
        ends: the same groups at which episodes ended, (T, N, D) each; other rows are undefined.
        log_prob: (T, N) log-probability of each action under the policy that drew it.
        version: (T, N) int64, iterations that this policy had learned for.
        learner_version: () int64, iterations that the policy has learned for that learns from it; None: this one acted.
        frozen: its `Distribution.snapshot`; with `out` the parameters of its distribution.
        normalizer: mean and scale (Da,) of its normalizer; None without one.
        recorded: tensors that auxiliaries recorded during the rollout, (T, N, ...) each by name.
        has_final_obs: the environment gave final observations.
        has_invalid: `valid` may hold false.
        sequence: steps L of the sequences that a recurrent network learns from; 0 without one.
        actor_state: (T / L, N, S) state of a recurrent actor before each sequence; None without one.
        critic_state: (N, S) state of a recurrent critic before the first step; None without one.
        critic_after: (N, S) its state after the last step, set when its values are computed.
        blocks: first world and number of worlds of the columns, block after block; empty: column n is world n.
    """

    actor_obs: Tensor
    critic_obs: Tensor
    final_obs: Tensor
    noise: Tensor
    action: Tensor
    out: Tensor
    reward: Tensor
    done: Tensor
    time_out: Tensor
    valid: Tensor
    log_prob: Tensor
    version: Tensor
    learner_version: Tensor | None = None
    frozen: Tensor | None = None
    normalizer: tuple[Tensor, Tensor] | None = None
    recorded: dict[str, Tensor] = field(default_factory=dict)
    groups: dict[str, Tensor] = field(default_factory=dict)
    ends: dict[str, Tensor] = field(default_factory=dict)
    has_final_obs: bool = False
    has_invalid: bool = False
    sequence: int = 0
    actor_state: Tensor | None = None
    critic_state: Tensor | None = None
    critic_after: Tensor | None = None
    blocks: tuple[tuple[int, int], ...] = ()

    def by_world(self) -> list[tuple[slice, slice]]:
        """Return the columns and the worlds of each block; of a world that is there twice the earlier steps are first.

        Segments of simulators come in the order in which they are ready, so that one may be there twice, and another
        one not at all.
        """
        found, first = [], 0
        for world, count in self.blocks or ((0, self.done.shape[1]),):
            found.append((slice(first, first + count), slice(world, world + count)))
            first += count
        return found

    def ages(self, most: int) -> dict[str, Tensor]:
        """Return by how many versions samples are older than the learner: mean, most, and the share of each age.

        `most` is the greatest age that is counted by itself; nothing is returned without `learner_version`.
        """
        if self.learner_version is None:
            return {}
        age = (self.learner_version - self.version).to(torch.float32)
        weight = self.valid.to(torch.float32)
        weight = weight / weight.mean().clamp(min=1e-8)
        shares = {f"staleness/share_{k}": ((age == k) * weight).mean() for k in range(most + 1)}
        return {"staleness/mean": (age * weight).mean(), "staleness/max": (age * self.valid).max(), **shares}

    def hold_states(self, sequence: int, actor: int, critic: int) -> None:
        """Allocate the states of recurrent networks, of `actor` and `critic` components (0: none), for sequences."""
        steps, worlds = self.done.shape
        if actor or critic:
            self.sequence = sequence
        if actor:
            self.actor_state = self.noise.new_zeros(steps // sequence, worlds, actor)
        if critic:
            self.critic_state, self.critic_after = self.noise.new_zeros(2, worlds, critic).unbind()

    def begin(self) -> None:
        """Prepare to be filled: reset values that only some environments report; continue with the critic's state."""
        if self.has_invalid:
            self.valid.fill_(True)
        self.has_final_obs = self.has_invalid = False
        if self.critic_state is not None and self.critic_after is not None:
            self.critic_state.copy_(self.critic_after)

    def copy_(self, other: Rollout) -> None:
        """Copy another rollout of the same shapes, but for the states of a recurrent critic."""
        for name in ("has_final_obs", "has_invalid"):
            setattr(self, name, getattr(other, name))
        self.frozen = None if other.frozen is None else other.frozen.clone()
        self.normalizer = other.normalizer
        mine, theirs = self.buffers(), other.buffers()
        for name, tensor in mine.items():
            tensor.copy_(theirs[name])

    def buffers(self) -> dict[str, Tensor]:
        """Return the tensors that are filled in place, by name, but for the states of a recurrent critic."""
        left_out = ("learner_version", "frozen", "critic_state", "critic_after")
        own = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in left_out}
        found = {name: value for name, value in own.items() if isinstance(value, Tensor)}
        for part in ("groups", "ends", "recorded"):
            found |= {f"{part}.{name}": tensor for name, tensor in own[part].items()}
        return found

    @torch.no_grad()
    def record_policy(self, distribution: Distribution, frozen: Tensor | None) -> None:
        """Record the policy that acted: its `Distribution.snapshot`, and the log-probability of its actions."""
        self.frozen = frozen
        params = distribution.params(self.out.flatten(0, 1), frozen)
        self.log_prob.copy_(distribution.log_prob(self.action.flatten(0, 1), params).view_as(self.log_prob))

    def ended(self, t: int) -> Tensor:
        """Return whether a recurrent state of step t becomes invalid (N,): an episode's end, or a quarantine."""
        return self.done[t] | ~self.valid[t]

    def starts(self) -> Tensor:
        """Return whether a step is the first after such an end, (T + 1, N) bool; row 0 is false."""
        ends = self.done | ~self.valid
        return torch.cat((torch.zeros_like(ends[:1]), ends))

    def sequences(self, critic_states: Tensor | None) -> dict[str, Tensor | None]:
        """Return a batch's `start`, `actor_state` and `critic_state`; nothing without a recurrent network.

        `critic_states` (T + 1, N, S) is the recurrent critic's state after each observation; None without one.
        """
        if not self.sequence:
            return {}
        before = None
        if critic_states is not None and self.critic_state is not None:
            ends = critic_states[self.sequence - 1 : -2 : self.sequence]
            before = torch.cat((self.critic_state[None], ends)).flatten(0, 1)
        actor = None if self.actor_state is None else self.actor_state.flatten(0, 1)
        start = self.flat(self.starts()[:-1]).unflatten(0, (self.sequence, -1))
        return {"start": start, "actor_state": actor, "critic_state": before}

    def flat(self, x: Tensor) -> Tensor:
        """Return (T, N, ...) as (T N, ...), the samples in the order of a batch.

        That is step after step of all worlds. With sequences of L < T steps it is step after step of all T / L N
        sequences, so that row l U + u is step l of sequence u.
        """
        if self.sequence in (0, x.shape[0]):
            return x.flatten(0, 1)
        return x.unflatten(0, (-1, self.sequence)).transpose(0, 1).flatten(0, 2)

    def unflat(self, x: Tensor) -> Tensor:
        """Return samples (T N, ...) in the order of a batch as (T, N, ...)."""
        steps, worlds = self.done.shape
        if self.sequence in (0, steps):
            return x.unflatten(0, (steps, worlds))
        return x.unflatten(0, (self.sequence, -1, worlds)).transpose(0, 1).flatten(0, 1)

    def zero_invalid(self) -> None:
        """Replace the samples of quarantined worlds, which need not be finite, by zeros."""
        bad = ~self.valid
        kept = (self.actor_obs, self.critic_obs[:-1], self.final_obs, self.action, self.out)
        for tensor in (*kept, *self.ends.values(), *self.recorded.values()):
            tensor.masked_fill_(bad[..., None], 0.0)
        self.critic_obs[-1].masked_fill_(bad[-1, :, None], 0.0)
        for tensor in self.groups.values():
            tensor[:-1].masked_fill_(bad[..., None], 0.0)
            tensor[-1].masked_fill_(bad[-1, :, None], 0.0)
        self.reward.masked_fill_(bad if self.reward.ndim == 2 else bad[..., None], 0.0)

    def next_observations(self, group: str) -> tuple[Tensor, Tensor]:
        """Return each step's next observation in one of `groups`, within the same episode, and whether it is known.

        They are (T, N, D), the final one if the episode ended, and (T, N) bool: false if the sample or the next one
        may not be learned from, and if an episode ended without a final observation. Unknown rows are zeros.
        """
        after, known = self.groups[group][1:], torch.ones_like(self.done)
        if self.has_final_obs:
            after = torch.where(self.done[..., None], self.ends[group], after)
        else:
            known = ~self.done
        if self.has_invalid:
            known = known & self.valid
            known[:-1] &= self.valid[1:] | self.done[:-1]
        return torch.where(known[..., None], after, 0.0), known


@dataclass(kw_only=True, slots=True)
class RolloutSpec:
    """The contents of rollouts that an algorithm needs in addition to those of every rollout.

    Attributes:
        out_dim: outputs P of the policy's network.
        actor_memory: components of a recurrent policy's state in each world; 0 without one.
        critic_memory: the same of the critic.
        groups: observation groups to keep, each with the setting that names it.
        hooks: `robot_rl.learn.auxiliaries.auxiliary.RolloutHook`s of auxiliary objectives.
    """

    out_dim: int
    actor_memory: int = 0
    critic_memory: int = 0
    groups: Mapping[str, str] = field(default_factory=dict)
    hooks: Sequence[Any] = ()


def make_rollout(
    num_steps: int,
    num_envs: int,
    dims: EnvSpec,
    device: str | torch.device,
    *,
    out_dim: int | None = None,
    groups: Mapping[str, int] | None = None,
    recorded: Mapping[str, int] | None = None,
) -> Rollout:
    """Allocate a rollout of T = `num_steps` steps of N = `num_envs` worlds.

    `out_dim` is the number P of outputs of the actor's network (None: that of actions); `groups` and `recorded` have
    the components of other observation groups, and of the tensors that auxiliaries record.
    """
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
        out=floats(dims.action if out_dim is None else out_dim),
        reward=floats() if dims.num_values == 1 else floats(dims.num_values),
        done=flags(False),
        time_out=flags(False),
        valid=flags(True),
        log_prob=torch.full(shape, torch.nan, device=device),  # Until `record_policy`: no loss stays finite without it.
        version=torch.zeros(shape, dtype=torch.int64, device=device),
        recorded={name: floats(size) for name, size in (recorded or {}).items()},
        groups={name: floats(size, steps=num_steps + 1) for name, size in (groups or {}).items()},
        ends={name: floats(size) for name, size in (groups or {}).items()},
    )


MOST_AGES = 32
"""Ages of samples that have a statistic each."""
UNITS = ("actor_state", "critic_state")
"""Fields of a batch that have one row for each sequence."""


@dataclass(slots=True)
class Batch:
    """Samples to learn from, B = T N of them or a minibatch.

    Attributes:
        actor_in: (B, Fa) inputs of the actor's network (`Actor.encode`).
        critic_in: (B, Fc) inputs of the critic's network.
        action: (B, A) raw actions.
        out: (B, P) outputs of the network that acted.
        log_prob: (B,) log-probabilities under it.
        value: (B,) values before the update; (B, K) with several critics.
        advantage: (B,) normalized advantages.
        returns: (B,) targets of the value function; (B, K) with several critics.
        importance: (B,) weight of an older policy's samples in the policy's loss; None: the current one acted.
        weight: (B,) weight in every mean, mean 1; None: all alike.
        start: (L, U) bool, a step of U sequences begins an episode; None without recurrent networks. Samples are then
            stored step after step, B = L U, and minibatches consist of whole sequences.
        actor_state: (U, S) state of a recurrent actor before each sequence; None without one.
        critic_state: the same of the critic.
        group_size: rows that belong together, the robots of a world: minibatches consist of whole ones.
        more: tensors of auxiliaries (`robot_rl.learn.auxiliaries.auxiliary.Auxiliary.samples`), (B, ...) each.
    """

    actor_in: Tensor
    critic_in: Tensor
    action: Tensor
    out: Tensor
    log_prob: Tensor
    value: Tensor
    advantage: Tensor
    returns: Tensor
    importance: Tensor | None = None
    weight: Tensor | None = None
    start: Tensor | None = None
    actor_state: Tensor | None = None
    critic_state: Tensor | None = None
    group_size: int = 1
    more: dict[str, Tensor] = field(default_factory=dict)

    @property
    def num_units(self) -> int:
        """Number of units that minibatches are drawn from: sequences U, groups, or samples B."""
        return self.value.shape[0] // self.group_size if self.start is None else self.start.shape[1]

    @property
    def actor_past(self) -> tuple[Tensor, Tensor] | None:
        """State and episode starts of a recurrent actor."""
        return None if self.actor_state is None or self.start is None else (self.actor_state, self.start)

    @property
    def critic_past(self) -> tuple[Tensor, Tensor] | None:
        """State and episode starts of a recurrent critic."""
        return None if self.critic_state is None or self.start is None else (self.critic_state, self.start)

    def rows(self, index: Tensor) -> Batch:
        """Return the samples, or those of the groups or sequences, at the indices (b,)."""
        tensors, pick = self._tensors(), partial(torch.index_select, dim=0, index=index)
        if self.group_size > 1:
            pick = partial(_pick_groups, rows=self.group_size, index=index)
        units = {name: pick(tensors.pop(name)) for name in UNITS if name in tensors}
        if self.start is not None:
            steps = self.start.shape[0]
            units["start"] = tensors.pop("start").index_select(1, index)
            pick = partial(_pick_sequences, steps=steps, index=index)
        picked = {name: pick(tensor) for name, tensor in tensors.items()}
        return replace(self, **picked, **units, more={name: pick(tensor) for name, tensor in self.more.items()})

    def join(self, other: Batch) -> Batch:
        """Return these samples followed by others, which have the same fields."""
        theirs = other._tensors()
        joined = {name: torch.cat((tensor, theirs[name])) for name, tensor in self._tensors().items()}
        more = {name: torch.cat((tensor, other.more[name])) for name, tensor in self.more.items()}
        return replace(self, **joined, more=more)

    def clone(self) -> Batch:
        """Return a copy in its own memory."""
        copies = {name: tensor.clone() for name, tensor in self._tensors().items()}
        return replace(self, **copies, more={name: tensor.clone() for name, tensor in self.more.items()})

    def copy_(self, other: Batch) -> None:
        """Overwrite these samples by others, which have the same `shapes`."""
        theirs = other._tensors() | other.more
        for name, tensor in (self._tensors() | self.more).items():
            tensor.copy_(theirs[name])

    def shapes(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Return name and shape of every tensor."""
        return tuple((name, tuple(tensor.shape)) for name, tensor in (self._tensors() | self.more).items())

    def _tensors(self) -> dict[str, Tensor]:
        values = {
            item.name: getattr(self, item.name) for item in fields(self) if item.name not in ("more", "group_size")
        }
        return {name: value for name, value in values.items() if value is not None}


def _pick_sequences(x: Tensor, *, steps: int, index: Tensor) -> Tensor:
    """Return the samples (L b, ...) of the sequences at the indices (b,), of samples (L U, ...)."""
    return x.unflatten(0, (steps, -1)).index_select(1, index).flatten(0, 1)


def _pick_groups(x: Tensor, *, rows: int, index: Tensor) -> Tensor:
    """Return the samples (b rows, ...) of the groups at the indices (b,), of samples (B, ...)."""
    return x.unflatten(0, (-1, rows)).index_select(0, index).flatten(0, 1)


def mean_over(x: Tensor, weight: Tensor | None) -> Tensor:
    """Return the mean () of samples (B,), weighted if there are weights."""
    return x.mean() if weight is None else (x * weight).mean()

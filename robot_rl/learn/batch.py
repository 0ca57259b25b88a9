"""The samples of a rollout that an algorithm learns from."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import partial

import torch
from torch import Tensor

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
        weight: (B,) weight in every mean, mean 1; None: all alike.
        start: (L, U) bool, a step of U sequences begins an episode; None without recurrent networks. Samples are then
            stored step after step, B = L U, and minibatches consist of whole sequences.
        actor_state: (U, S) state of a recurrent actor before each sequence; None without one.
        critic_state: the same of the critic.
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
    weight: Tensor | None = None
    start: Tensor | None = None
    actor_state: Tensor | None = None
    critic_state: Tensor | None = None
    more: dict[str, Tensor] = field(default_factory=dict)

    @property
    def num_units(self) -> int:
        """Number of units that minibatches are drawn from: sequences U, or samples B."""
        return self.value.shape[0] if self.start is None else self.start.shape[1]

    @property
    def actor_past(self) -> tuple[Tensor, Tensor] | None:
        """State and episode starts of a recurrent actor."""
        return None if self.actor_state is None or self.start is None else (self.actor_state, self.start)

    @property
    def critic_past(self) -> tuple[Tensor, Tensor] | None:
        """State and episode starts of a recurrent critic."""
        return None if self.critic_state is None or self.start is None else (self.critic_state, self.start)

    def rows(self, index: Tensor) -> Batch:
        """Return the samples, or the samples of the sequences, at the indices (b,)."""
        tensors, pick = self._tensors(), partial(torch.index_select, dim=0, index=index)
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
        """Return a copy in memory of its own."""
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
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "more"}
        return {name: value for name, value in values.items() if value is not None}


def _pick_sequences(x: Tensor, *, steps: int, index: Tensor) -> Tensor:
    """Return the samples (L b, ...) of the sequences at the indices (b,), of samples (L U, ...)."""
    return x.unflatten(0, (steps, -1)).index_select(1, index).flatten(0, 1)


def mean_over(x: Tensor, weight: Tensor | None) -> Tensor:
    """Return the mean () of samples (B,), weighted if there are weights."""
    return x.mean() if weight is None else (x * weight).mean()

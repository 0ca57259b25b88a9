"""Auxiliary objectives: further rewards and losses that take part in an algorithm, with their own networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor, nn

from robot_rl.errors import UserError
from robot_rl.learn.networks.distributions import Params
from robot_rl.learn.networks.symmetry import Mirror
from robot_rl.learn.rollout import Batch, Rollout


class RolloutHook:
    """The part of an auxiliary objective that runs while rollouts are collected.

    Attributes:
        recorded: components of the tensors that it writes into `Rollout.recorded` in each step, by name.
        capturable: `act` and `forget` may be recorded as a CUDA graph: they draw no random numbers, read no number that
            changes from Python and nothing back from the device.
        is_separable: it may act in another process than the one that learns, or while that learns: all that it keeps
            is in `worlds` and `streams`, and the results of learning reach it by the algorithm's `Snapshot`.
    """

    recorded: Mapping[str, int]
    capturable: bool = False
    is_separable: bool = False

    def begin(self) -> None:
        """Prepare a rollout: draw its random numbers, and write to the device the values that Python changes."""

    def act(self, obs: TensorDict, t: int, action: Tensor, rollout: Rollout) -> Tensor:
        """Return the actions (N, A) that the worlds take in step t of a rollout, and write `Rollout.recorded`.

        `obs` are the N worlds' observations before the step, and `action` (N, A) the policy's actions for the
        environment.
        """
        return action

    def forget(self, ended: Tensor) -> None:
        """Clear the state kept of worlds (N,) bool with an episode's end in this step of a rollout."""

    def worlds(self) -> dict[str, Tensor]:
        """Return the state that it keeps of each world from rollout to rollout, (N, ...) each by name, live."""
        return {}

    def streams(self) -> dict[str, torch.Generator]:
        """Return the random streams that it draws from, by name; they are not part of the objective's `state_dict`."""
        return {}


class Auxiliary(nn.Module):
    """An objective that takes part in the algorithm. Each method does nothing unless it is overridden.

    Checkpoints keep `state_dict()` under "auxiliary.<name>.": it must contain all that a resumed run needs to continue
    to the bit, such as its optimizer's state and its random streams.

    Attributes:
        name: prefix of its statistics and of its tensors in a checkpoint.
        groups: observation groups that the rollout must keep for it (`Rollout.groups`).
        hook: its part that runs while rollouts are collected, if any.
        reward_weight: factor of the task's reward if it is active.
        capturable: `loss` may be recorded as a CUDA graph: it reads no number that changes from Python and nothing back
            from the device.
        indexed_by_world: `worlds` is kept by the number of a world, for any columns of a rollout (`Rollout.by_world`).
    """

    name: str = ""
    groups: tuple[str, ...] = ()
    hook: RolloutHook | None = None
    reward_weight: float = 1.0
    capturable: bool = False
    indexed_by_world: bool = False

    def begin(self, rollout: Rollout) -> None:
        """Begin long work that is done elsewhere, before a rollout is learned from."""

    @torch.no_grad()
    def reward(self, rollout: Rollout) -> Tensor | None:
        """Return a reward (T, N) to add to the task's, or None."""
        return None

    @torch.no_grad()
    def samples(self, rollout: Rollout) -> dict[str, Tensor]:
        """Return tensors (T, N, ...) for `Batch.more`, under its own names."""
        return {}

    @torch.no_grad()
    def mirrored(self, samples: Mapping[str, Tensor], action: Mirror) -> dict[str, Tensor]:
        """Return those of a batch's `more` (B, ...) that differ in the mirror image, by name."""
        return {}

    def loss(self, batch: Batch, params: Params) -> Tensor | None:
        """Return a term () of a minibatch's loss, differentiable by the policy's parameters there; or None."""
        return None

    def update(self, rollout: Rollout, progress: float) -> dict[str, Tensor]:
        """Learn after the policy's epochs, at `progress` in [0, 1] of the training; return statistics () by name."""
        return {}

    def worlds(self) -> dict[str, Tensor]:
        """Return the state that is kept of each world from rollout to rollout, (N, ...) each by name, live."""
        return {}

    def described(self) -> dict[str, Any]:
        """Return its entries in a checkpoint's description, JSON-able."""
        return {}

    def check(self, described: Mapping[str, Any]) -> None:
        """Raise UserError if the run of a checkpoint with this description cannot continue with it."""


class Auxiliaries(tuple[Auxiliary, ...]):
    """All auxiliary objectives of an algorithm, in their order, as one."""

    @property
    def hooks(self) -> dict[str, RolloutHook]:
        """Return the parts that run while rollouts are collected, by the objective's name."""
        return {each.name: each.hook for each in self if each.hook is not None}

    def worlds(self) -> dict[str, Tensor]:
        """Return the state that they keep of each world, live."""
        return _prefixed({each.name: each.worlds() for each in self})

    def acting_worlds(self) -> dict[str, Tensor]:
        """Return the state that their hooks keep of each world, live."""
        return _prefixed({name: hook.worlds() for name, hook in self.hooks.items()})

    def acting_streams(self) -> dict[str, torch.Generator]:
        """Return the random streams of their hooks."""
        return _prefixed({name: hook.streams() for name, hook in self.hooks.items()})

    def check(self, described: Mapping[str, Any]) -> None:
        """Raise UserError for a checkpoint with the descriptions of other objectives."""
        missing = sorted(set(described) - {each.name for each in self})
        if missing:
            raise UserError(
                f"auxiliaries: the run was trained with '{missing[0]}', which is missing here; give the learner the "
                "same auxiliary objectives"
            )
        for each in self:
            each.check(described.get(each.name, {}))

    def begin(self, rollout: Rollout) -> None:
        """Begin long work that is done elsewhere, before a rollout is learned from."""
        for each in self:
            each.begin(rollout)

    def add_reward(self, rollout: Rollout) -> Tensor:
        """Return the task's reward, (T, N) or (T, N, K), with theirs."""
        reward = rollout.reward
        for each in self:
            if (added := each.reward(rollout)) is not None:
                added = added if reward.ndim == 2 else added[..., None] / reward.shape[-1]
                reward = each.reward_weight * reward + added
        return reward

    def samples(self, rollout: Rollout) -> dict[str, Tensor]:
        """Return the tensors (T, N, ...) for `Batch.more`."""
        return {name: tensor for each in self for name, tensor in each.samples(rollout).items()}

    def mirrored(self, samples: Mapping[str, Tensor], action: Mirror) -> dict[str, Tensor]:
        """Return those of a batch's `more` (B, ...) that differ in the mirror image."""
        return {name: tensor for each in self for name, tensor in each.mirrored(samples, action).items()}

    def add_loss(self, total: Tensor, batch: Batch, params: Params) -> Tensor:
        """Return a minibatch's loss () with their terms."""
        for each in self:
            if (term := each.loss(batch, params)) is not None:
                total = total + term
        return total

    def update(self, rollout: Rollout, progress: float) -> dict[str, Tensor]:
        """Let each learn after the policy's epochs; return their statistics."""
        return {name: value for each in self for name, value in each.update(rollout, progress).items()}


def _prefixed(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the entries of all objectives by their names in a checkpoint."""
    return {f"auxiliary.{part}.{name}": value for part, own in parts.items() for name, value in own.items()}

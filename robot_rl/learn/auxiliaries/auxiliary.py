"""Auxiliary objectives: further rewards and losses that take part in an algorithm, and what they learn themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor, nn

from robot_rl.errors import UserError
from robot_rl.learn.batch import Batch
from robot_rl.learn.networks.distributions import Params
from robot_rl.learn.networks.symmetry import Mirror
from robot_rl.learn.rollout import Rollout


class RolloutHook:
    """The half of an auxiliary objective that takes part while rollouts are collected.

    Attributes:
        recorded: components of what it writes into `Rollout.recorded` in each step, by name.
    """

    recorded: Mapping[str, int]

    def act(self, obs: TensorDict, t: int, action: Tensor, rollout: Rollout) -> Tensor:
        """Return the actions (N, A) that the worlds take in step t of a rollout, and record what its learner needs.

        Args:
            obs: observations of the N worlds before the step.
            t: step of the rollout.
            action: (N, A) the policy's actions, as the environment takes them.
            rollout: the rollout, for `recorded`.
        """
        return action

    def forget(self, ended: Tensor) -> None:
        """Forget what is remembered of worlds (N,) bool that ended an episode in this step of a rollout."""


class Auxiliary(nn.Module):
    """Something that takes part in the algorithm. Each method does nothing unless it is overridden.

    Checkpoints keep `state_dict()` under "auxiliary.<name>.": all that a resumed run needs to be the same run must be
    in there, the state of an optimizer of its own and of its random numbers included.

    Attributes:
        name: what its statistics and its part of a checkpoint are called.
        groups: observation groups that the rollout must keep for it (`Rollout.groups`).
        hook: its half that takes part while rollouts are collected; None where it has no such half.
        reward_weight: factor of the task's reward where it is there.
        capturable: what `loss` does may be recorded as a CUDA graph: it reads no number that changes from Python and
            nothing back from the device.
    """

    name: str = ""
    groups: tuple[str, ...] = ()
    hook: RolloutHook | None = None
    reward_weight: float = 1.0
    capturable: bool = False

    @torch.no_grad()
    def reward(self, rollout: Rollout) -> Tensor | None:
        """Return a reward (T, N) to add to the task's; None: none."""
        return None

    @torch.no_grad()
    def samples(self, rollout: Rollout) -> dict[str, Tensor]:
        """Return tensors (T, N, ...) that minibatches shall hold in `Batch.more`, under names of its own."""
        return {}

    @torch.no_grad()
    def mirrored(self, samples: Mapping[str, Tensor], action: Mirror) -> dict[str, Tensor]:
        """Return those of a batch's `more` (B, ...) that differ in the mirror image, by name.

        Args:
            samples: `Batch.more`.
            action: mirror of the action.
        """
        return {}

    def loss(self, batch: Batch, params: Params) -> Tensor | None:
        """Return a term () of a minibatch's loss, differentiable; None: none.

        Args:
            batch: the minibatch.
            params: the policy's current parameters there.
        """
        return None

    def update(self, rollout: Rollout, progress: float) -> dict[str, Tensor]:
        """Learn after the policy's epochs; return statistics () by name for the log.

        Args:
            rollout: the rollout.
            progress: share of the training that is done, in [0, 1].
        """
        return {}

    def worlds(self) -> dict[str, Tensor]:
        """Return what is remembered of each world from rollout to rollout, (N, ...) each by name, live."""
        return {}

    def described(self) -> dict[str, Any]:
        """Return what a checkpoint's description shall say of it, JSON-able."""
        return {}

    def check(self, described: Mapping[str, Any]) -> None:
        """Compare itself with what `described` said when a checkpoint was written, before a run is resumed.

        Raises:
            UserError: the run cannot go on with it.
        """


def auxiliaries_state(auxiliaries: Iterable[Auxiliary]) -> dict[str, Tensor]:
    """Return the state of auxiliary objectives by the names that checkpoints have for it."""
    return {f"auxiliary.{a.name}.{name}": tensor for a in auxiliaries for name, tensor in a.state_dict().items()}


def load_auxiliaries(auxiliaries: Iterable[Auxiliary], state: Mapping[str, Tensor]) -> None:
    """Take over what `auxiliaries_state` returned."""
    for auxiliary in auxiliaries:
        prefix = f"auxiliary.{auxiliary.name}."
        auxiliary.load_state_dict({n.removeprefix(prefix): t for n, t in state.items() if n.startswith(prefix)})


def check_auxiliaries(auxiliaries: Sequence[Auxiliary], described: Mapping[str, Any]) -> None:
    """Compare auxiliary objectives with those that a checkpoint describes, before a run is resumed.

    Raises:
        UserError: one that the run was trained with is missing, or differs.
    """
    missing = sorted(set(described) - {auxiliary.name for auxiliary in auxiliaries})
    if missing:
        raise UserError(
            f"auxiliaries: the run was trained with '{missing[0]}', which is missing here; give the learner the same "
            "auxiliary objectives"
        )
    for auxiliary in auxiliaries:
        auxiliary.check(described.get(auxiliary.name, {}))

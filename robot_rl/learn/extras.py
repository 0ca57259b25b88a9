"""What can be handed to the algorithm beside actor and critic: further rewards, losses, and things that learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor, nn

from robot_rl.learn.distributions import Params
from robot_rl.learn.storage import Batch, Rollout
from robot_rl.learn.symmetry import Mirror


class Extra(nn.Module):
    """Something that takes part in the algorithm. Each hook does nothing unless it is overridden.

    Checkpoints keep `state_dict()` under "extra.<name>.": what a resumed run needs to be the run must be in there, the
    state of an optimizer of its own and of its random numbers included.

    Attributes:
        name: what its statistics and its part of a checkpoint are called.
        groups: observation groups that the rollout must keep for it (`Rollout.groups`).
        reward_weight: factor of the task's reward where it is there.
        capturable: what `loss` does may be recorded as a CUDA graph: it reads no number that changes from Python and
            nothing back from the device.
    """

    name: str = ""
    groups: tuple[str, ...] = ()
    reward_weight: float = 1.0
    capturable: bool = False

    @torch.no_grad()
    def act(self, obs: TensorDict, t: int, action: Tensor) -> Tensor:
        """Return the actions (N, A) that the worlds take in step t of a rollout, the policy's own unless overridden.

        Args:
            obs: observations of the N worlds before the step.
            t: step of the rollout.
            action: (N, A) the policy's actions, as the environment takes them.
        """
        return action

    def forget(self, ended: Tensor) -> None:
        """Forget what is remembered of worlds (N,) bool whose episode ended in this step of a rollout."""

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

"""Networks of a precision in an update: how far rollouts were from it, and the grids after it."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from robot_rl.learn.networks.actor_critic import Actor, Critic
from robot_rl.learn.precision.conversion import layers_of, measure
from robot_rl.learn.ranks import ProcessGroup
from robot_rl.learn.rollout import Batch, Rollout

MEASURED_ROWS = 4096
"""Rows of a rollout that grids are fitted to, about."""


class UpdateQuantizers:
    """The quantized layers of the networks that an algorithm updates; without any, nothing is done."""

    def __init__(self, actor: Actor, critic: Critic, ranks: ProcessGroup) -> None:
        self._actor, self._critic, self._ranks = actor, critic, ranks
        self._is_empty = not (layers_of(actor) or layers_of(critic))

    @torch.no_grad()
    def mismatch(self, batch: Batch, size: int) -> dict[str, Tensor]:
        """Return how the policy that learns differs from the one that acted, over `size` units of a batch, before it.

        "precision/log_ratio" () is the mean magnitude of the logarithm of the ratio of their probabilities, and
        "precision/log_ratio_max" the greatest. Both are 0 unless rollouts have another precision than the update.
        """
        if self._is_empty:
            return {}
        part = batch.rows(torch.arange(size, device=batch.value.device))
        params = self._actor.distribution.params(self._actor.outputs(part.actor_in, part.actor_past))
        difference = (self._actor.distribution.log_prob(part.action, params) - part.log_prob).abs()
        if part.weight is not None:
            difference = torch.where(part.weight > 0, difference, 0.0)
        return {"precision/log_ratio": difference.mean(), "precision/log_ratio_max": difference.amax()}

    @torch.no_grad()
    def calibrate(self, rollout: Rollout) -> None:
        """Fit the grids to the values that the networks, as they are now, compute at a rollout.

        A recurrent network computes its first sequence of every world, others the steps of a part of the rollout.
        """
        if self._is_empty:
            return
        parts = (
            (self._actor, rollout.actor_obs, None if rollout.actor_state is None else rollout.actor_state[0]),
            (self._critic, rollout.critic_obs[:-1], rollout.critic_state),
        )
        for network, obs, state in parts:
            steps = slice(None, None, max(1, obs[..., 0].numel() // MEASURED_ROWS))
            steps = steps if state is None else slice(rollout.sequence)
            past = None if state is None else (state, rollout.starts()[steps])
            x = network.encode(obs[steps].flatten(0, 1))
            measure(network, partial(network.outputs, x, past), self._ranks.mean_)

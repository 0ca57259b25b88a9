"""Running mean and deviation of observations, frozen while a rollout is collected and learned from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from robot_rl.learn.ranks import SINGLE_PROCESS, ProcessGroup

EPSILON = 1e-2
"""Added to the deviation: a component that hardly varies is not blown up."""


class Normalizer(nn.Module):
    """Normalizes by the mean and deviation of everything seen so far: (x - mean) / (std + EPSILON).

    The statistics change only in `update`, which a learner calls once an iteration, after the policy was updated:
    rollout and update therefore have the same normalization, and the first minibatch's probability ratio is 1.

    Attributes:
        mean: (D,) running mean.
        var: (D,) running variance.
        count: () observations seen.
        scale: (D,) 1 / (sqrt(var) + EPSILON).
    """

    mean: Tensor
    var: Tensor
    count: Tensor
    scale: Tensor
    perm: Tensor
    sign: Tensor

    def __init__(
        self, size: int, mirror: tuple[Tensor, Tensor] | None = None, pools: Sequence[tuple[int, int, int]] = ()
    ) -> None:
        """Start as the identity (mean 0, deviation 1 - EPSILON).

        With a `mirror` the statistics are those of the observations and their mirror images together, so that
        normalizing and mirroring commute. `pools` are (start, stop, channels) of images: a channel's pixels have one
        mean and deviation, so that a pixel that has hardly ever changed is not blown up when it does.
        """
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("var", torch.full((size,), (1.0 - EPSILON) ** 2))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("scale", torch.ones(size), persistent=False)
        perm, sign = mirror or (torch.empty(0, dtype=torch.int64), torch.empty(0))
        self.register_buffer("perm", perm.clone(), persistent=False)
        self.register_buffer("sign", sign.clone(), persistent=False)
        self._is_mirrored, self._pools = mirror is not None, tuple(pools)

    def forward(self, obs: Tensor) -> Tensor:
        """Normalize observations (..., D)."""
        return (obs - self.mean) * self.scale

    def inverse(self, x: Tensor) -> Tensor:
        """Return the vectors (..., D) that normalize to x."""
        return x / self.scale + self.mean

    @torch.no_grad()
    def update(self, obs: Tensor, valid: Tensor | None = None, ranks: ProcessGroup = SINGLE_PROCESS) -> None:
        """Include the valid (B,) rows of observations (B, D) of all ranks (Chan et al. 1979, parallel variance)."""
        if valid is None and ranks.size == 1:
            added = torch.full_like(self.count, obs.shape[0])
            mean = obs.mean(0)
            var = (obs - mean).square_().mean(0)  # Several times faster than torch.var_mean on a CPU.
        else:
            weight = torch.ones_like(obs[:, :1]) if valid is None else valid.to(obs.dtype)[:, None]
            sums = ranks.sum_(torch.cat(((obs * weight).sum(0), weight.sum(0))).double())
            added, size = sums[-1].to(self.count.dtype), sums[-1].clamp(min=1)
            mean = (sums[:-1] / size).to(obs.dtype)
            var = ranks.sum_(((obs - mean).square() * weight).sum(0)) / size
        for start, stop, channels in self._pools:
            _pool(mean[start:stop].view(channels, -1), var[start:stop].view(channels, -1))
        if self._is_mirrored:
            mean, var = self._mirrored_moments(mean, var)
        self.count += added
        rate = (added / self.count.clamp(min=1)).to(mean.dtype)
        delta = mean - self.mean
        self.mean += rate * delta
        self.var += rate * (var - self.var + delta * (mean - self.mean))
        self.refresh()

    def refresh(self) -> None:
        """Recompute the scale from the variance (after an update and after loading)."""
        self.scale.copy_(1.0 / (self.var.clamp(min=0.0).sqrt() + EPSILON))

    def _mirrored_moments(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the observations together with their mirror images."""
        other_mean, other_var = mean[self.perm] * self.sign, var[self.perm]
        return 0.5 * (mean + other_mean), 0.5 * (var + other_var) + (0.5 * (mean - other_mean)).square()

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self.refresh()


def _pool(mean: Tensor, var: Tensor) -> None:
    """Replace means and variances (channels, pixels) in place by those over all pixels of a channel."""
    level = mean.mean(1, keepdim=True)
    var.copy_((var + (mean - level).square()).mean(1, keepdim=True).expand_as(var))
    mean.copy_(level.expand_as(mean))

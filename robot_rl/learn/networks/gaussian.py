"""Independent Gaussians with a deviation that does not depend on the state."""

from __future__ import annotations

import math

import torch
from torch import Tensor

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


def log_prob(action: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Return the log-probability (B,) of actions (B, A) under Gaussians of mean (B, A) and log_std (A,)."""
    scaled = (action - mean) * torch.exp(-log_std)
    return scaled.square().sum(-1).mul(-0.5) - (log_std + HALF_LOG_2PI).sum()


def entropy(log_std: Tensor) -> Tensor:
    """Return the entropy () [nat] of Gaussians of log_std (A,)."""
    return (log_std + 0.5 + HALF_LOG_2PI).sum()


def kl(old_mean: Tensor, old_log_std: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Return the divergence KL(old || new) (B,) [nat] between Gaussians.

    Args:
        old_mean: (B, A) mean under the old policy.
        old_log_std: (A,) its log deviation.
        mean: (B, A) mean under the new policy.
        log_std: (A,) its log deviation.
    """
    constant = (0.5 * (torch.exp(2.0 * (old_log_std - log_std)) - 1.0) + log_std - old_log_std).sum()
    return ((old_mean - mean) * torch.exp(-log_std)).square().sum(-1).mul(0.5) + constant


def kl_each(old_mean: Tensor, old_log_std: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Return `kl` (B,) where each sample may have deviations of its own: all of (B, A), or (A,)."""
    ratio = torch.exp(2.0 * (old_log_std - log_std))
    return (log_std - old_log_std + 0.5 * (ratio + ((old_mean - mean) * torch.exp(-log_std)).square() - 1.0)).sum(-1)

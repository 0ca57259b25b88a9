"""The step of a grid for given values."""

from __future__ import annotations

import torch
from torch import Tensor

from robot_rl.learn.precision.formats import TINY, Format

SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
"""Shares of the largest magnitude that a grid may reach to: few values far away shall not make it coarse for all."""


def fit_step(values: Tensor, format: Format) -> Tensor:
    """Return the step () of a format's grid for values (n,) with the least mean square of the rounding errors.

    Values beyond the range of a step saturate, which also counts as an error. Nothing is read from the device.
    """
    largest = values.abs().amax().clamp(min=TINY)
    shares = torch.tensor(SHARES, device=values.device)
    steps = (largest / format.largest) * shares
    scaled = values / steps[:, None]
    errors = ((format.levels(scaled.clone()) - scaled) * steps[:, None]).square().mean(1)
    return steps[errors.argmin()]

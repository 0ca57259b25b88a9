"""The formats that weights and inputs of layers are rounded to: bfloat16, e4m3 and int8.

A grid is symmetric about zero: a value is `level * step`, with levels that the format can hold. Weights have a step for
each output, from their largest magnitude; the inputs of a layer share one, which is measured. bfloat16 has its own
range and needs no step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robot_rl.errors import UserError

TINY = 2.0**-100
"""Least magnitude that a step is made of, so that weights of 0 also have a grid."""
SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
"""Shares of the largest magnitude that a grid may reach to: few values far away shall not make it coarse for all."""


@dataclass(frozen=True, slots=True)
class Format:
    """How numbers are rounded.

    Attributes:
        name: one of `robot_rl.settings.precision.PRECISIONS`.
        dtype: in which levels are stored and exported.
        largest: magnitude of the largest level; 0: the format needs no step.
        lowest: the lowest level, which inputs saturate at.
    """

    name: str
    dtype: torch.dtype
    largest: float
    lowest: float

    @property
    def has_step(self) -> bool:
        """Whether values are multiples of a step."""
        return self.largest > 0.0

    def __deepcopy__(self, memo: dict[int, Any]) -> Format:
        """Return the format: there is one of each."""
        return self

    def levels(self, scaled: Tensor) -> Tensor:
        """Return the nearest levels of values in steps, float32 in, float32 out; ties go to the even one."""
        if self.name == "int8":
            return scaled.round().clamp_(self.lowest, self.largest)
        if self.name == "fp8":
            return scaled.clamp(self.lowest, self.largest).to(self.dtype).to(torch.float32)
        return scaled.to(self.dtype).to(torch.float32)

    def weight_step(self, weight: Tensor) -> Tensor:
        """Return the step (out,) of a weight (out, ...): its largest magnitude is the largest level."""
        return weight.detach().flatten(1).abs().amax(1).clamp(min=TINY) / self.largest


FP32 = Format("fp32", torch.float32, 0.0, 0.0)
BF16 = Format("bf16", torch.bfloat16, 0.0, 0.0)
FP8 = Format("fp8", getattr(torch, "float8_e4m3fn", torch.float32), 448.0, -448.0)
INT8 = Format("int8", torch.int8, 127.0, -128.0)
FORMATS = {format.name: format for format in (FP32, BF16, FP8, INT8)}


def get_format(name: str) -> Format:
    """Return a format; raise UserError for fp8 if this PyTorch lacks that type."""
    if name == "fp8" and not hasattr(torch, "float8_e4m3fn"):
        raise UserError("precision=fp8: this PyTorch lacks float8_e4m3fn; use precision=int8 or bf16, or torch >= 2.1")
    return FORMATS[name]


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

"""A layer with rounded weights and inputs: the arithmetic that replaces a plain layer's everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from robot_rl.learn.precision.formats import BF16, FP32, Format, fit_step
from robot_rl.learn.precision.kernels import linear_bf16, matmul_bf16, multiply

START_RANGE = 8.0
"""Magnitude of inputs that the first grid of a layer reaches to, before it is measured."""
SAMPLES = 16_384
"""Inputs of a layer that its step is measured on, about."""
MOST_AVERAGED = 10.0
"""Measurements that the step averages over."""
Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""Takes inputs, weight and bias, and returns outputs; it must be linear in inputs and in weight."""


class QuantizedLayer(nn.Module):
    """The arithmetic of a layer, `y = q(x) q(w) + b`, with q rounding to the grid of a format.

    The gradient goes straight through the rounding (Bengio et al. 2013), and is 0 if an input saturates. The grid
    of the inputs only changes in `fit`, so that the policy that acts is the one that is learned from.

    Attributes:
        name: the layer's, such as "actor.0".
        shape: of its weight.
        format: the format that it rounds to.
        acting: the format that it rounds to in rollouts; the same object unless they have their own precision.
        is_acting: whether it computes for a rollout.
        rounds_output: with bfloat16 the output is also rounded, before the activation.
        is_signed: inputs may be far below zero, so they are bounded alike on both sides: a mirrored input stays one.
        step: () distance of the inputs' levels.
        fitted: () measurements so far.
    """

    step: Tensor
    fitted: Tensor

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        format: Format,
        *,
        acting: Format | None = None,
        rounds_output: bool = False,
        is_signed: bool = True,
    ) -> None:
        super().__init__()
        self.name, self.shape, self.format = name, shape, format
        self.acting, self.is_acting = acting or format, False
        self.rounds_output, self.is_signed = rounds_output, is_signed
        self.seen: list[Tensor] | None = None
        levels = self._stepped.largest
        self.register_buffer("step", torch.tensor(START_RANGE / levels if levels else 1.0))
        self.register_buffer("fitted", torch.zeros(()))

    @property
    def _stepped(self) -> Format:
        """The format that the step belongs to: the update's, or the rollout's where only that one has a step."""
        return self.format if self.format.has_step else self.acting

    @property
    def current(self) -> Format:
        """The format that it rounds to now."""
        return self.acting if self.is_acting else self.format

    def step_of(self, format: Format) -> Tensor:
        """Return the distance () of the levels of a format: the same range for each."""
        return self.step if format is self._stepped else self.step * (self._stepped.largest / format.largest)

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None, product: Product | None = None) -> Tensor:
        """Map inputs (B, in) to (B, out); with a `product` any inputs and weight that it takes, such as images."""
        if self.seen is not None:
            self.seen.append(_sample(x.detach()))
        format = self.current
        if format is FP32:
            return nn.functional.linear(x, weight, bias) if product is None else product(x, weight, bias)
        if product is not None:
            return self._through(x, weight, bias, product)
        return _Linear.apply(x, weight, bias, self)  # type: ignore[return-value]

    def lowest(self, format: Format) -> float:
        """Return the level below which inputs saturate."""
        return -format.largest if self.is_signed else format.lowest

    def _through(self, x: Tensor, weight: Tensor, bias: Tensor | None, product: Product) -> Tensor:
        """Compute by a product of any form, which PyTorch differentiates."""
        format = self.current
        if not format.has_step:
            y = product(_straight(x, format), _straight(weight, format), None if bias is None else bias)
            return _straight(y, format) if self.rounds_output else y
        grid = format.weight_step(weight).view(-1, *(1,) * (weight.ndim - 1))
        step = self.step_of(format)
        scaled = (x / step).clamp(self.lowest(format), format.largest)
        sums = product(_straight(scaled, format), _straight(weight / grid, format), None)
        if format.name == "int8":  # A convolution may be computed by other ways than sums of products.
            sums = sums + (sums.round() - sums).detach()
        channels = (1, -1, *(1,) * (sums.ndim - 2))
        y = sums * (step * grid.flatten()).view(channels)
        return y if bias is None else y + bias.view(channels)

    def fit(self, average: Callable[[Tensor], Tensor]) -> None:
        """Move the step to that of the inputs in `seen`, which are forgotten; `average` is the mean over the ranks."""
        seen, self.seen = self.seen, None
        if not seen or not self._stepped.has_step:
            return
        found = average(fit_step(torch.cat(seen), self._stepped))
        self.fitted.add_(1.0)
        self.step.lerp_(found, 1.0 / self.fitted.clamp(max=MOST_AVERAGED))


def _sample(x: Tensor) -> Tensor:
    """Return the values of some rows, evenly spaced: about `SAMPLES` of them, and those of every component."""
    rows = x.flatten(1)
    count = max(1, SAMPLES // max(1, rows.shape[1]))
    return rows[:: max(1, -(-rows.shape[0] // count))].reshape(-1).clone()


def _straight(x: Tensor, format: Format) -> Tensor:
    """Return the levels of values in steps, with the gradient of the values."""
    return format.levels(x.detach()) + (x - x.detach())


class _Linear(torch.autograd.Function):
    """A quantized linear layer as one operation of autograd."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, layer: QuantizedLayer) -> Tensor:
        format = layer.current
        ctx.format, ctx.has_bias = format, bias is not None
        if format is BF16:
            values, own = x.to(torch.bfloat16), weight.to(torch.bfloat16)
            ctx.save_for_backward(values, own)
            if layer.rounds_output:
                return linear_bf16(values, own, None if bias is None else bias.to(torch.bfloat16)).float()
            return nn.functional.linear(values.float(), own.float(), bias)
        grid, step = format.weight_step(weight), layer.step_of(format)
        scaled = x / step
        bounded = scaled.clamp(layer.lowest(format), format.largest)
        inside, levels, own = bounded == scaled, format.levels(bounded), format.levels(weight / grid[:, None])
        y = multiply(levels, own, format).mul_(step * grid)
        ctx.save_for_backward(levels, own, grid, step, inside)
        return y if bias is None else y.add_(bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad = grads[0]
        bias = grad.sum(0) if ctx.has_bias else None
        if ctx.format is BF16:
            values, own = ctx.saved_tensors
            rounded = grad.to(torch.bfloat16)
            below = matmul_bf16(rounded, own).float() if ctx.needs_input_grad[0] else None
            return below, matmul_bf16(rounded.t(), values).float(), bias, None
        levels, own, grid, step, inside = ctx.saved_tensors
        below = ((grad * grid) @ own).mul_(inside) if ctx.needs_input_grad[0] else None
        return below, (grad.t() @ levels).mul_(step), bias, None

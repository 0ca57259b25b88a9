"""Perceptrons of quantized layers.

An element's bits must not depend on its place in a batch: the rows that acted come back in minibatches, and the ratio
of their probabilities before and after must be exactly 1. PyTorch computes the last elements of each thread's part of
an array by other functions than the rest, so on a CPU arrays have a whole number of vectors for each thread here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from robot_rl.learn.cpu.mlp import FUSED_ACTIVATIONS, Workspace, activate, activation_gradient
from robot_rl.learn.precision.formats import BF16
from robot_rl.learn.precision.kernels import has_bf16, linear_bf16
from robot_rl.learn.precision.layer import QuantizedLayer

VECTOR = 32
"""Elements that PyTorch's vector loops take at once, at most."""

Weights = Sequence[tuple[Tensor, Tensor]]


def run_layers(x: Tensor, weights: Weights, activation: nn.Module, layers: nn.ModuleList, work: Workspace) -> Tensor:
    """Return the output (B, out) of quantized layers at inputs (B, in), with an activation between them."""
    each = cast("list[QuantizedLayer]", list(layers))
    rows = x.shape[0]
    if x.device.type == "cpu":
        x = pad_rows(x)
        if _is_fused(each, work):
            return run_bf16(work, x, weights)[:rows]
    last = len(each) - 1
    for i, ((weight, bias), layer) in enumerate(zip(weights, each, strict=True)):
        x = layer(x, weight, bias)
        x = x if i == last else activation(x)
    return x[:rows]


def pad_rows(x: Tensor) -> Tensor:
    """Return (B, D) with rows of zeros below, so that each thread has a whole number of vectors of any width."""
    missing = -x.shape[0] % (VECTOR * torch.get_num_threads())
    return nn.functional.pad(x, (0, 0, 0, missing)) if missing else x


def _is_fused(layers: Sequence[QuantizedLayer], work: Workspace) -> bool:
    """Whether all layers compute in bfloat16, by the CPU's instructions, and none is measured."""
    return (
        work.activation in FUSED_ACTIVATIONS
        and has_bf16("cpu")
        and all(layer.current is BF16 and layer.seen is None for layer in layers)
    )


def run_bf16(work: Workspace, x: Tensor, weights: Weights) -> Tensor:
    """Return the output (B, out) of layers in bfloat16 on a CPU, whose rows go through all of them in blocks.

    As `robot_rl.learn.cpu.mlp.run_mlp`, with half the memory and twice the multiplications in a second; activations
    are computed in float32. The last layer's output is not rounded.
    """
    if torch.is_grad_enabled():
        return _Bf16Function.apply(x, work, *(part for layer in weights for part in layer))  # type: ignore[return-value]
    return _forward(work, x, [(weight.to(torch.bfloat16), bias) for weight, bias in weights], keep=False)[0]


def _forward(work: Workspace, x: Tensor, weights: Weights, *, keep: bool) -> tuple[Tensor, list[list[Tensor]]]:
    """Return the output, and of each block the inputs of every layer if they are kept; weights are bfloat16."""
    *hidden, (last_weight, last_bias) = weights
    rounded = [(weight, bias.to(torch.bfloat16)) for weight, bias in hidden]
    out = torch.empty(x.shape[0], last_weight.shape[0])
    last = last_weight.float().t()
    kept: list[list[Tensor]] = []
    width = max(weight.shape[0] for weight, _ in hidden)
    scratch = torch.empty(2, min(work.block, x.shape[0]), width)
    for start in range(0, x.shape[0], work.block):
        part = x[start : start + work.block]
        values = [part.to(torch.bfloat16)]
        for weight, bias in rounded:
            value = linear_bf16(values[-1], weight, bias)
            plain, spare = (array.view(-1)[: value.numel()].view_as(value) for array in scratch)
            activate(work.activation, plain.copy_(value), spare)
            values.append(value.copy_(plain))
        torch.addmm(last_bias, values[-1].float(), last, out=out[start : start + part.shape[0]])
        if keep:
            kept.append(values)
    return out, kept


class _Bf16Function(torch.autograd.Function):
    """The perceptron as one operation of autograd; gradients of hidden layers are bfloat16, sums over rows float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, work: Workspace, *parts: Tensor) -> Tensor:
        weights = [(weight.to(torch.bfloat16), bias) for weight, bias in zip(parts[::2], parts[1::2], strict=True)]
        out, kept = _forward(work, x, weights, keep=True)
        ctx.work, ctx.kept, ctx.weights = work, kept, [weight for weight, _ in weights]
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        weights, work = ctx.weights, ctx.work
        results = [part for weight in weights for part in (torch.zeros(weight.shape), torch.zeros(weight.shape[0]))]
        below: list[Tensor] = []
        start = 0
        for values in ctx.kept:
            grad = grads[0][start : start + values[0].shape[0]]
            start += values[0].shape[0]
            rounded = grad.to(torch.bfloat16)
            for i in range(len(weights) - 1, -1, -1):
                results[2 * i].add_(rounded.t() @ values[i])
                results[2 * i + 1].add_(rounded.sum(0, dtype=torch.float32))
                if i == 0 and not ctx.needs_input_grad[0]:
                    break
                rounded = rounded @ weights[i]
                if i:
                    activation_gradient(work.activation, rounded, values[i])
            below.append(rounded)
        grad_x = torch.cat(below).float() if ctx.needs_input_grad[0] else None
        return grad_x, None, *results

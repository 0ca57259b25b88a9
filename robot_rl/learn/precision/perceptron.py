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

from robot_rl.learn.cpu.mlp import FUSED_ACTIVATIONS, Workspace, activate, activation_gradient, check_generation
from robot_rl.learn.precision.formats import BF16
from robot_rl.learn.precision.kernels import has_bf16
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
    """Return the output (B, out) of layers in bfloat16 on a CPU; rows go through all of them in blocks.

    As `robot_rl.learn.cpu.mlp.run_mlp`, with half the memory and twice the multiplications in a second; activations
    are computed in float32. The last layer's output is not rounded.
    """
    if torch.is_grad_enabled():
        return _Bf16Function.apply(x, work, *(part for layer in weights for part in layer))  # type: ignore[return-value]
    return _forward(work, x, [(weight.to(torch.bfloat16), bias) for weight, bias in weights], keep=False)


def _widths(weights: Weights) -> tuple[int, ...]:
    return (1, *(weight.shape[0] for weight, _ in weights[:-1]))


def _forward(work: Workspace, x: Tensor, weights: Weights, *, keep: bool) -> Tensor:
    """Run the layers block by block; with `keep` the hidden activations stay in the workspace. Weights are bfloat16."""
    *hidden, (last_weight, last_bias) = weights
    rounded = [(weight.t(), bias.to(torch.bfloat16)) for weight, bias in hidden]
    out, last = torch.empty(x.shape[0], last_weight.shape[0]), last_weight.float().t()
    for block in work.blocks(x.shape[0], _widths(weights), keep=keep, spaces=2, dtype=torch.bfloat16):
        value = x[block.span].to(torch.bfloat16)
        for (weight, bias), (plain, spare), result in zip(rounded, block.spaces, block.values, strict=True):
            torch.addmm(bias, value, weight, out=result)
            activate(work.activation, plain.copy_(result), spare)
            value = result.copy_(plain)
        torch.addmm(last_bias, value.float(), last, out=out[block.span])
    return out


class _Bf16Function(torch.autograd.Function):
    """The perceptron as one operation of autograd; gradients of hidden layers are bfloat16, sums over rows float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, work: Workspace, *parts: Tensor) -> Tensor:
        weights = [(weight.to(torch.bfloat16), bias) for weight, bias in zip(parts[::2], parts[1::2], strict=True)]
        out = _forward(work, x, weights, keep=True)
        work.generation += 1
        ctx.work, ctx.generation, ctx.weights = work, work.generation, weights
        ctx.save_for_backward(x)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (x,), work, weights = ctx.saved_tensors, ctx.work, ctx.weights
        check_generation(work, ctx.generation)
        grad_x = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        results = [part for weight, bias in weights for part in (torch.zeros(weight.shape), torch.zeros(bias.shape))]
        key: dict[str, Any] = {"spaces": 2, "dtype": torch.bfloat16}
        kept = work.blocks(x.shape[0], _widths(weights), keep=True, **key)
        spare = work.blocks(x.shape[0], _widths(weights), keep=False, **key)
        for block, below in zip(kept, spare, strict=True):
            grad = grads[0][block.span].to(torch.bfloat16)
            for i in range(len(weights) - 1, 0, -1):
                value, weight = block.values[i - 1], weights[i][0]
                results[2 * i].add_(grad.t() @ value)
                results[2 * i + 1].add_(grad.sum(0, dtype=torch.float32))
                grad = torch.mm(grad, weight, out=below.values[i - 1])
                activation_gradient(work.activation, grad, value)
            results[0].add_(grad.t() @ x[block.span].to(torch.bfloat16))
            results[1].add_(grad.sum(0, dtype=torch.float32))
            if grad_x is not None:
                grad_x[block.span] = grad @ weights[0][0]
        return grad_x, None, *results

"""The symmetric perceptron for the CPU, block by block as in `robot_rl.learn.cpu.mlp`, in its even and odd halves.

With p and q the two halves of a hidden layer, the next layer takes their half sum and half difference. The arrays hold
sum and difference; the half is a factor of the matrix products, where it costs nothing. Halves are stored one above the
other, (2 B, H / 2), so an activation is applied to both at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from robot_rl.learn.cpu.mlp import Workspace, activate, activation_gradient, check_generation

PairedLayer = tuple[Tensor, Tensor, Tensor]
"""Weight of the even part (out, in), its bias (out,), weight of the odd part (out, in)."""


def run_symmetric(work: Workspace, x: Tensor, layers: Sequence[PairedLayer]) -> Tensor:
    """Return even and odd outputs (B, even + odd) of inputs (B, even + odd), differentiable by inputs and weights."""
    if torch.is_grad_enabled():
        return _SymmetricFunction.apply(x, work, *(part for layer in layers for part in layer))  # type: ignore[return-value]
    return _forward(work, x, layers, keep=False)


Pair = tuple[Tensor, Tensor]
"""The two halves of an array."""


def _combine(pair: Pair, out: Pair) -> None:
    """Write a + b and a - b of a pair (a, b)."""
    torch.add(*pair, out=out[0])
    torch.sub(*pair, out=out[1])


def _halves(array: Tensor) -> Pair:
    half = array.shape[0] // 2
    return array[:half], array[half:]


def _product(a: Tensor, b: Tensor, scale: float, out: Tensor) -> None:
    torch.addmm(out, a, b, beta=0.0, alpha=scale, out=out)


def _split(x: Tensor, layers: Sequence[PairedLayer]) -> Pair:
    even, odd = x.split((layers[0][0].shape[1], layers[0][2].shape[1]), dim=1)
    return even, odd


def _widths(layers: Sequence[PairedLayer]) -> tuple[int, ...]:
    return (2, *(bias.shape[0] for _, bias, _ in layers[:-1]))


def _forward(work: Workspace, x: Tensor, layers: Sequence[PairedLayer], *, keep: bool) -> Tensor:
    """Run the layers block by block; with `keep` the hidden activations stay in the workspace."""
    rows, num_even, num_odd = x.shape[0], layers[-1][0].shape[0], layers[-1][2].shape[0]
    out = torch.empty(rows, num_even + num_odd)
    for block in work.blocks(rows, _widths(layers), keep=keep, spaces=2):
        (even, odd), scale = _split(x[block.span], layers), 1.0
        for (weight_even, bias, weight_odd), value, (space, _) in zip(layers, block.values, block.spaces, strict=False):
            sums, sides = _halves(space), _halves(value)
            torch.addmm(bias, even, weight_even.t(), alpha=scale, out=sums[0])
            _product(odd, weight_odd.t(), scale, sums[1])
            _combine(sums, sides)
            activate(work.activation, value, space)
            _combine(sides, sums)
            (even, odd), scale = sums, 0.5
        weight_even, bias, weight_odd = layers[-1]
        torch.addmm(bias, even, weight_even.t(), alpha=scale, out=out[block.span, :num_even])
        if num_odd:
            _product(odd, weight_odd.t(), scale, out[block.span, num_even:])
    return out


class _SymmetricFunction(torch.autograd.Function):
    """The symmetric perceptron as one operation of autograd."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, work: Workspace, *parts: Tensor) -> Tensor:
        out = _forward(work, x, list(zip(parts[::3], parts[1::3], parts[2::3], strict=True)), keep=True)
        work.generation += 1
        ctx.work, ctx.generation = work, work.generation
        ctx.save_for_backward(x, *parts)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, *parts = ctx.saved_tensors
        work, layers = ctx.work, list(zip(parts[::3], parts[1::3], parts[2::3], strict=True))
        check_generation(work, ctx.generation)
        num_even = layers[-1][0].shape[0]
        results = [torch.zeros_like(part) for part in parts]
        grad_x = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        for block in work.blocks(x.shape[0], _widths(layers), keep=True, spaces=2):
            grad = (grads[0][block.span, :num_even], grads[0][block.span, num_even:])
            for i in range(len(layers) - 1, 0, -1):
                value, (space, other) = block.values[i - 1], block.spaces[i - 1]
                below, spare = _halves(space), _halves(other)
                _combine(_halves(value), below)
                _weight_gradients(results[3 * i : 3 * i + 3], grad, below, 0.5)
                _product(grad[0], layers[i][0], 0.5, spare[0])
                if grad[1].shape[1]:
                    _product(grad[1], layers[i][2], 0.5, spare[1])
                else:
                    spare[1].zero_()
                _combine(spare, below)
                activation_gradient(work.activation, space, value)
                _combine(below, spare)
                grad = spare
            _weight_gradients(results[:3], grad, _split(x[block.span], layers), 1.0)
            if grad_x is not None:
                for below, above, weight in zip(_split(grad_x[block.span], layers), grad, layers[0][::2], strict=True):
                    torch.mm(above, weight, out=below)
        return grad_x, None, *results


def _weight_gradients(results: Sequence[Tensor], grad: Pair, value: Pair, scale: float) -> None:
    """Add a block's gradients of an even weight, its bias and an odd weight."""
    results[0].addmm_(grad[0].t(), value[0], alpha=scale)
    results[1].add_(grad[0].sum(0))
    if grad[1].shape[1]:
        results[2].addmm_(grad[1].t(), value[1], alpha=scale)

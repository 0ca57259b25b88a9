"""Multilayer perceptrons, plain and symmetric, for the CPU: rows go through all layers in blocks that fit the cache.

A hidden layer of a minibatch of a few thousand rows is larger than a core's second-level cache, and allocating it for
every operation costs page faults in addition. Here a few hundred rows at a time go through the layers, into arrays that
are kept. The gradient is written out by hand (backpropagation, Rumelhart et al. 1986) and is one operation of autograd.
PyTorch computes exp and tanh by Intel's vector library, which is slow on other makers' processors, but evaluates exp2
and the logistic function itself: ELU is max(x, exp2(min(x / ln 2, 0)) - 1) here and tanh(x) is 2 logistic(2 x) - 1,
within 2e-7 of PyTorch's. On such processors large products are also computed by oneDNN, which PyTorch contains; the
gradient of a weight is there the weight gradient of a convolution with a kernel of one pixel, with the rows as pixels.

A few dozen rows fit into the cache in any case, and the number of operations determines the time: `Workspace.pays`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

BLOCK_ELEMENTS = 131_072
"""A thread's rows of a block times the widest hidden layer: half a megabyte, a quarter of a second-level cache."""
LEAST_ROWS = 512
"""A thread's rows of a block at least: the products of wide layers suffer sooner than the cache."""
MOST_PLAIN = 16_384
"""Rows times the widest hidden layer up to which PyTorch's own operations are quicker, forward and backward."""
LEAST_PRODUCT = 2**21
"""Multiplications from which a product is faster in oneDNN, which takes longer to start."""
LEAST_GRADIENT = 2**26
"""Multiplications from which the gradient of a weight is quicker there; from 2**24 on it was only by itself."""
MAX_KEPT = 8
"""Numbers of rows for which arrays are kept at once."""
LOG2_E = math.log2(math.e)
FUSED_ACTIVATIONS = ("elu", "relu", "tanh")
"""Activations with a derivative that follows from their value."""

Layer = tuple[Tensor, Tensor]
"""Weight (out, in) and bias (out,)."""


def activate(name: str, x: Tensor, scratch: Tensor) -> None:
    """Apply one of FUSED_ACTIVATIONS to x (B, H) in place, with `scratch` (B, H) for intermediate values."""
    if name == "elu":
        torch.mul(x, LOG2_E, out=scratch).clamp_(max=0.0)
        torch.maximum(x, scratch.exp2_().sub_(1.0), out=x)
    elif name == "relu":
        x.relu_()
    else:
        x.mul_(2.0).sigmoid_().mul_(2.0).sub_(1.0)


def activation_gradient(name: str, gradient: Tensor, value: Tensor) -> None:
    """Multiply a gradient in place by the derivative of an activation, given the activation's value (both (B, H))."""
    if name == "elu":
        torch.ops.aten.elu_backward.grad_input(gradient, 1.0, 1.0, 1.0, True, value, grad_input=gradient)
    elif name == "relu":
        torch.ops.aten.threshold_backward.grad_input(gradient, value, 0.0, grad_input=gradient)
    else:
        torch.ops.aten.tanh_backward.grad_input(gradient, value, grad_input=gradient)


@functools.cache
def has_quick_onednn() -> bool:
    """Whether oneDNN multiplies rows by a weight faster than the library behind `torch.addmm` on this machine.

    That library is Intel's; on AMD's processors oneDNN took 10 to 25 % less (measured on Zen 4, one and two threads).
    The result depends only on the processor's maker, so that the same machine gives the same bits.
    """
    if not torch.backends.mkl.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def product(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
    """Return x (B, in) times a weight (out, in) transposed, plus a bias (out,): `out` (B, out), or a new array."""
    if x.shape[0] * weight.numel() >= LEAST_PRODUCT and has_quick_onednn():
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return torch.mm(x, weight.t(), out=out) if bias is None else torch.addmm(bias, x, weight.t(), out=out)


def store_product(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """Write a `product` to `out` (B, out)."""
    if (result := product(x, weight, bias, out)) is not out:
        out.copy_(result)


def add_weight_gradient(result: Tensor, grad: Tensor, value: Tensor) -> None:
    """Add to `result` (out, in) the gradient (B, out) of a product, transposed, times its input (B, in)."""
    rows, size = grad.shape[0], result.numel()
    if rows * size < LEAST_GRADIENT or rows % 2 or not has_quick_onednn():
        result.addmm_(grad.t(), value)
        return
    # Two images of (rows / 2, 1) pixels, channels last, have the rows' memory layout. oneDNN divides two among threads.
    above, below = (array.reshape(2, rows // 2, 1, -1).permute(0, 3, 1, 2) for array in (grad, value))
    kernel = result[:, :, None, None]
    ones, zeros = (1, 1), (0, 0)
    part = torch.ops.aten.convolution_backward(
        above, below, kernel, None, ones, zeros, ones, False, zeros, 1, (False, True, False)
    )[1]
    result.add_(part[:, :, 0, 0])


class Workspace:
    """Arrays for one network's passes, kept between calls.

    Attributes:
        activation: one of FUSED_ACTIVATIONS.
        widest: units of the widest hidden layer.
        block: rows of a block.
        generation: counts the recorded forward passes; each overwrites the activations of the one before.
    """

    def __init__(self, activation: str, widest: int) -> None:
        self.activation, self.widest = activation, widest
        self.block = torch.get_num_threads() * max(LEAST_ROWS, BLOCK_ELEMENTS // max(widest, 1))
        self.generation = 0
        self._blocks: dict[tuple[Any, ...], list[RowBlock]] = {}

    def pays(self, rows: int) -> bool:
        """Return whether passes over so many rows are faster here than with PyTorch's own operations.

        Acting and learning use the same criterion, so that the same rows give the same bits.
        """
        return rows * self.widest > MOST_PLAIN

    def blocks(
        self,
        rows: int,
        sizes: tuple[int, ...],
        *,
        keep: bool,
        spaces: int = 1,
        dtype: torch.dtype = torch.float32,
    ) -> list[RowBlock]:
        """Return the blocks of a pass over so many rows, with arrays of unspecified content.

        `sizes` are (times, width, width, ...): rows of an array per row of the input, and the width of each hidden
        layer. With `keep` every block has its own values, for a backward pass; else all share them. `spaces`
        intermediate arrays of each layer are shared by all blocks. Values are of a `dtype`, the others float32.
        """
        key = (rows, sizes, keep, spaces, dtype)
        if key not in self._blocks:
            if len(self._blocks) == MAX_KEPT:  # Dictionaries are ordered: the first is the oldest.
                del self._blocks[next(iter(self._blocks))]
            times, *widths = sizes
            most = min(rows, self.block)
            shared = [[torch.empty(times * most, width) for _ in range(spaces)] for width in widths]
            values = [torch.empty(times * (rows if keep else most), width, dtype=dtype) for width in widths]
            self._blocks[key] = []
            for start in range(0, rows, self.block):
                stop = min(start + self.block, rows)
                first, count = times * start if keep else 0, times * (stop - start)
                block = RowBlock(
                    span=slice(start, stop),
                    values=[value[first : first + count] for value in values],
                    spaces=[tuple(space[:count] for space in layer) for layer in shared],
                )
                self._blocks[key].append(block)
        return self._blocks[key]

    def __deepcopy__(self, memo: dict[int, Any]) -> Workspace:
        """Return an empty workspace for the copied network."""
        copy = Workspace(self.activation, self.widest)
        copy.block = self.block
        return copy


@dataclass(slots=True, frozen=True)
class RowBlock:
    """The rows that go through the layers together.

    Attributes:
        span: which rows.
        values: activations of each hidden layer, (times x rows, width).
        spaces: intermediate arrays of each hidden layer, (times x rows, width) each.
    """

    span: slice
    values: list[Tensor]
    spaces: list[tuple[Tensor, ...]]


def run_mlp(work: Workspace, x: Tensor, layers: Sequence[Layer]) -> Tensor:
    """Return the output (B, out) of a perceptron at inputs (B, in), differentiable with respect to both."""
    if torch.is_grad_enabled():
        return _MlpFunction.apply(x, work, *(part for layer in layers for part in layer))  # type: ignore[return-value]
    return _forward(work, x, layers, keep=False)


def _widths(weights: Sequence[Tensor]) -> tuple[int, ...]:
    return (1, *(weight.shape[0] for weight in weights[:-1]))


def _forward(work: Workspace, x: Tensor, layers: Sequence[Layer], *, keep: bool) -> Tensor:
    """Run the layers block by block; with `keep` the hidden activations stay in the workspace."""
    *hidden, (last_weight, last_bias) = layers
    out = torch.empty(x.shape[0], last_weight.shape[0])
    for block in work.blocks(x.shape[0], _widths([weight for weight, _ in layers]), keep=keep):
        value = x[block.span]
        for i, ((weight, bias), (space,)) in enumerate(zip(hidden, block.spaces, strict=True)):
            value = block.values[i] = product(value, weight, bias, block.values[i])
            activate(work.activation, value, space)
        store_product(value, last_weight, last_bias, out[block.span])
    return out


class _MlpFunction(torch.autograd.Function):
    """The perceptron as one operation of autograd."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, work: Workspace, *parts: Tensor) -> Tensor:
        out = _forward(work, x, list(zip(parts[::2], parts[1::2], strict=True)), keep=True)
        work.generation += 1
        ctx.work, ctx.generation = work, work.generation
        ctx.save_for_backward(x, *parts)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, *parts = ctx.saved_tensors
        work, weights = ctx.work, parts[::2]
        check_generation(work, ctx.generation)
        grad_x = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        results = [torch.zeros_like(part) for part in parts]
        for block in work.blocks(x.shape[0], _widths(weights), keep=True):
            grad = grads[0][block.span]
            for i in range(len(weights) - 1, 0, -1):
                value, (below,) = block.values[i - 1], block.spaces[i - 1]
                add_weight_gradient(results[2 * i], grad, value)
                results[2 * i + 1].add_(grad.sum(0))
                grad = product(grad, weights[i].t(), None, below)
                activation_gradient(work.activation, grad, value)
            add_weight_gradient(results[0], grad, x[block.span])
            results[1].add_(grad.sum(0))
            if grad_x is not None:
                store_product(grad, weights[0].t(), None, grad_x[block.span])
        return grad_x, None, *results


def check_generation(work: Workspace, generation: int) -> None:
    """Raise RuntimeError if a later forward pass has overwritten values that a backward pass needs."""
    if work.generation != generation:
        raise RuntimeError("the network ran forward again before this backward pass; use the plain path for both")


PairedLayer = tuple[Tensor, Tensor, Tensor]
"""Weight of the even part (out, in), its bias (out,), weight of the odd part (out, in)."""


def run_symmetric(work: Workspace, x: Tensor, layers: Sequence[PairedLayer]) -> Tensor:
    """Return even and odd outputs (B, even + odd) of inputs (B, even + odd), differentiable by inputs and weights.

    With p and q the two halves of a hidden layer, the next layer takes their half sum and half difference. The arrays
    hold sum and difference; the half is a factor of the matrix products, at no cost. Halves are stored one
    above the other, (2 B, H / 2), so an activation is applied to both at once.
    """
    if torch.is_grad_enabled():
        return _SymmetricFunction.apply(x, work, *(part for layer in layers for part in layer))  # type: ignore[return-value]
    return _paired_forward(work, x, layers, keep=False)


Pair = tuple[Tensor, Tensor]
"""The two halves of an array."""


def _combine(pair: Pair, out: Pair) -> None:
    """Write a + b and a - b of a pair (a, b)."""
    torch.add(*pair, out=out[0])
    torch.sub(*pair, out=out[1])


def _halves(array: Tensor) -> Pair:
    half = array.shape[0] // 2
    return array[:half], array[half:]


def _scaled_product(a: Tensor, b: Tensor, scale: float, out: Tensor) -> None:
    torch.addmm(out, a, b, beta=0.0, alpha=scale, out=out)


def _split_input(x: Tensor, layers: Sequence[PairedLayer]) -> Pair:
    even, odd = x.split((layers[0][0].shape[1], layers[0][2].shape[1]), dim=1)
    return even, odd


def _paired_widths(layers: Sequence[PairedLayer]) -> tuple[int, ...]:
    return (2, *(bias.shape[0] for _, bias, _ in layers[:-1]))


def _paired_forward(work: Workspace, x: Tensor, layers: Sequence[PairedLayer], *, keep: bool) -> Tensor:
    """Run the layers as `_forward` does."""
    rows, num_even, num_odd = x.shape[0], layers[-1][0].shape[0], layers[-1][2].shape[0]
    out = torch.empty(rows, num_even + num_odd)
    for block in work.blocks(rows, _paired_widths(layers), keep=keep, spaces=2):
        (even, odd), scale = _split_input(x[block.span], layers), 1.0
        for (weight_even, bias, weight_odd), value, (space, _) in zip(layers, block.values, block.spaces, strict=False):
            sums, sides = _halves(space), _halves(value)
            torch.addmm(bias, even, weight_even.t(), alpha=scale, out=sums[0])
            _scaled_product(odd, weight_odd.t(), scale, sums[1])
            _combine(sums, sides)
            activate(work.activation, value, space)
            _combine(sides, sums)
            (even, odd), scale = sums, 0.5
        weight_even, bias, weight_odd = layers[-1]
        torch.addmm(bias, even, weight_even.t(), alpha=scale, out=out[block.span, :num_even])
        if num_odd:
            _scaled_product(odd, weight_odd.t(), scale, out[block.span, num_even:])
    return out


class _SymmetricFunction(torch.autograd.Function):
    """The symmetric perceptron as one operation of autograd."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, work: Workspace, *parts: Tensor) -> Tensor:
        out = _paired_forward(work, x, list(zip(parts[::3], parts[1::3], parts[2::3], strict=True)), keep=True)
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
        for block in work.blocks(x.shape[0], _paired_widths(layers), keep=True, spaces=2):
            grad = (grads[0][block.span, :num_even], grads[0][block.span, num_even:])
            for i in range(len(layers) - 1, 0, -1):
                value, (space, other) = block.values[i - 1], block.spaces[i - 1]
                below, spare = _halves(space), _halves(other)
                _combine(_halves(value), below)
                _weight_gradients(results[3 * i : 3 * i + 3], grad, below, 0.5)
                _scaled_product(grad[0], layers[i][0], 0.5, spare[0])
                if grad[1].shape[1]:
                    _scaled_product(grad[1], layers[i][2], 0.5, spare[1])
                else:
                    spare[1].zero_()
                _combine(spare, below)
                activation_gradient(work.activation, space, value)
                _combine(below, spare)
                grad = spare
            _weight_gradients(results[:3], grad, _split_input(x[block.span], layers), 1.0)
            if grad_x is not None:
                for below, above, weight in zip(
                    _split_input(grad_x[block.span], layers), grad, layers[0][::2], strict=True
                ):
                    torch.mm(above, weight, out=below)
        return grad_x, None, *results


def _weight_gradients(results: Sequence[Tensor], grad: Pair, value: Pair, scale: float) -> None:
    """Add a block's gradients of an even weight, its bias and an odd weight."""
    results[0].addmm_(grad[0].t(), value[0], alpha=scale)
    results[1].add_(grad[0].sum(0))
    if grad[1].shape[1]:
        results[2].addmm_(grad[1].t(), value[1], alpha=scale)

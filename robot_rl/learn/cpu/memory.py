"""Recurrent layers for the CPU: sequences are computed for blocks of a few hundred worlds that fit into the cache.

As in `robot_rl.learn.cpu.mlp`, the arrays of a pass are kept between calls and the gradient is written out by hand
(backpropagation through time, Werbos 1990): a step is a dozen short operations on (worlds, units), for each of which
autograd would allocate an array and record a node. A state that begins an episode is multiplied by zero, and so is the
gradient that comes back to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

LEAST_ROWS = 256
"""A thread's worlds of a block at least."""
MAX_KEPT = 4
"""Shapes of sequences for which arrays are kept at once."""

tanh_backward = torch.ops.aten.tanh_backward.grad_input
sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input

Parts = tuple[Tensor, ...]
"""Parts of a layer's state, (..., H) each: the output, and an LSTM's cell."""
Weights = tuple[Tensor, Tensor, Tensor, Tensor]
"""Weights of input (G H, F) and state (G H, H), bias of the gates (G H,), bias within a gate (H,) or (0,)."""


class Arrays(NamedTuple):
    """The arrays of one step of b worlds, or of all their steps.

    Attributes:
        gates: (..., G H) gates; before a kernel runs, the input's share of them.
        inner: (..., H) intermediate values that a kernel keeps.
        prev: state before the step, (H) each part.
    """

    gates: Tensor
    inner: Tensor
    prev: Parts


@dataclass(frozen=True, slots=True)
class Kernel:
    """The arithmetic of one step of b worlds, in place.

    Attributes:
        gates: gates G.
        parts: parts of the state.
        forward: (arrays, weight of the state, inner bias, parts of the next state): writes the last.
        backward: (gradients of the parts, arrays, weight, spare arrays (b, H)): replaces the gradients by those of the
            previous parts, and gates and inner by their own.
        weigh: (result (G H, H), result (H,), arrays of all steps): adds the gradients of the weight and inner bias.
    """

    gates: int
    parts: int
    forward: Callable[[Arrays, Tensor, Tensor, Parts], None]
    backward: Callable[[Parts, Arrays, Tensor, Parts], None]
    weigh: Callable[[Tensor, Tensor, Arrays], None]


def _gru_forward(arrays: Arrays, weight: Tensor, bias: Tensor, out: Parts) -> None:
    """Gates r, z, n: n = tanh(x_n + r (W h + b)), h' = n + z (h - n); inner becomes W h + b."""
    gates, inner, (prev,) = arrays
    size = prev.shape[1]
    gates[:, : 2 * size].addmm_(prev, weight[: 2 * size].t()).sigmoid_()
    torch.addmm(bias, prev, weight[2 * size :].t(), out=inner)
    reset, keep, new = gates.chunk(3, 1)
    new.addcmul_(reset, inner).tanh_()
    torch.sub(prev, new, out=out[0])
    torch.addcmul(new, keep, out[0], out=out[0])


def _gru_backward(grads: Parts, arrays: Arrays, weight: Tensor, spares: Parts) -> None:
    (grad,), (gates, inner, (prev,)), (keep_grad, direct) = grads, arrays, spares
    size = prev.shape[1]
    reset, keep, new = gates.chunk(3, 1)
    torch.sub(prev, new, out=keep_grad).mul_(grad)
    torch.mul(grad, keep, out=direct)
    grad.sub_(direct)
    tanh_backward(grad, new, grad_input=new)
    torch.mul(new, inner, out=grad)
    torch.mul(new, reset, out=inner)
    sigmoid_backward(grad, reset, grad_input=reset)
    sigmoid_backward(keep_grad, keep, grad_input=keep)
    torch.addmm(direct, gates[:, : 2 * size], weight[: 2 * size], out=grad)
    grad.addmm_(inner, weight[2 * size :])


def _gru_weigh(weight: Tensor, bias: Tensor, arrays: Arrays) -> None:
    gates, inner, (prev,) = arrays
    size = prev.shape[1]
    weight[: 2 * size].addmm_(gates[:, : 2 * size].t(), prev)
    weight[2 * size :].addmm_(inner.t(), prev)
    bias.add_(inner.sum(0))


def _lstm_forward(arrays: Arrays, weight: Tensor, bias: Tensor, out: Parts) -> None:
    """Gates i, f, o, g: c' = f c + i g, h' = o tanh(c'); inner becomes tanh(c')."""
    gates, inner, (prev, prev_cell) = arrays
    size = prev.shape[1]
    gates.addmm_(prev, weight.t())
    gates[:, : 3 * size].sigmoid_()
    gates[:, 3 * size :].tanh_()
    take, keep, show, new = gates.chunk(4, 1)
    torch.mul(keep, prev_cell, out=out[1]).addcmul_(take, new)
    torch.tanh(out[1], out=inner)
    torch.mul(show, inner, out=out[0])


def _lstm_backward(grads: Parts, arrays: Arrays, weight: Tensor, spares: Parts) -> None:
    (grad, grad_cell), (gates, inner, (_, prev_cell)), (a, b) = grads, arrays, spares
    take, keep, show, new = gates.chunk(4, 1)
    torch.mul(grad, show, out=a)
    grad_cell.add_(tanh_backward(a, inner, grad_input=a))
    torch.mul(grad, inner, out=a)
    sigmoid_backward(a, show, grad_input=show)
    torch.mul(grad_cell, take, out=a)
    torch.mul(grad_cell, new, out=b)
    tanh_backward(a, new, grad_input=new)
    sigmoid_backward(b, take, grad_input=take)
    torch.mul(grad_cell, prev_cell, out=a)
    grad_cell.mul_(keep)
    sigmoid_backward(a, keep, grad_input=keep)
    torch.mm(gates, weight, out=grad)


def _lstm_weigh(weight: Tensor, bias: Tensor, arrays: Arrays) -> None:
    weight.addmm_(arrays.gates.t(), arrays.prev[0])


GRU = Kernel(3, 1, _gru_forward, _gru_backward, _gru_weigh)
LSTM = Kernel(4, 2, _lstm_forward, _lstm_backward, _lstm_weigh)


@dataclass(slots=True, frozen=True)
class WorldBlock:
    """The worlds that go through a sequence together.

    Attributes:
        span: which worlds.
        steps: arrays of each step; the same ones for all if no backward pass follows.
        whole: arrays of all steps, concatenated.
        spares: intermediate arrays (b, H), shared by all blocks.
        carried: gradients that go back from step to step, (b, H) each part, shared by all blocks.
    """

    span: slice
    steps: list[Arrays]
    whole: Arrays
    spares: Parts
    carried: Parts


class MemorySpace:
    """Arrays for one layer's passes, kept between calls.

    Attributes:
        kernel: the arithmetic.
        rows: worlds of a block.
        generation: counts the recorded forward passes; each overwrites the arrays of the one before.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.rows = torch.get_num_threads() * LEAST_ROWS
        self.generation = 0
        self._blocks: dict[tuple[Any, ...], list[WorldBlock]] = {}

    def blocks(self, shape: tuple[int, int, int], dtype: torch.dtype, *, keep: bool) -> list[WorldBlock]:
        """Return the blocks of a pass over L steps, B worlds and H units, with arrays of unspecified content.

        With `keep` every step has its own arrays, for a backward pass; else all share those of one.
        """
        key = (*shape, dtype, keep)
        if key not in self._blocks:
            if len(self._blocks) == MAX_KEPT:  # Dictionaries are ordered: the first is the oldest.
                del self._blocks[next(iter(self._blocks))]
            self._blocks[key] = self._make(shape, dtype, keep=keep)
        return self._blocks[key]

    def _make(self, shape: tuple[int, int, int], dtype: torch.dtype, *, keep: bool) -> list[WorldBlock]:
        (steps, worlds, size), kernel = shape, self.kernel
        most, held = min(worlds, self.rows), steps if keep else 1

        def space(rows: int, width: int) -> Tensor:
            return torch.empty(held, rows, width, dtype=dtype)

        def arrays(rows: int) -> Arrays:
            prev = tuple(space(rows, size) for _ in range(kernel.parts))
            return Arrays(space(rows, kernel.gates * size), space(rows, size), prev)

        shared = arrays(most)
        rest = [torch.empty(most, size, dtype=dtype) for _ in range(2 + kernel.parts)]
        blocks = []
        for start in range(0, worlds, self.rows):
            rows = min(self.rows, worlds - start)
            own = arrays(rows) if keep else _each(shared, lambda array, rows=rows: array[:, :rows])
            views = [_each(own, lambda array, t=t: array[t]) for t in range(held)]
            part = tuple(array[:rows] for array in rest)
            whole = _each(own, lambda array: array.flatten(0, 1))
            blocks.append(
                WorldBlock(slice(start, start + rows), views if keep else views * steps, whole, part[:2], part[2:])
            )
        return blocks

    def __deepcopy__(self, memo: dict[int, Any]) -> MemorySpace:
        """Return an empty workspace for the copied network."""
        return MemorySpace(self.kernel)


def run_sequence(space: MemorySpace, x: Tensor, state: Parts, alive: Tensor | None, weights: Weights) -> Parts:
    """Return the state (L, B, H) each part after each step of inputs x (L, B, F); differentiable except by `alive`.

    `alive` (L, B, 1) is zero if the state before the step, (B, H) each part, is reset, else one; None: all ones.
    """
    if torch.is_grad_enabled():
        return _SequenceFunction.apply(space, alive, x, *state, *weights)  # type: ignore[return-value]
    return _forward(space, x, state, alive, weights, keep=False)


def _forward(
    space: MemorySpace, x: Tensor, state: Parts, alive: Tensor | None, weights: Weights, *, keep: bool
) -> Parts:
    weight_x, weight_h, bias, bias_h = weights
    steps, worlds, size = x.shape[0], x.shape[1], weight_h.shape[1]
    out = tuple(torch.empty(steps, worlds, size, dtype=x.dtype) for _ in state)
    for block in space.blocks((steps, worlds, size), x.dtype, keep=keep):
        before = tuple(part[block.span] for part in state)
        for t, arrays in enumerate(block.steps):
            for target, part in zip(arrays.prev, before, strict=True):
                if alive is None:
                    target.copy_(part)
                else:
                    torch.mul(part, alive[t, block.span], out=target)
            torch.addmm(bias, x[t, block.span], weight_x.t(), out=arrays.gates)
            before = tuple(part[t, block.span] for part in out)
            space.kernel.forward(arrays, weight_h, bias_h, before)
    return out


class _SequenceFunction(torch.autograd.Function):
    """A layer over a sequence as one operation of autograd."""

    @staticmethod
    def forward(ctx: Any, space: MemorySpace, alive: Tensor | None, x: Tensor, *tensors: Tensor) -> Parts:
        state, weights = tensors[: space.kernel.parts], tensors[space.kernel.parts :]
        out = _forward(space, x, state, alive, weights, keep=True)  # type: ignore[arg-type]
        space.generation += 1
        ctx.space, ctx.generation, ctx.alive = space, space.generation, alive
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, *weights)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        space, alive = ctx.space, ctx.alive
        if space.generation != ctx.generation:
            raise RuntimeError("the network ran forward again before this backward pass; use the plain path for both")
        space.generation += 1  # This pass overwrites the arrays of the forward pass: it cannot run twice.
        x, *weights = ctx.saved_tensors
        weight_x, weight_h = weights[:2]
        steps, worlds, size = x.shape[0], x.shape[1], weight_h.shape[1]
        results = [torch.zeros_like(weight) for weight in weights]
        grad_x = torch.empty_like(x) if ctx.needs_input_grad[2] else None
        grad_state = tuple(torch.empty(worlds, size, dtype=x.dtype) for _ in grads)
        for block in space.blocks((steps, worlds, size), x.dtype, keep=True):
            for part in block.carried:
                part.zero_()
            for t in range(steps - 1, -1, -1):
                arrays = block.steps[t]
                for part, grad in zip(block.carried, grads, strict=True):
                    if grad is not None:
                        part.add_(grad[t, block.span])
                space.kernel.backward(block.carried, arrays, weight_h, block.spares)
                if alive is not None:
                    for part in block.carried:
                        part.mul_(alive[t, block.span])
                results[0].addmm_(arrays.gates.t(), x[t, block.span])
                if grad_x is not None:
                    torch.mm(arrays.gates, weight_x, out=grad_x[t, block.span])
            space.kernel.weigh(results[1], results[3], block.whole)
            results[2].add_(block.whole.gates.sum(0))
            for result, part in zip(grad_state, block.carried, strict=True):
                result[block.span] = part
        return None, None, grad_x, *grad_state, *results


def _each(arrays: Arrays, change: Callable[[Tensor], Tensor]) -> Arrays:
    """Return the arrays, each changed."""
    return Arrays(change(arrays.gates), change(arrays.inner), tuple(change(part) for part in arrays.prev))

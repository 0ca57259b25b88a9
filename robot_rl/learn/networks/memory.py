"""Recurrent layers of actor and critic.

The state is one flat tensor (B, S), so other modules need not know its layers and cells. Gradients go back through a
sequence and no further (truncated backpropagation through time, Williams & Peng 1990), and never across the start of an
episode.

Under a mirror the units come in pairs that are swapped, so the second half of a layer's weights is the first half
mirrored. The state for mirrored observations is then the mirror image of the state, to rounding.
"""

from __future__ import annotations

import copy
import math
from typing import cast

import torch
from torch import Tensor, nn

from robot_rl.errors import UserError
from robot_rl.learn.cpu.memory import GRU, LSTM, MemorySpace, Parts, Weights, run_sequence
from robot_rl.learn.networks.layout import Mirror
from robot_rl.learn.networks.mlp import make_weights
from robot_rl.learn.precision import bounds
from robot_rl.learn.precision.conversion import Place, Quantizer
from robot_rl.learn.precision.exported import FrozenLayer
from robot_rl.learn.precision.perceptron import pad_rows
from robot_rl.settings import MemoryCfg

KERNELS = {"gru": GRU, "lstm": LSTM}
FORGET_BIAS = 1.0
"""Bias of an LSTM's forget gate at the start: it remembers before it has learned to (Jozefowicz et al. 2015)."""


class Memory(nn.Module):
    """Recurrent layers, each on the output of the one before, equivariant under the `mirror` of the input, where given.

    Attributes:
        hidden: units H of a layer.
        state_size: components S of the state: layer after layer the output and, of an LSTM, the cell, H each.
        cells: the layers.
        mirror: mirror of the output; None without symmetry.
    """

    def __init__(
        self, in_dim: int, cfg: MemoryCfg, generator: torch.Generator | None = None, mirror: Mirror | None = None
    ) -> None:
        """Build the layers; raise UserError for an odd number of units under a mirror."""
        super().__init__()
        if mirror is not None and cfg.hidden % 2:
            raise UserError(
                f"memory.hidden: {cfg.hidden} is odd, a symmetric network needs an even one such as {cfg.hidden + 1}"
            )
        self.hidden = cfg.hidden
        swap = None if mirror is None else (torch.arange(cfg.hidden).roll(cfg.hidden // 2), torch.ones(cfg.hidden))
        sizes, mirrors = [in_dim] + [cfg.hidden] * cfg.layers, [mirror] + [swap] * cfg.layers
        self.mirror = swap
        self.cells = nn.ModuleList(
            Recurrent(cfg.kind, size, cfg.hidden, generator, seen)
            for size, seen in zip(sizes[:-1], mirrors[:-1], strict=True)
        )
        self.state_size = cfg.layers * KERNELS[cfg.kind].parts * cfg.hidden

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs (B, H) at inputs (B, F), and the state (B, S) after the step from the one before it."""
        y, parts = self._run(x[None], state, None)
        return y[0], _join(parts)[0]

    def sequence(self, x: Tensor, state: Tensor, start: Tensor) -> Tensor:
        """Return the outputs (L, B, H) of inputs (L, B, F), differentiable with respect to inputs, state and weights.

        `state` (B, S) is that before the first step; it is zeroed if an episode began with a step, `start` (L, B).
        """
        return self._run(x, state, start)[0]

    @torch.no_grad()
    def trace(self, x: Tensor, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        """Return the result of `sequence` and the state (L, B, S) after each step, without gradients."""
        y, parts = self._run(x, state, start)
        return y, _join(parts)

    def plain_step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Compute `step` with PyTorch's own operations, for the export."""
        parts: list[Tensor] = []
        for cell, before in zip(self._cells(), self._split(state), strict=True):
            after = cell.cell(x, before)
            x = after[0]
            parts += after
        return x, _join(parts)

    def quantize(self, quantizer: Quantizer, name: str) -> None:
        """Replace the arithmetic of every layer's two products by a rounded one."""
        for k, cell in enumerate(self._cells()):
            cell.quantize(quantizer, f"{name}.{k}", is_first=k == 0)

    def dense(self) -> Memory:
        """Return a copy on the CPU with layers that hold the weights of all units, without a mirror."""
        twin = copy.deepcopy(self).cpu()
        for cell in twin._cells():
            cell.make_dense()
        return twin

    def through(self, value: Tensor, error: Tensor, state: Tensor) -> bounds.Bounded:
        """Return the output (B, H) of a step and its error, from those of its input and the same state (B, S)."""
        for cell, before in zip(self._cells(), self._split(state.double()), strict=True):
            value, error = cell.through(value, error, before)
        return value, error

    def _run(self, x: Tensor, state: Tensor, start: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        parts: list[Tensor] = []
        for cell, before in zip(self._cells(), self._split(state), strict=True):
            after = cell(x, before, start)
            x = after[0]
            parts += after
        return x, parts

    def _cells(self) -> list[Recurrent]:
        return cast("list[Recurrent]", list(self.cells))

    def _split(self, state: Tensor) -> list[Parts]:
        parts = state.split(self.hidden, dim=-1)
        each = len(parts) // len(self.cells)
        return [parts[k : k + each] for k in range(0, len(parts), each)]


class Recurrent(nn.Module):
    """One recurrent layer: a GRU (Cho et al. 2014) or an LSTM (Hochreiter & Schmidhuber 1997).

    The initial weights are orthogonal, gate by gate. Under a mirror all four tensors hold the first H / 2 units.

    Attributes:
        weight_x: (G H, F) weights of the input; gates r, z, n of a GRU, i, f, o, g of an LSTM.
        weight_h: (G H, H) weights of the state.
        bias: (G H,) bias of the gates.
        bias_h: (H,) bias within a GRU's gate n, (0,) of an LSTM.
    """

    perm: Tensor
    sign: Tensor

    def __init__(
        self,
        kind: str,
        in_dim: int,
        hidden: int,
        generator: torch.Generator | None = None,
        mirror: Mirror | None = None,
    ) -> None:
        super().__init__()
        self.kernel, self.is_mirrored = KERNELS[kind], mirror is not None
        units = hidden // 2 if self.is_mirrored else hidden

        def draw(columns: int) -> Tensor:
            gates = [make_weights((columns, units), 1.0, generator)[0].detach() for _ in range(self.kernel.gates)]
            return torch.cat(gates)

        self.weight_x = nn.Parameter(draw(in_dim))
        if self.is_mirrored:  # Of sums and differences of partners, so that the whole is also orthogonal.
            even, odd = draw(units), draw(units)
            self.weight_h = nn.Parameter(0.5 * torch.cat((even + odd, even - odd), 1))
        else:
            self.weight_h = nn.Parameter(draw(hidden))
        self.bias = nn.Parameter(torch.zeros(self.kernel.gates * units))
        self.bias_h = nn.Parameter(torch.zeros(units if kind == "gru" else 0))
        if kind == "lstm":
            with torch.no_grad():
                self.bias[units : 2 * units] = FORGET_BIAS
        perm, sign = mirror or (torch.empty(0, dtype=torch.int64), torch.empty(0))
        self.register_buffer("perm", perm.clone(), persistent=False)
        self.register_buffer("sign", sign.clone(), persistent=False)
        self.space = MemorySpace(self.kernel)
        self.arithmetic: nn.ModuleList | None = None

    def quantize(self, quantizer: Quantizer, name: str, *, is_first: bool) -> None:
        """Replace the arithmetic of the products of input and state by a rounded one."""
        input_shape, state_shape = (weight.shape for weight in self.weights()[:2])
        self.arithmetic = nn.ModuleList(
            (
                quantizer(f"{name}.x", input_shape, Place(is_first=is_first)),
                quantizer(f"{name}.h", state_shape, Place(is_signed=False)),
            )
        )

    def weights(self) -> Weights:
        """Return the four tensors of all H units: under a mirror the second half is the first one mirrored."""
        if not self.is_mirrored:
            return self.weight_x, self.weight_h, self.bias, self.bias_h
        gates, bias_h = self.kernel.gates, self.bias_h
        x, h = self.weight_x.unflatten(0, (gates, -1)), self.weight_h.unflatten(0, (gates, -1))
        bias = self.bias.unflatten(0, (gates, -1))
        return (
            torch.cat((x, x[..., self.perm] * self.sign), 1).flatten(0, 1),
            torch.cat((h, h.roll(h.shape[-1] // 2, -1)), 1).flatten(0, 1),
            torch.cat((bias, bias), 1).flatten(),
            torch.cat((bias_h, bias_h)),
        )

    def make_dense(self) -> None:
        """Hold the weights of all units, without a mirror."""
        weights = [nn.Parameter(weight.detach().clone()) for weight in self.weights()]
        self.weight_x, self.weight_h, self.bias, self.bias_h = weights
        self.is_mirrored = False
        if self.arithmetic is not None:
            pairs = zip(self.arithmetic, (self.weight_x, self.weight_h), (self.bias, None), strict=True)
            self.arithmetic = nn.ModuleList(FrozenLayer(layer, weight, bias) for layer, weight, bias in pairs)

    def forward(self, x: Tensor, state: Parts, start: Tensor | None) -> Parts:
        """Return the state (L, B, H) each part after each step of inputs (L, B, F); it is zeroed at `start` (L, B)."""
        if self.arithmetic is not None and x.device.type == "cpu":
            return self._padded(x, state, start)
        if x.device.type != "cpu":
            return self.plain(x, state, start)
        alive = None if start is None else (~start).to(x.dtype)[..., None]
        return run_sequence(self.space, x, state, alive, self.weights())

    def _padded(self, x: Tensor, state: Parts, start: Tensor | None) -> Parts:
        """Compute `plain` with as many worlds as the bits do not depend on (`pad_rows`)."""
        worlds = x.shape[1]
        missing = pad_rows(state[0].detach()).shape[0] - worlds
        x, state = nn.functional.pad(x, (0, 0, 0, missing)), tuple(map(pad_rows, state))
        start = None if start is None else nn.functional.pad(start, (0, missing))
        return tuple(part[:, :worlds] for part in self.plain(x, state, start))

    def _product(self, index: int, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return the product of the inputs (0) or of the state (1) with its weight."""
        if self.arithmetic is None:
            return nn.functional.linear(x, weight, bias)
        flat = self.arithmetic[index](x.reshape(math.prod(x.shape[:-1]), x.shape[-1]), weight, bias)
        return flat.view(*x.shape[:-1], flat.shape[-1])

    def plain(self, x: Tensor, state: Parts, start: Tensor | None) -> Parts:
        """Compute `forward` with PyTorch's own operations: any device, any number of passes at once."""
        states, weights = [], self.weights()
        gates = self._product(0, x, weights[0], weights[2])
        for t in range(x.shape[0]):
            if start is not None:
                state = tuple(part.masked_fill(start[t, :, None], 0.0) for part in state)
            state = self._next(gates[t], self._product(1, state[0], weights[1], None), state, weights[3])
            states.append(state)
        return tuple(torch.stack(part) for part in zip(*states, strict=True))

    def cell(self, x: Tensor, state: Parts) -> Parts:
        """Compute a step with PyTorch's own operations, from inputs (B, F) and the state before it."""
        weights = self.weights()
        gates, added = self._product(0, x, weights[0], weights[2]), self._product(1, state[0], weights[1], None)
        return self._next(gates, added, state, weights[3])

    def through(self, value: Tensor, error: Tensor, state: Parts) -> bounds.Bounded:
        """Return the output (B, H) of a step and its error, from those of its input and the same state."""
        weights = self.weights()
        both = ((value, error), (state[0], torch.zeros_like(state[0])))
        pairs = []
        for index, (part, weight) in enumerate(zip(both, weights[:2], strict=True)):
            if self.arithmetic is None:
                bias = weights[2].detach() if index == 0 else None
                pairs.append(bounds.add(bounds.weigh(*part, weight.detach(), nn.functional.linear), bias))
            else:
                pairs.append(bounds.through(self.arithmetic[index], *part))
        (gates, off), (added, off_h) = pairs
        after = self._next(gates, added, state, weights[3].detach().double())
        # A gate's slope is at most 1, and it weighs a part of the state, a number up to 1 or the state's own share.
        most = off + off_h + bounds.FUNCTION * bounds.UNIT * (1.0 + gates.abs() + added.abs())
        weighed = 2.0 + torch.stack([part.abs() for part in state]).sum(0) + added[:, -state[0].shape[1] :].abs()
        return after[0], most.unflatten(-1, (self.kernel.gates, -1)).sum(-2) * weighed

    def _next(self, gates: Tensor, added: Tensor, state: Parts, bias_h: Tensor) -> Parts:
        """Return the state after a step from the shares of input (with the bias) and state of the gates."""
        size = state[0].shape[-1]
        if len(state) == 1:
            reset, keep = torch.sigmoid(gates[:, : 2 * size] + added[:, : 2 * size]).chunk(2, -1)
            new = torch.tanh(gates[:, 2 * size :] + reset * (added[:, 2 * size :] + bias_h))
            return (new + keep * (state[0] - new),)
        gates = gates + added
        take, keep, show = torch.sigmoid(gates[:, : 3 * size]).chunk(3, -1)
        cell = keep * state[1] + take * torch.tanh(gates[:, 3 * size :])
        return show * torch.tanh(cell), cell


def _join(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

"""Recurrent networks: what an actor or a critic remembers from step to step of an episode.

The state is one flat tensor (B, S), so whoever carries it needs to know nothing of layers and cells. Gradients go back
through a sequence and no further (truncated backpropagation through time, Williams & Peng 1990), and never across the
start of an episode.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from robot_rl.config import MemoryCfg
from robot_rl.learn.fused_memory import GRU, LSTM, MemorySpace, Parts, run_sequence
from robot_rl.learn.mlp import make_weights

KERNELS = {"gru": GRU, "lstm": LSTM}
FORGET_BIAS = 1.0
"""Bias of an LSTM's forget gate at the start: it remembers before it has learned to (Jozefowicz et al. 2015)."""


class Memory(nn.Module):
    """Recurrent layers on one another.

    Attributes:
        hidden: units H of a layer.
        state_size: components S of the state: layer after layer the output and, of an LSTM, the cell, H each.
        cells: the layers.
    """

    def __init__(self, in_dim: int, cfg: MemoryCfg, generator: torch.Generator | None = None) -> None:
        """Build the layers.

        Args:
            in_dim: components F of the input.
            cfg: kind ("gru" or "lstm"), units and layers.
            generator: source of the weights; PyTorch's own layers would draw from the global stream.
        """
        super().__init__()
        self.hidden = cfg.hidden
        sizes = [in_dim] + [cfg.hidden] * cfg.layers
        self.cells = nn.ModuleList(Recurrent(cfg.kind, size, cfg.hidden, generator) for size in sizes[:-1])
        self.state_size = cfg.layers * KERNELS[cfg.kind].parts * cfg.hidden

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Go one step on.

        Args:
            x: (B, F) inputs.
            state: (B, S) what is remembered; zeros at the start of an episode.

        Returns:
            Outputs (B, H) and the state (B, S) after the step.
        """
        y, parts = self._run(x[None], state, None)
        return y[0], _join(parts)[0]

    def sequence(self, x: Tensor, state: Tensor, start: Tensor) -> Tensor:
        """Return the outputs (L, B, H) of a sequence, differentiable with respect to inputs, state and weights.

        Args:
            x: (L, B, F) inputs.
            state: (B, S) what is remembered before the first step.
            start: (L, B) bool, an episode began with this step, so nothing is remembered from before it.
        """
        return self._run(x, state, start)[0]

    @torch.no_grad()
    def trace(self, x: Tensor, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        """Return what `sequence` returns and the state (L, B, S) after each step, without gradients."""
        y, parts = self._run(x, state, start)
        return y, _join(parts)

    def plain_step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Compute `step` with PyTorch's own operations, for the export."""
        parts: list[Tensor] = []
        for cell, before in zip(self._cells(), self._split(state), strict=True):
            after = cell.cell(nn.functional.linear(x, cell.weight_x, cell.bias), before)
            x = after[0]
            parts += after
        return x, _join(parts)

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

    Attributes:
        weight_x: (G H, F) weights of the input; gates r, z, n of a GRU, i, f, o, g of an LSTM.
        weight_h: (G H, H) weights of the state.
        bias: (G H,) bias of the gates.
        bias_h: (H,) bias within a GRU's gate n, (0,) of an LSTM.
    """

    def __init__(self, kind: str, in_dim: int, hidden: int, generator: torch.Generator | None = None) -> None:
        """Start with orthogonal weights, gate by gate.

        Args:
            kind: "gru" or "lstm".
            in_dim: components F of the input.
            hidden: units H.
            generator: source of the weights.
        """
        super().__init__()
        self.kernel = KERNELS[kind]

        def draw(columns: int) -> nn.Parameter:
            gates = [make_weights((columns, hidden), 1.0, generator)[0].detach() for _ in range(self.kernel.gates)]
            return nn.Parameter(torch.cat(gates))

        self.weight_x, self.weight_h = draw(in_dim), draw(hidden)
        self.bias = nn.Parameter(torch.zeros(self.kernel.gates * hidden))
        self.bias_h = nn.Parameter(torch.zeros(hidden if kind == "gru" else 0))
        if kind == "lstm":
            with torch.no_grad():
                self.bias[hidden : 2 * hidden] = FORGET_BIAS
        self.space = MemorySpace(self.kernel)

    def forward(self, x: Tensor, state: Parts, start: Tensor | None) -> Parts:
        """Return the state after each step, (L, B, H) each part.

        Args:
            x: (L, B, F) inputs.
            state: state before the first step, (B, H) each part.
            start: (L, B) bool, nothing is remembered from before the step; None: everything is.
        """
        if x.device.type != "cpu":
            return self.plain(x, state, start)
        alive = None if start is None else (~start).to(x.dtype)[..., None]
        weights = (self.weight_x, self.weight_h, self.bias, self.bias_h)
        return run_sequence(self.space, x, state, alive, weights)

    def plain(self, x: Tensor, state: Parts, start: Tensor | None) -> Parts:
        """Compute `forward` with PyTorch's own operations: any device, any number of passes at once."""
        gates = nn.functional.linear(x, self.weight_x, self.bias)
        states = []
        for t in range(x.shape[0]):
            if start is not None:
                state = tuple(part.masked_fill(start[t, :, None], 0.0) for part in state)
            state = self.cell(gates[t], state)
            states.append(state)
        return tuple(torch.stack(part) for part in zip(*states, strict=True))

    def cell(self, gates: Tensor, state: Parts) -> Parts:
        """Return the state after a step, (B, H) each part.

        Args:
            gates: (B, G H) what the input adds to the gates, the bias included.
            state: state before the step.
        """
        added = nn.functional.linear(state[0], self.weight_h)
        size = state[0].shape[-1]
        if self.kernel is GRU:
            reset, keep = torch.sigmoid(gates[:, : 2 * size] + added[:, : 2 * size]).chunk(2, -1)
            new = torch.tanh(gates[:, 2 * size :] + reset * (added[:, 2 * size :] + self.bias_h))
            return (new + keep * (state[0] - new),)
        gates = gates + added
        take, keep, show = torch.sigmoid(gates[:, : 3 * size]).chunk(3, -1)
        cell = keep * state[1] + take * torch.tanh(gates[:, 3 * size :])
        return show * torch.tanh(cell), cell


def _join(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

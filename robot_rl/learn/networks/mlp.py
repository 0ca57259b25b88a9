"""Multilayer perceptrons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from robot_rl.config import NetworkCfg
from robot_rl.learn.cpu.mlp import FUSED_ACTIVATIONS, Workspace, run_mlp

HIDDEN_GAIN = math.sqrt(2.0)
_ACTIVATIONS: dict[str, type[nn.Module]] = {"elu": nn.ELU, "relu": nn.ReLU, "silu": nn.SiLU, "tanh": nn.Tanh}


def make_activation(name: str) -> nn.Module:
    """Return the activation of that name (one of `robot_rl.config.networks.ACTIVATIONS`)."""
    return _ACTIVATIONS[name]()


def make_weights(sizes: Sequence[int], last_gain: float, generator: torch.Generator | None) -> list[nn.Parameter]:
    """Return the weights (out, in) of a perceptron's layers, orthogonal at the start (Saxe et al. 2014).

    Args:
        sizes: components of the input, of each hidden layer and of the output.
        last_gain: factor of the last layer's weights; the others have HIDDEN_GAIN.
        generator: source of the weights; PyTorch's own layers would draw from the global stream.
    """
    weights = []
    for i, (in_dim, out_dim) in enumerate(pairwise(sizes)):
        weight = nn.Parameter(torch.empty(out_dim, in_dim))
        if weight.numel():
            gain = last_gain if i == len(sizes) - 2 else HIDDEN_GAIN
            nn.init.orthogonal_(weight, gain=gain, generator=generator)
        weights.append(weight)
    return weights


class Affine(nn.Module):
    """A linear layer with given weights.

    Attributes:
        weight: (out, in).
        bias: (out,), zero at the start.
    """

    def __init__(self, weight: nn.Parameter) -> None:
        """Take the weights.

        Args:
            weight: (out, in).
        """
        super().__init__()
        self.weight = weight
        self.bias = nn.Parameter(torch.zeros(weight.shape[0]))

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in) to (..., out)."""
        return nn.functional.linear(x, self.weight, self.bias)


def affines(layers: nn.ModuleList) -> list[Affine]:
    """Return the layers of a list of `Affine` by their type."""
    return cast("list[Affine]", list(layers))


def make_chain(parts: Sequence[tuple[Tensor, Tensor]], activation: nn.Module) -> nn.Sequential:
    """Return linear layers that hold copies of weights (out, in) and biases (out,), with an activation between them."""
    modules: list[nn.Module] = []
    for i, (weight, bias) in enumerate(parts):
        linear = nn.Linear(weight.shape[1], weight.shape[0])
        with torch.no_grad():
            linear.weight.copy_(weight)
            linear.bias.copy_(bias)
        modules += [linear] if i == len(parts) - 1 else [linear, type(activation)()]
    return nn.Sequential(*modules)


class Mlp(nn.Module):
    """A multilayer perceptron.

    Attributes:
        layers: the linear layers in order.
    """

    def __init__(self, in_dim: int, out_dim: int, cfg: NetworkCfg, generator: torch.Generator | None = None) -> None:
        """Build the layers.

        Args:
            in_dim: components of the input.
            out_dim: components of the output.
            cfg: widths, activation and gain of the last layer.
            generator: source of the weights.
        """
        super().__init__()
        weights = make_weights((in_dim, *cfg.hidden, out_dim), cfg.output_gain, generator)
        self.layers = nn.ModuleList(map(Affine, weights))
        self.activation = make_activation(cfg.activation)
        self.work = Workspace(cfg.activation, max(cfg.hidden))

    def encode(self, x: Tensor) -> Tensor:
        """Return what `forward` takes, from normalized observations: here the observations themselves."""
        return x

    def forward(self, x: Tensor) -> Tensor:
        """Map encoded inputs (B, in_dim) to outputs (B, out_dim)."""
        if x.device.type == "cpu" and self.work.activation in FUSED_ACTIVATIONS and self.work.pays(x.shape[0]):
            return run_mlp(self.work, x, [(layer.weight, layer.bias) for layer in affines(self.layers)])
        return self.plain(x)

    def plain(self, x: Tensor) -> Tensor:
        """Compute `forward` with PyTorch's own operations: any device, any activation, any number of passes at once."""
        *hidden, last = self.layers
        for layer in hidden:
            x = self.activation(layer(x))
        return last(x)

    def dense(self) -> nn.Sequential:
        """Return a copy as a plain chain of linear layers and activations over normalized observations."""
        return make_chain([(layer.weight, layer.bias) for layer in affines(self.layers)], self.activation).cpu()

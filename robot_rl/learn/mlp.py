"""Multilayer perceptrons."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from robot_rl.config import NetworkCfg

HIDDEN_GAIN = math.sqrt(2.0)
_ACTIVATIONS: dict[str, type[nn.Module]] = {"elu": nn.ELU, "relu": nn.ReLU, "silu": nn.SiLU, "tanh": nn.Tanh}


def make_activation(name: str) -> nn.Module:
    """Return the activation of that name (one of `robot_rl.config.learner.ACTIVATIONS`)."""
    return _ACTIVATIONS[name]()


def make_linear(in_dim: int, out_dim: int, gain: float, generator: torch.Generator | None) -> nn.Linear:
    """Return a linear layer with orthogonal weights (Saxe et al. 2014) times a gain, and zero bias."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, in_dim, out_dim)  # type: ignore[assignment]
    if layer.weight.numel():
        nn.init.orthogonal_(layer.weight, gain=gain, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


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
        sizes = (in_dim, *cfg.hidden, out_dim)
        gains = (HIDDEN_GAIN,) * len(cfg.hidden) + (cfg.output_gain,)
        self.layers = nn.ModuleList(
            make_linear(a, b, gain, generator) for a, b, gain in zip(sizes[:-1], sizes[1:], gains, strict=True)
        )
        self.activation = make_activation(cfg.activation)

    def encode(self, x: Tensor) -> Tensor:
        """Return what `forward` takes, from normalized observations: here the observations themselves."""
        return x

    def forward(self, x: Tensor) -> Tensor:
        """Map encoded inputs (B, in_dim) to outputs (B, out_dim)."""
        *hidden, last = self.layers
        for layer in hidden:
            x = self.activation(layer(x))
        return last(x)

    def dense(self) -> nn.Sequential:
        """Return a copy as a plain chain of linear layers and activations over normalized observations."""
        parts = [(layer.weight, layer.bias) for layer in self.layers]
        return make_chain(parts, self.activation)  # type: ignore[arg-type]

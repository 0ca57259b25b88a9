"""Multilayer perceptrons."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from robot_rl.learn.cpu.mlp import FUSED_ACTIVATIONS, Workspace, run_mlp
from robot_rl.learn.networks.arithmetic import ConvertedLinear, Converter, run_layers
from robot_rl.learn.precision import perceptron as quantized
from robot_rl.learn.precision.conversion import Place, Quantizer
from robot_rl.learn.precision.exported import FrozenLayer
from robot_rl.learn.precision.layer import QuantizedLayer
from robot_rl.settings import NetworkCfg

HIDDEN_GAIN = math.sqrt(2.0)
_ACTIVATIONS: dict[str, type[nn.Module]] = {"elu": nn.ELU, "relu": nn.ReLU, "silu": nn.SiLU, "tanh": nn.Tanh}


def make_activation(name: str) -> nn.Module:
    """Return the activation with that name (one of `robot_rl.settings.networks.ACTIVATIONS`)."""
    return _ACTIVATIONS[name]()


def make_weights(sizes: Sequence[int], last_gain: float, generator: torch.Generator | None) -> list[nn.Parameter]:
    """Return the weights (out, in) of a perceptron's layers, initialized orthogonally (Saxe et al. 2014).

    `sizes` are the components of the input, of each hidden layer and of the output; `last_gain` is the factor of the
    last layer's weights, and HIDDEN_GAIN of the others. `generator` is their source; PyTorch's own layers would draw
    from the global stream.
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
    """A linear layer with given weights (out, in) and a bias (out,) that is initially zero."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight
        self.bias = nn.Parameter(torch.zeros(weight.shape[0]))

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in) to (..., out)."""
        return nn.functional.linear(x, self.weight, self.bias)


def affines(layers: nn.ModuleList) -> list[Affine]:
    """Return the layers of a list of `Affine` with their type."""
    return cast("list[Affine]", list(layers))


class Perceptron(nn.Module):
    """The base of perceptrons: an activation, weights as they are deployed, and arithmetic that may be converted.

    Attributes:
        activation: between the layers.
        arithmetic: of each layer, if a converter replaced it; else None.
    """

    activation: nn.Module
    work: Workspace

    def __init__(self) -> None:
        super().__init__()
        self.arithmetic: nn.ModuleList | None = None

    def deployed(self) -> list[tuple[Tensor, Tensor]]:
        """Return weight (out, in) and bias (out,) of each layer over normalized observations, differentiable."""
        raise NotImplementedError

    def convert(self, converter: Converter, name: str) -> None:
        """Replace the arithmetic of every layer; `name` is the perceptron's."""
        shapes = [(weight.shape[0], weight.shape[1]) for weight, _ in self.deployed()]
        self.arithmetic = nn.ModuleList(converter(f"{name}.{i}", shape) for i, shape in enumerate(shapes))

    def quantize(self, quantizer: Quantizer, name: str, *, is_first: bool) -> None:
        """Replace the arithmetic of every layer by a rounded one; `is_first` says that it sees the observations."""
        shapes = [weight.shape for weight, _ in self.deployed()]
        last = len(shapes) - 1
        self.arithmetic = nn.ModuleList(
            quantizer(f"{name}.{i}", shape, Place(is_first and i == 0, i == last, i < last, i == 0))
            for i, shape in enumerate(shapes)
        )

    def converted(self, x: Tensor) -> Tensor:
        """Return the output (B, out) of layers with another arithmetic at inputs (B, in), not encoded."""
        assert self.arithmetic is not None
        if isinstance(self.arithmetic[0], QuantizedLayer):
            return quantized.run_layers(x, self.deployed(), self.activation, self.arithmetic, self.work)
        return run_layers(x, self.deployed(), self.activation, self.arithmetic)

    def dense(self) -> nn.Sequential:
        """Return a copy as a plain sequence of layers and activations over normalized observations, on the CPU."""
        modules: list[nn.Module] = []
        arithmetic = None if self.arithmetic is None else copy.deepcopy(self.arithmetic).cpu().eval()
        for i, (weight, bias) in enumerate(self.deployed()):
            if arithmetic is not None and isinstance(arithmetic[i], QuantizedLayer):
                layer: nn.Module = FrozenLayer(arithmetic[i], weight, bias)
            elif arithmetic is not None:
                layer = ConvertedLinear(weight, bias, arithmetic[i])
            else:
                layer = nn.utils.skip_init(nn.Linear, weight.shape[1], weight.shape[0])
                layer.load_state_dict({"weight": weight.detach(), "bias": bias.detach()})
            modules += [type(self.activation)(), layer] if modules else [layer]
        return nn.Sequential(*modules)


class Mlp(Perceptron):
    """A multilayer perceptron."""

    def __init__(self, in_dim: int, out_dim: int, cfg: NetworkCfg, generator: torch.Generator | None = None) -> None:
        super().__init__()
        weights = make_weights((in_dim, *cfg.hidden, out_dim), cfg.output_gain, generator)
        self.layers = nn.ModuleList(map(Affine, weights))
        self.activation = make_activation(cfg.activation)
        self.work = Workspace(cfg.activation, max(cfg.hidden))

    def encode(self, x: Tensor) -> Tensor:
        """Return the input of `forward` from normalized observations: here the observations themselves."""
        return x

    def forward(self, x: Tensor) -> Tensor:
        """Map encoded inputs (B, in_dim) to outputs (B, out_dim)."""
        if self.arithmetic is not None:
            return self.converted(x)
        if x.device.type == "cpu" and self.work.activation in FUSED_ACTIVATIONS and self.work.pays(x.shape[0]):
            return run_mlp(self.work, x, self.deployed())
        return self.plain(x)

    def plain(self, x: Tensor) -> Tensor:
        """Compute `forward` with PyTorch's own operations: any device, any activation, any number of passes at once."""
        *hidden, last = self.layers
        for layer in hidden:
            x = self.activation(layer(x))
        return last(x)

    def deployed(self) -> list[tuple[Tensor, Tensor]]:
        """Return weight and bias of each layer."""
        return [(layer.weight, layer.bias) for layer in affines(self.layers)]

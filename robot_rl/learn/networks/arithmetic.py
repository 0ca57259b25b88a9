"""The arithmetic of a layer as a function of its parameters, which a converter may replace.

Without a converter a perceptron computes in its own way (a symmetric one in halves, on a CPU block by block). With one,
every layer of actor and critic is `y = arithmetic(x, weight, bias)`, with the weights that are deployed, wherever the
network runs: in rollouts, in the update, in evaluation and in the exported policy. So fake quantization or another
precision has the same effect in training as on the robot. Convolutions and recurrent layers keep their own arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

Weights = Sequence[tuple[Tensor, Tensor]]
"""Weight (out, in) and bias (out,) of each layer."""
Converter = Callable[[str, tuple[int, int]], nn.Module]
"""Takes a layer's name, such as "actor.body.0", and the shape (out, in) of its weight, and returns its arithmetic: a
module with a forward that takes input (B, in), weight (out, in) and bias (out,) and returns (B, out)."""


class ConvertedLinear(nn.Module):
    """A layer of an exported policy: copies of weight and bias, and its arithmetic in evaluation mode on the CPU."""

    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor, arithmetic: nn.Module) -> None:
        super().__init__()
        self.register_buffer("weight", weight.detach().cpu().clone())
        self.register_buffer("bias", bias.detach().cpu().clone())
        self.arithmetic = arithmetic

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in) to (B, out)."""
        return self.arithmetic(x, self.weight, self.bias)


def run_layers(x: Tensor, weights: Weights, activation: nn.Module, arithmetic: nn.ModuleList) -> Tensor:
    """Return the output (B, out) of converted layers at inputs (B, in), with an activation between them."""
    last = len(weights) - 1
    for i, ((weight, bias), layer) in enumerate(zip(weights, arithmetic, strict=True)):
        x = layer(x, weight, bias)
        x = x if i == last else activation(x)
    return x

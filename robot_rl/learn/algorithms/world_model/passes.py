"""Passes of a perceptron in step after step of one sequence, and back through them in the reverse order.

A few dozen rows make small products, and the number of operations determines the time. The gradient is therefore
written out by hand (backpropagation through time, Werbos 1990), the normalization is part of the first layer, and the
gradient of a weight is computed once for the rows of all steps together.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from robot_rl.learn.cpu.mlp import FUSED_ACTIVATIONS, Layer, activate, activation_gradient
from robot_rl.learn.networks.normalizer import Normalizer


class Passes:
    """A perceptron with the weights that it has at the beginning of a sequence."""

    def __init__(self, layers: Sequence[Layer], activation: str, normalizer: Normalizer | None) -> None:
        """Fold the normalization into the first layer.

        Args:
            layers: Weight (out, in) and bias (out,) of each layer, differentiable if they are learned.
            activation: Between the layers, one of `robot_rl.settings.networks.ACTIVATIONS`.
            normalizer: Of the first components of the input; None if they come normalized.
        """
        (weight, bias), *others = layers
        if normalizer is not None:
            size = len(normalizer.scale)
            scaled = weight[:, :size] * normalizer.scale
            weight, bias = torch.cat((scaled, weight[:, size:]), 1), bias - scaled @ normalizer.mean
        self._parts = [part for layer in ((weight, bias), *others) for part in layer]
        self._layers = [(weight.detach(), bias.detach()) for weight, bias in ((weight, bias), *others)]
        self._activation, self._is_fused = activation, activation in FUSED_ACTIVATIONS
        self._is_learned = self._parts[-1].requires_grad
        self._inputs: list[list[Tensor]] = []
        self._seen: list[list[tuple[Tensor, Tensor]]] = [[] for _ in self._layers]

    def forward(self, x: Tensor) -> Tensor:
        """Map inputs (B, in) to outputs (B, out), and keep what `back` needs."""
        kept = [x]
        *hidden, (last_weight, last_bias) = self._layers
        for weight, bias in hidden:
            x = torch.addmm(bias, x, weight.t())
            if self._is_fused:
                activate(self._activation, x, torch.empty_like(x))
                kept.append(x)
            else:
                kept.append(x)
                x = torch.nn.functional.silu(x)
                kept.append(x)
        self._inputs.append(kept)
        return torch.addmm(last_bias, x, last_weight.t())

    def back(self, grad: Tensor) -> Tensor:
        """Return the gradient (B, in) at the inputs of the last pass that has not gone back, from its outputs'."""
        kept = self._inputs.pop()
        for i in range(len(self._layers) - 1, 0, -1):
            value = kept.pop()
            if self._is_learned:
                self._seen[i].append((grad, value))
            grad = grad @ self._layers[i][0]
            if self._is_fused:
                activation_gradient(self._activation, grad, value)
            else:
                grad = torch.ops.aten.silu_backward(grad, kept.pop())
        if self._is_learned:
            self._seen[0].append((grad, kept[0]))
        return grad @ self._layers[0][0]

    def finish(self) -> None:
        """Add the gradients of all passes that have gone back to those of the parameters."""
        grads = []
        for seen in self._seen:
            grad, value = (torch.cat(arrays) for arrays in zip(*seen, strict=True))
            grads += [grad.t() @ value, grad.sum(0)]
            seen.clear()
        torch.autograd.backward(self._parts, grads)

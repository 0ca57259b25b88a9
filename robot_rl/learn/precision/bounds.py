"""How far two computations of the same quantized network may be from each other, by the arithmetic.

Sums of float32 numbers are rounded in an order that no two libraries share, and so are exponentials. Such a difference
is about 1e-7; but if a value is that close to the middle between two levels of a grid, one computation takes the
upper level and the other one the lower. So the error is propagated with the value itself (running error analysis,
Higham 2002, section 3.3): a rounding passes an error on only if the value plus or minus its error has another level.
The sum of n products is off by at most 6 sqrt(n) u times the sum of their magnitudes, with u = 2**-24, in all but a few
of 1e8 cases, which is the probabilistic bound of Higham & Mary (2019), theorem 2.4, with lambda = 6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from robot_rl.learn.precision.exported import FrozenLayer
from robot_rl.learn.precision.formats import BF16, FP32

UNIT = 2.0**-23
"""Relative difference of two numbers that were rounded to float32 from about the same one, each by u at most."""
OBSERVED = 1e-6
"""How far two programs' observations may be from each other, relative above 1: the tolerance of a bundle's replay."""
LAMBDA = 6.0
FUNCTION = 8.0
"""Units by which libraries' exponentials and hyperbolic tangents may differ from each other, of a result up to 1."""
STEEPEST = 1.1
"""Greatest slope of an activation that is not monotonic (SiLU)."""

Bounded = tuple[Tensor, Tensor]
"""A value and how far it may be off, of one shape."""


def through(module: nn.Module, value: Tensor, error: Tensor, product: Any = None) -> Bounded:
    """Return the output of a module at a value (B, ...) and its error, in float64.

    Modules are sequences, layers (quantized or not, convolutions with their `product`) and functions of each element.
    Raises TypeError for a module that it does not know.
    """
    if isinstance(module, nn.Sequential):
        for part in module:
            value, error = through(part, value, error)
        return value, error
    if isinstance(module, FrozenLayer):
        return _through_layer(module, value, error, product)
    if isinstance(module, (nn.Identity, nn.Flatten)):
        return module(value), module(error)
    if isinstance(module, nn.Linear):
        return add(weigh(value, error, module.weight.detach(), nn.functional.linear), module.bias.detach())
    if next(module.parameters(), None) is None:
        return apply(module, value, error)
    raise TypeError(f"no bound is known for {type(module).__name__}")


def apply(function: Callable[[Tensor], Tensor], value: Tensor, error: Tensor) -> Bounded:
    """Return a function of each element and its error."""
    result = function(value)
    spread = torch.maximum((function(value + error) - result).abs(), (result - function(value - error)).abs())
    if isinstance(function, nn.SiLU):
        spread = STEEPEST * error
    return result, spread + FUNCTION * UNIT * (1.0 + result.abs())


def round_to(layer: FrozenLayer, value: Tensor, error: Tensor) -> Bounded:
    """Return the levels of inputs and how many levels they may be off."""
    format, step = layer.format, layer.step.double()

    def levels(x: Tensor) -> Tensor:
        if not format.has_step:
            return x.to(format.dtype).double()
        return format.levels((x / step).clamp(layer.lowest, format.largest).float()).double()

    error = error + 2.0 * UNIT * value.abs()
    middle = levels(value)
    return middle, torch.maximum(levels(value + error) - middle, middle - levels(value - error))


def weigh(
    value: Tensor, error: Tensor, weight: Tensor, product: Callable[..., Tensor], *, is_exact: bool = False
) -> Bounded:
    """Return the product of inputs and a weight, and its error: that of the inputs, and that of the sums."""
    weight = weight.double()
    spread = product(error, weight.abs())
    if not is_exact:
        terms = math.prod(weight.shape[1:])
        spread = spread + LAMBDA * math.sqrt(terms) * UNIT * product(value.abs(), weight.abs())
    return product(value, weight), spread


def add(pair: Bounded, bias: Tensor | None) -> Bounded:
    """Return a sum and its error, with three roundings: of a factor, of the product with it, and of the sum."""
    value, error = pair
    own = 0.0 if bias is None else bias.double()
    result = value + own
    return result, error + UNIT * (2.0 * value.abs() + result.abs())


def channels(x: Tensor | None, value: Tensor) -> Tensor | None:
    """Return the values of each channel (C,) in a shape that goes with values (B, C, ...)."""
    return None if x is None else x.view(1, -1, *(1,) * (value.ndim - 2))


def _through_layer(layer: FrozenLayer, value: Tensor, error: Tensor, product: Any) -> Bounded:
    product, format = product or nn.functional.linear, layer.format
    bias = channels(None if layer.bias is None else layer.bias.double(), value)
    if format is FP32:
        return add(weigh(value, error, layer.levels, product), bias)
    levels = round_to(layer, value, error)
    sums, spread = weigh(*levels, layer.levels.double(), product, is_exact=format.name == "int8")
    factor = channels(layer.step.double() * layer.grid.double(), value)
    assert factor is not None
    result, off = add((sums * factor, spread * factor), bias)
    if format is BF16 and layer.rounds_output:
        rounded = result.to(torch.bfloat16).double()
        upper, lower = ((result + sign * off).to(torch.bfloat16).double() for sign in (1.0, -1.0))
        return rounded, torch.maximum(upper - rounded, rounded - lower)
    return result, off

"""A quantized layer of an exported policy, with the operators that ONNX has for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from robot_rl.learn.precision.formats import BF16, FP32
from robot_rl.learn.precision.kernels import linear_bf16, multiply
from robot_rl.learn.precision.layer import QuantizedLayer

OPSET = 19
"""Version of ONNX's operators that the exported nodes are of, the first with e4m3; the exporter converts to newer."""


class FrozenLayer(nn.Module):
    """A layer with copies of its weight in the levels of its format, and of its bias.

    While it is exported it becomes QuantizeLinear and DequantizeLinear around a product, which TensorRT takes as
    explicit quantization, and which ONNX Runtime computes with integers. The bias is subtracted negated: ONNX Runtime
    would merge an addition into the product first, and no longer find its integer kernel.

    Attributes:
        name: the layer's.
        format: the format that it rounds to.
        levels: (out, ...) the weight's levels, in the format's own type; for float32 the plain weight.
        grid: (out,) steps of the weight.
        step: () step of the inputs.
        bias: (out,); None without one.
    """

    levels: Tensor
    grid: Tensor
    step: Tensor
    node_levels: Tensor
    node_zero: Tensor
    node_zeros: Tensor
    node_bias: Tensor | None
    bias: Tensor | None

    def __init__(self, layer: nn.Module, weight: Tensor, bias: Tensor | None) -> None:
        """Copy the weight (out, ...) and bias of a `QuantizedLayer`."""
        super().__init__()
        assert isinstance(layer, QuantizedLayer)
        format = layer.format
        self.name, self.format = layer.name, format
        self.rounds_output, self.lowest = layer.rounds_output, layer.lowest(format)
        self.is_signed = layer.is_signed
        weight = weight.detach().cpu()
        grid = format.weight_step(weight) if format.has_step else torch.ones(weight.shape[0])
        levels = format.levels(weight / grid.view(-1, *(1,) * (weight.ndim - 1))) if format is not FP32 else weight
        self.register_buffer("levels", levels.to(format.dtype).clone())
        self.register_buffer("grid", grid)
        step = layer.step_of(format).detach().cpu().clone() if format.has_step else torch.ones(())
        self.register_buffer("step", step)
        self._least = float(self.lowest * step)
        own = None if bias is None else bias.detach().cpu().clone()
        if own is not None and format is BF16 and self.rounds_output:
            own = own.to(torch.bfloat16)
        self.register_buffer("bias", own)
        self._prepare_nodes()

    def _prepare_nodes(self) -> None:
        """Hold the nodes' inputs as they are stored in the file: weight (in, out), bias (negated in a grid), zeros."""
        is_linear = self.levels.ndim == 2
        zero = torch.zeros(()).to(self.format.dtype)
        self.register_buffer("node_levels", self.levels.t().contiguous() if is_linear else self.levels)
        self.register_buffer("node_zero", zero)
        self.register_buffer("node_zeros", zero.expand(self.levels.shape[0]).contiguous())
        bias = None if self.bias is None else self.bias.float()
        if bias is not None and self.format.has_step:
            bias = -bias if is_linear else -bias.view(1, -1, 1, 1)
        self.register_buffer("node_bias", bias)

    def describe(self) -> dict[str, Any]:
        """Return the layer's entry in a contract."""
        row: dict[str, Any] = {"name": self.name, "mode": self.format.name}
        return row | ({"input_scale": float(self.step)} if self.format.has_step else {})

    def forward(
        self, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, product: Any = None
    ) -> Tensor:
        """Map inputs (B, in) to (B, out), or what `product` takes; `weight` and `bias` are those of the copy."""
        if self.format is FP32:
            return (product or nn.functional.linear)(x, self.levels, self.bias)
        if torch.compiler.is_exporting():
            return self._nodes(x, product)
        return self.compute(x, product)

    def compute(self, x: Tensor, product: Any = None) -> Tensor:
        """Compute `forward` as the layer does in training."""
        format, levels = self.format, self.levels.float()
        if format is BF16:
            return self._compute_bf16(x, levels, product)
        scaled = format.levels((x / self.step).clamp(self.lowest, format.largest))
        if product is None:
            sums, channels = multiply(scaled, levels, format), (1, -1)
        else:
            sums, channels = product(scaled, levels, None), (1, -1, *(1,) * (x.ndim - 2))
            sums = sums.round() if format.name == "int8" else sums
        y = sums * (self.step * self.grid).view(channels)
        return y if self.bias is None else y + self.bias.view(channels)

    def _compute_bf16(self, x: Tensor, levels: Tensor, product: Any) -> Tensor:
        if product is None and self.rounds_output:
            return linear_bf16(x.to(torch.bfloat16), self.levels, self.bias).float()
        bias = None if self.bias is None else self.bias.float()
        y = (product or nn.functional.linear)(x.to(torch.bfloat16).float(), levels, bias)
        return y.to(torch.bfloat16).float() if self.rounds_output else y

    def _nodes(self, x: Tensor, product: Callable[..., Tensor] | None) -> Tensor:
        """Return the output as nodes of ONNX."""
        format = self.format
        if format is BF16:
            x, weight = x.to(torch.bfloat16).float(), self.node_levels.float()
            if product is not None:
                y = product(x, weight, self.node_bias)
            else:
                y = x @ weight if self.node_bias is None else x @ weight + self.node_bias
            return y.to(torch.bfloat16).float() if self.rounds_output else y
        if self.is_signed and self.lowest > format.lowest:
            x = x.clamp(min=self._least)
        levels = _symbolic("QuantizeLinear", (x, self.step, self.node_zero), format.dtype, None)
        rounded = _symbolic("DequantizeLinear", (levels, self.step, self.node_zero), torch.float32, None)
        axis = 1 if product is None else 0
        own = _symbolic("DequantizeLinear", (self.node_levels, self.grid, self.node_zeros), torch.float32, axis)
        y = rounded @ own if product is None else product(rounded, own, None)
        return y if self.node_bias is None else y - self.node_bias


def _symbolic(operator: str, inputs: tuple[Tensor, ...], dtype: torch.dtype, axis: int | None) -> Tensor:
    attributes: dict[str, Any] = {} if axis is None else {"axis": axis}
    return torch.onnx.ops.symbolic(
        operator, inputs, attrs=attributes, dtype=dtype, shape=inputs[0].shape, version=OPSET
    )

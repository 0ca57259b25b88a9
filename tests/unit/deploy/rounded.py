"""Actors with a precision, as a learner hands them over: small networks in int8, fp8 and bf16."""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

TYPES = {"int8": torch.int8, "fp8": torch.float8_e4m3fn, "bf16": torch.bfloat16}
LARGEST = {"int8": 127.0, "fp8": 448.0}


def on_grid(x, scale, mode):
    """The nearest values of a grid, as float32."""
    if mode == "int8":
        return (x / scale).round().clamp(-127, 127) * scale
    return (x / scale).clamp(-448, 448).to(TYPES["fp8"]).float() * scale


class Layer(nn.Module):
    """A linear layer in a mode; the names of the ONNX operators are those that the learner's side writes."""

    def __init__(self, inputs, outputs, mode, *, reach=6.0, last=False, kernel=0):
        super().__init__()
        self.mode, self.last, self.kernel = mode, last, kernel
        shape = (outputs, inputs, kernel, kernel) if kernel else (outputs, inputs)
        weight = torch.randn(shape) / math.sqrt(inputs * max(kernel, 1) ** 2)
        self.register_buffer("bias", 0.1 * torch.randn((outputs, 1, 1) if kernel else outputs))
        self.register_buffer("weight", weight)
        self.scale_value = None
        if mode in LARGEST:
            step = weight.abs().flatten(1).amax(1) / LARGEST[mode]
            scaled = weight / step.view(-1, *[1] * (weight.dim() - 1))
            stored = scaled.round() if mode == "int8" else scaled
            weight = stored.to(TYPES[mode])
            self.weight = weight if kernel else weight.t().contiguous()
            self.register_buffer("step", step)
            self.register_buffer("scale", torch.tensor(reach / LARGEST[mode]))
            self.register_buffer("zero", torch.zeros((), dtype=TYPES[mode]))
            self.register_buffer("zeros", torch.zeros(outputs).to(TYPES[mode]))
            self.scale_value = self.scale.item()
        elif mode == "bf16":
            self.weight = weight.bfloat16() if kernel else weight.t().contiguous().bfloat16()

    def forward(self, x):
        if self.mode == "fp32":
            return nn.functional.linear(x, self.weight, self.bias)
        if self.mode == "bf16":
            y = self.product(x.bfloat16().float(), self.weight.float()) + self.bias
            return y if self.last else y.bfloat16().float()
        if not torch.onnx.is_in_onnx_export():
            step = self.step.view(-1, 1, 1, 1) if self.kernel else self.step
            return self.product(on_grid(x, self.scale, self.mode), self.weight.float() * step) + self.bias
        make, kind = torch.onnx.ops.symbolic, TYPES[self.mode]
        read = {"dtype": torch.float32, "version": 19}
        q = make("QuantizeLinear", (x, self.scale, self.zero), dtype=kind, shape=x.shape, version=19)
        seen = make("DequantizeLinear", (q, self.scale, self.zero), shape=x.shape, **read)
        axis = {"axis": 0 if self.kernel else 1}
        values = (self.weight, self.step, self.zeros)
        weight = make("DequantizeLinear", values, attrs=axis, shape=self.weight.shape, **read)
        return self.product(seen, weight) - (-self.bias)

    def product(self, x, weight):
        return nn.functional.conv2d(x, weight) if self.kernel else x @ weight


@dataclass
class RoundedActor:
    """Layers of a mode with ELUs between them; `plain` ones at the end are in fp32.

    With `memory` a tanh of two layers comes before them, and with `image` a convolution of the last four observations.
    """

    size: int
    outputs: int
    mode: str
    hidden: tuple = (16, 16)
    plain: int = 0
    memory: int = 0
    image: bool = False
    error: float = 0.02
    seed: int = 0
    reach: float = 6.0

    def __post_init__(self):
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            widths = (self.memory or self.size + (5 if self.image else 0), *self.hidden, self.outputs)
            last = len(widths) - 2
            modes = [self.mode] * (last + 1 - self.plain) + ["fp32"] * self.plain
            self.layers = [
                Layer(*shape, mode, last=i == last, reach=self.reach)
                for i, (shape, mode) in enumerate(zip(pairwise(widths), modes, strict=True))
            ]
            self.conv = Layer(1, 9, self.mode, kernel=2, last=True) if self.image else None
            sizes = (self.size, self.memory) if self.memory else ()
            self.cells = [Layer(width, self.memory, self.mode, last=True) for width in sizes]

    def rows(self):
        names = [("actor.encoder.0", self.conv)] if self.conv else []
        names += [(f"actor.memory.0.{part}", cell) for part, cell in zip("xh", self.cells, strict=False)]
        names += [(f"actor.{i}", layer) for i, layer in enumerate(self.layers)]
        scale = lambda layer: {} if layer.scale_value is None else {"input_scale": layer.scale_value}  # noqa: E731
        return [{"name": name, "mode": layer.mode} | scale(layer) for name, layer in names]

    def export_module(self):
        actor = self

        class Module(nn.Module):
            def __init__(self):
                super().__init__()
                self.precision = {"mode": actor.mode, "layers": actor.rows()}
                self.layers, self.cells = nn.ModuleList(actor.layers), nn.ModuleList(actor.cells)
                self.conv = actor.conv

            def body(self, x: Tensor):
                if self.conv is not None:
                    seen = self.conv(x[:, -4:].reshape(-1, 1, 2, 2)).reshape(-1, 9)
                    x = torch.cat((x[:, :-4], seen), 1)
                for i, layer in enumerate(self.layers):
                    x = layer(x) if i == 0 else layer(nn.functional.elu(x))
                return x

            def action_error(self, observation, state=None):
                return torch.full((len(observation), self.layers[-1].bias.numel()), actor.error)

            def forward(self, observation: Tensor):
                return self.body(observation)

        class Remembering(Module):
            state_size = actor.memory

            def forward(self, observation: Tensor, state: Tensor):  # type: ignore[override]
                after = torch.tanh(self.cells[0](observation) + self.cells[1](state))
                return self.body(after), after

        return (Remembering() if actor.memory else Module()).eval()

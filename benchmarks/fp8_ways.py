"""Ways to act in fp8 on a GPU, against bf16: the products, and what rounds between them in one kernel.

    python benchmarks/fp8_ways.py out=benchmarks/gpu/nvidia-h100/fp8_ways.json

A way is recorded 20 times in a CUDA graph; a figure is the median of 30 replays. It needs PyTorch with Triton, and a
GPU with e4m3 products (compute capability 8.9).
"""

from __future__ import annotations

import importlib.util
import json
import statistics
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from words import read_words, run_script

from robot_rl.errors import UserError
from robot_rl.machine import machine_facts, package_versions

SIZES = (128, 1024, 1024, 512, 32)
_scaled_mm: Any = getattr(torch, "_scaled_mm", None)
triton: Any = importlib.import_module("triton") if importlib.util.find_spec("triton") else None
tl: Any = triton and importlib.import_module("triton.language")
KNOWN = {"worlds": "4096,16384", "out": ""}
LEVELS = 448.0
"""The largest number of e4m3."""
BLOCK = 2048
RECORDED, REPLAYS = 20, 30

if triton is not None:

    @triton.jit
    def between(  # noqa: ANN201, PLR0917 - Triton takes a kernel's arguments by position, and reads their annotations
        sums,  # noqa: ANN001
        scale,  # noqa: ANN001
        bias,  # noqa: ANN001
        out,  # noqa: ANN001
        inverse,  # noqa: ANN001
        count,  # noqa: ANN001
        columns,  # noqa: ANN001
        scaled: tl.constexpr,  # pyright: ignore[reportInvalidTypeForm]
        block: tl.constexpr,  # pyright: ignore[reportInvalidTypeForm]
    ):
        """Scale sums, add a bias, apply ELU, and round to e4m3; without `scaled` only ELU, to bfloat16."""
        i = tl.program_id(0) * block + tl.arange(0, block)
        inside = i < count
        x = tl.load(sums + i, mask=inside).to(tl.float32)
        if scaled:
            x = x * tl.load(scale + i % columns, mask=inside) + tl.load(bias + i % columns, mask=inside)
        x = tl.where(x > 0, x, tl.exp(x) - 1.0)
        x = tl.minimum(tl.maximum(x * inverse, -448.0), 448.0).to(tl.float8e4nv) if scaled else x.to(tl.bfloat16)
        tl.store(out + i, x, mask=inside)


def fuse(sums: Tensor, scale: Tensor | None, bias: Tensor, inverse: float) -> Tensor:
    """Return what follows sums (B, out) before the next product, by one kernel."""
    kind = torch.bfloat16 if scale is None else torch.float8_e4m3fn
    out = torch.empty(sums.shape, device=sums.device, dtype=kind)
    grid = (triton.cdiv(sums.numel(), BLOCK),)
    given = (sums, sums if scale is None else scale, bias, out, inverse, sums.numel(), sums.shape[1])
    kernel: Any = between
    kernel[grid](*given, scaled=scale is not None, block=BLOCK, num_warps=8)
    return out


def time_us(run: Callable[[], Any]) -> float:
    """Return how long a function takes in a CUDA graph [us]."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(RECORDED):
            run()
    found = []
    for _ in range(REPLAYS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) / RECORDED * 1e3)
    return round(statistics.median(found), 2)


class Network:
    """A perceptron with random weights in each form."""

    def __init__(self, worlds: int) -> None:
        generator = torch.Generator("cuda").manual_seed(0)
        make = {"device": "cuda", "generator": generator}
        self.weights = [torch.randn(o, i, **make) / i**0.5 for i, o in pairwise(SIZES)]
        self.bias = [torch.zeros(size, device="cuda") for size in SIZES[1:]]
        self.x = torch.randn(worlds, SIZES[0], **make)
        self.rounded = [weight.bfloat16() for weight in self.weights]
        grids = [weight.abs().amax(1) / LEVELS for weight in self.weights]
        pairs = zip(self.weights, grids, strict=True)
        self.levels = [(weight / grid[:, None]).to(torch.float8_e4m3fn).t() for weight, grid in pairs]
        self.step = 4.0 / LEVELS
        self.scales = [grid * self.step for grid in grids]
        self.one = torch.ones((), device="cuda")

    def exact(self) -> Tensor:
        """Run in float32."""
        x = self.x
        for k, weight in enumerate(self.weights):
            x = (torch.nn.functional.elu(x) if k else x) @ weight.t()
        return x

    def bf16(self, *, fused: bool = False) -> Tensor:
        """Run in bfloat16."""
        x, last = self.x.bfloat16(), len(self.rounded) - 1
        for k, (weight, bias) in enumerate(zip(self.rounded, self.bias, strict=True)):
            x = torch.nn.functional.linear(x, weight, bias.bfloat16())
            if k < last:
                x = fuse(x, None, bias, 1.0) if fused else torch.nn.functional.elu(x)
        return x.float()

    def multiply(self, levels: Tensor, k: int, sums: torch.dtype) -> Tensor:
        """Return a layer's products of e4m3 numbers."""
        options = {"scale_a": self.one, "scale_b": self.one, "use_fast_accum": sums is torch.bfloat16}
        return _scaled_mm(levels, self.levels[k], out_dtype=sums, **options)

    def fp8(self, sums: torch.dtype = torch.float32) -> Tensor:
        """Run in e4m3."""
        levels = (self.x / self.step).clamp(-LEVELS, LEVELS).to(torch.float8_e4m3fn)
        last = len(self.levels) - 1
        for k in range(last):
            levels = fuse(self.multiply(levels, k, sums), self.scales[k], self.bias[k], 1.0 / self.step)
        return self.multiply(levels, last, sums).float() * self.scales[last] + self.bias[last]


def measure(worlds: int) -> dict[str, Any]:
    """Time all ways."""
    network, half = Network(worlds), torch.bfloat16
    several = range(len(network.weights))
    inputs = [torch.randn(worlds, size, device="cuda") for size in SIZES[:-1]]
    levels, values = [x.to(torch.float8_e4m3fn) for x in inputs], [x.bfloat16() for x in inputs]
    ways: dict[str, Callable[[], Any]] = {
        "bf16": network.bf16,
        "bf16 fused": lambda: network.bf16(fused=True),
        "fp8 fused": network.fp8,
        "fp8 fused bf16 sums": lambda: network.fp8(half),
        "bf16 products": lambda: [values[k] @ network.rounded[k].t() for k in several],
        "fp8 products": lambda: [network.multiply(levels[k], k, torch.float32) for k in several],
        "fp8 products bf16 sums": lambda: [network.multiply(levels[k], k, half) for k in several],
    }
    row: dict[str, Any] = {"worlds": worlds} | {name: time_us(run) for name, run in ways.items()}
    exact = network.exact()
    for name in ("bf16", "fp8 fused"):
        row[f"error {name}"] = float((ways[name]() - exact).norm() / exact.norm())
    return row


def main(arguments: list[str]) -> int:
    """Measure for each number of worlds."""
    words = read_words(arguments, KNOWN)
    if triton is None or not torch.cuda.is_available():
        raise UserError("it needs a GPU, and PyTorch with Triton")
    rows = [measure(int(worlds)) for worlds in words["worlds"].split(",")]
    for row in rows:
        print(row)
    if words["out"]:
        facts = {"name": "ways to act in fp8", "machine": machine_facts(), "versions": package_versions(), "unit": "us"}
        Path(words["out"]).write_text(json.dumps(facts | {"network": SIZES, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    run_script(main)

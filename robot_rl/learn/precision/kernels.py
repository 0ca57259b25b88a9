"""Products of levels: by the machine's own instructions if it has them, else in float32 with the same result.

Sums of int8 products are whole numbers, which float32 holds exactly up to 2**24: integer instructions and float32 give
the same bits in any order. The products of e4m3 and of bfloat16 numbers are exact in float32, their sums are rounded in
an order that depends on the kernel (`robot_rl.learn.precision.bounds` has the effect of that).
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from robot_rl.learn.precision.formats import Format

_int_mm: Any = getattr(torch, "_int_mm", None)
_scaled_mm: Any = getattr(torch, "_scaled_mm", None)

EXACT_INPUTS = 2**24 // (127 * 128)
"""Inputs of a layer up to which float32 holds every sum of int8 products."""
LEAST_INTEGER = 2**22
"""Multiplications from which integer instructions are faster on a CPU, the conversions included."""
LEAST_ROWS_GPU = 17
"""Rows that an int8 product takes at least on a GPU."""


@functools.cache
def has_bf16(kind: str) -> bool:
    """Whether a kind of device ("cpu", "cuda") multiplies bfloat16 numbers faster than float32."""
    if kind == "cuda":
        return torch.cuda.get_device_capability()[0] >= 8
    if kind != "cpu" or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    return _supports("_is_avx512_bf16_supported") or _supports("_is_amx_tile_supported")


@functools.cache
def has_int8(kind: str) -> bool:
    """Whether a kind of device multiplies int8 numbers faster than float32."""
    if kind == "cuda":
        return torch.cuda.get_device_capability() >= (7, 5)
    return kind == "cpu" and _int_mm is not None and _supports("_is_vnni_supported")


@functools.cache
def has_fp8(kind: str) -> bool:
    """Whether a kind of device multiplies e4m3 numbers."""
    return kind == "cuda" and _scaled_mm is not None and torch.cuda.get_device_capability() >= (8, 9)


def _supports(query: str) -> bool:
    found: Any = getattr(torch.cpu, query, None)
    return bool(found and found())


def describe(format: Format, kind: str) -> str:
    """Return in a few words the arithmetic by which a kind of device computes products of a format."""
    real = {"bf16": has_bf16, "int8": has_int8, "fp8": has_fp8}
    if format.name == "fp32":
        return "float32"
    if real[format.name](kind):
        return f"{format.name} instructions"
    return "float32, same results" if format.name == "int8" else "float32, same within rounding"


def multiply(levels: Tensor, weight: Tensor, format: Format) -> Tensor:
    """Return the products (B, out), float32, of levels (B, in) and those of a weight (out, in), both in float32."""
    kind, (outputs, inputs) = levels.device.type, weight.shape
    if format.name == "int8":
        return _multiply_integers(levels, weight)
    if format.name == "fp8" and has_fp8(kind) and inputs % 16 == 0 and outputs % 16 == 0:
        one = torch.ones((), device=levels.device)
        pair = (levels.to(format.dtype), weight.to(format.dtype).t())
        return _scaled_mm(*pair, scale_a=one, scale_b=one, out_dtype=torch.float32, use_fast_accum=False)
    return levels @ weight.t()


def _multiply_integers(levels: Tensor, weight: Tensor) -> Tensor:
    kind, (rows, inputs), outputs = levels.device.type, levels.shape, weight.shape[0]
    if kind == "cuda":
        pays = rows >= LEAST_ROWS_GPU and inputs % 8 == 0 and outputs % 8 == 0
    else:
        pays = kind == "cpu" and rows * inputs * outputs >= LEAST_INTEGER
    if pays and has_int8(kind):
        return _int_mm(levels.to(torch.int8), weight.to(torch.int8).t()).to(torch.float32)
    if inputs <= EXACT_INPUTS:
        return levels @ weight.t()
    return (levels.double() @ weight.double().t()).float()


def linear_bf16(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x (B, in) times a weight (out, in) transposed plus a bias (out,), all bfloat16; one rounding, at the end.

    Without the instructions it is computed in float32, and rounded.
    """
    kind = x.device.type
    if not has_bf16(kind):
        plain = None if bias is None else bias.float()
        return torch.nn.functional.linear(x.float(), weight.float(), plain).to(torch.bfloat16)
    if kind == "cpu":
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return torch.nn.functional.linear(x, weight, bias)


def matmul_bf16(a: Tensor, b: Tensor) -> Tensor:
    """Return the product, bfloat16, of bfloat16 matrices (n, k) and (k, m)."""
    return a @ b if has_bf16(a.device.type) else (a.float() @ b.float()).to(torch.bfloat16)

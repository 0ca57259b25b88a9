"""The operators allowed in a policy's network: they treat every row of a batch by itself, and nothing is hidden.

The list contains the operators that the exporter writes for every kind of policy and those that mjlab's networks need.
None of them draws random numbers, compares or branches, so no input switches to another behaviour, and none may touch
the first axis, so the rows of a batch are independent. The runtime in C++ has the same rules.

A network with a precision also rounds: in int8 and fp8 with QuantizeLinear and DequantizeLinear around the input of a
layer, and weights that are stored in that type; in bf16 with Cast. Its layers must be those of the contract.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from robot_rl_deploy.precision import GRIDS, PrecisionSpec
from robot_rl_deploy.strict import ContractError

UNARY = frozenset(
    "Elu Erf Gelu Identity LeakyRelu Mish Neg Relu Selu Sigmoid Softplus Softsign Sqrt Tanh".split()  # noqa: SIM905
)
ELEMENTWISE = frozenset(("Add", "Sub", "Mul", "Div", "Max", "Min", "Clip"))
PRODUCTS = frozenset(("Gemm", "MatMul", "Conv"))
FLOAT, INT64 = 1, 7
ROUNDED = {"int8": 3, "bf16": 16, "fp8": 17}
"""Types of tensors, as onnx.proto numbers them."""


@dataclass(frozen=True, slots=True)
class _Fixed:
    """A value that depends on no input; `rounded` if the file has it in the type of a precision, with its `content`."""

    dims: tuple[int, ...]
    integers: tuple[int, ...] | None = None
    type: int = FLOAT
    rounded: bool = False
    raw: bytes = field(default=b"", repr=False)
    content: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class _Rows:
    """A value with a row for each robot along its first axis, of `rank` axes in all.

    Rounded ones have the `scale` of their grid, 0 in bf16.
    """

    rank: int
    type: int = FLOAT
    rounded: bool = False
    scale: float = 0.0


_Value = _Fixed | _Rows


def check_operators(proto: Any, precision: PrecisionSpec | None = None) -> None:
    """Refuse a network with other operators than the exporter's, or with one that mixes the rows of a batch.

    Args:
        proto: An `onnx.ModelProto` without graphs inside operators.
        precision: The contract's; None for a network in fp32.

    Raises:
        ContractError: The line names the operator, or the layer that is not as in the contract.
    """
    graph, rounding = proto.graph, _Rounding(precision)
    values: dict[str, _Value] = {}
    for tensor in graph.initializer:
        values[tensor.name] = rounding.fixed(tensor)
    for port in graph.input:
        values.setdefault(port.name, _Rows(2))
    for node in graph.node:
        result = _result(node, values, rounding)
        for name in node.output:
            if name in values:
                raise ContractError(f"policy.onnx: '{name}' is computed twice; export the bundle again")
            if name:
                values[name] = result
    rounding.compare(proto)


def check_batch(proto: Any) -> None:
    """Refuse inputs and outputs of a fixed number of rows.

    Args:
        proto: An `onnx.ModelProto`.

    Raises:
        ContractError: The line names the input or output.
    """
    fixed = {tensor.name for tensor in proto.graph.initializer}
    for port in (*proto.graph.input, *proto.graph.output):
        dims = port.type.tensor_type.shape.dim
        if port.name not in fixed and len(dims) and dims[0].HasField("dim_value"):
            raise ContractError(
                f"policy.onnx: '{port.name}' has a batch of {dims[0].dim_value}; it must be free, export the bundle "
                "again"
            )


class _Rounding:
    """The rounding of a network's precision: its operators and types, and the layers that were found.

    Without a precision there is none.
    """

    def __init__(self, precision: PrecisionSpec | None) -> None:
        self._precision = precision
        self._found: list[tuple[float, tuple[int, ...], bytes]] = []
        self._mode = precision.mode if precision else ""
        self._type = ROUNDED.get(self._mode)
        self._grid = self._mode in GRIDS
        self.operators = ("QuantizeLinear", "DequantizeLinear") if self._grid else ("Cast",) if precision else ()

    def fixed(self, tensor: Any) -> _Fixed:
        """Return the value of a tensor in the file."""
        kind = int(tensor.data_type)
        if kind not in (FLOAT, INT64, self._type):
            own = f" or {self._mode}" if self._precision else ""
            raise ContractError(f"policy.onnx: '{tensor.name}' is of type {kind}; weights are float32{own}")
        integers = None
        if kind == INT64:
            from onnx import numpy_helper

            try:
                integers = tuple(int(value) for value in numpy_helper.to_array(tensor).reshape(-1))
            except Exception:  # those of numpy and of onnx share no other base
                raise ContractError(f"policy.onnx: '{tensor.name}' is damaged; export the bundle again") from None
        dims = tuple(tensor.dims)
        raw = tensor.raw_data if len(dims) < 2 and self._precision else b""
        return _Fixed(dims, integers, kind, raw=raw, content=tensor.raw_data if kind == self._type else b"")

    def apply(self, op: str, operands: Sequence[_Value | None], attributes: Mapping[str, int]) -> _Value | None:
        """Return the result of one of `operators`; None if it is not as the exporter writes it."""
        first = operands[0] if operands else None
        if op == "Cast":
            return self._cast(first, attributes) if len(operands) == 1 else None
        if len(operands) != 3 or first is None:
            return None
        _, scale, zero = operands
        if not isinstance(scale, _Fixed) or not isinstance(zero, _Fixed):
            return None
        if scale.type != FLOAT or zero.type != self._type or scale.dims != zero.dims or zero.raw.strip(b"\0"):
            return None
        if isinstance(first, _Fixed):
            axis = attributes.get("axis", 1)
            right = op == "DequantizeLinear" and attributes.keys() <= {"axis"} and first.type == self._type
            right = right and 0 <= axis < len(first.dims) and scale.dims == first.dims[axis : axis + 1]
            return _Fixed(first.dims, rounded=True, content=first.content) if right else None
        if attributes or scale.dims or len(scale.raw) != 4 or len(zero.raw) != 1:
            return None
        (step,) = struct.unpack("<f", scale.raw)
        if op == "QuantizeLinear":
            return replace(first, type=zero.type, scale=step) if first.type == FLOAT and not first.rounded else None
        return replace(first, type=FLOAT, rounded=True) if first.type == self._type and first.scale == step else None

    def _cast(self, first: _Value | None, attributes: Mapping[str, int]) -> _Value | None:
        if first is None or attributes.keys() != {"to"}:
            return None
        if attributes["to"] == self._type and isinstance(first, _Rows) and first.type == FLOAT:
            return _Rows(first.rank, attributes["to"])
        if attributes["to"] != FLOAT or first.type != self._type:
            return None
        return replace(first, type=FLOAT, rounded=True)

    def plain(self, op: str, operands: Sequence[_Value | None]) -> list[_Value | None] | None:
        """Return the operands of another operator without their rounding; None if it may not read such ones."""
        given = [value for value in operands if value is not None]
        if any(value.type not in (FLOAT, INT64) for value in given):
            return None
        if op in PRODUCTS and len(given) > 1:
            if given[0].rounded != given[1].rounded or any(value.rounded for value in given[2:]):
                return None
            if isinstance(given[0], _Rows) and isinstance(given[1], _Fixed) and given[0].rounded:
                self._found.append((given[0].scale, given[1].dims, given[1].content))
        elif any(value.rounded and (self._grid or isinstance(value, _Fixed)) for value in given):
            return None
        return [None if value is None else _without_rounding(value) for value in operands]

    def compare(self, proto: Any) -> None:
        """Refuse other layers than the contract's."""
        if self._precision is None:
            return
        opset = max((item.version for item in proto.opset_import if item.domain in ("", "ai.onnx")), default=0)
        if opset != self._precision.opset:
            raise ContractError(f"policy.onnx: its opset is {opset}; the contract has {self._precision.opset}")
        wanted = self._precision.rounded
        # A network with left-right symmetry computes some layers twice, with the same weights and steps.
        layers = self._found if len(self._found) == len(wanted) else list(dict.fromkeys(self._found))
        if len(layers) != len(wanted):
            count = f"{len(layers)} layers are in {self._mode}"
            raise ContractError(f"policy.onnx: {count}; the contract has {len(wanted)}")
        for layer, (found, *_) in zip(wanted, layers, strict=True):
            step = 0.0 if layer.input_scale is None else _single(layer.input_scale)
            if step != found:
                line = f"policy.onnx: the input_scale of layer '{layer.name}' is {found:.9g}"
                raise ContractError(f"{line}; the contract has {step:.9g}")


def _without_rounding(value: _Value) -> _Value:
    return _Rows(value.rank) if isinstance(value, _Rows) else replace(value, rounded=False, raw=b"")


def _single(value: float) -> float:
    """Round to float32."""
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf")


def _result(node: Any, values: Mapping[str, _Value], rounding: _Rounding) -> _Value:
    operands: list[_Value | None] = []
    for name in node.input:
        if name and name not in values:
            raise ContractError(f"policy.onnx: {node.op_type} reads '{name}', which nothing computes; export it again")
        operands.append(values[name] if name else None)
    attributes = {item.name: item for item in node.attribute}
    if node.op_type == "Constant":
        if operands or list(attributes) != ["value"]:
            raise _mixing(node)
        return rounding.fixed(attributes["value"].t)
    if node.op_type not in _RULES and node.op_type not in rounding.operators:
        raise ContractError(f"policy.onnx: the operator {node.op_type} is not allowed; export the bundle again")
    integers = {name: int(item.i) for name, item in attributes.items()}
    if node.op_type in rounding.operators:
        result = rounding.apply(node.op_type, operands, integers) if len(node.attribute) < 2 else None
    else:
        plain = rounding.plain(node.op_type, operands)
        first = plain[0] if plain else None
        result = _RULES[node.op_type](first, plain[1:], integers) if plain and first is not None else None
    if result is None:
        raise _mixing(node)
    return result


def _mixing(node: Any) -> ContractError:
    return ContractError(
        f"policy.onnx: {node.op_type} '{node.name}' is not as the exporter writes it, it could mix the rows of a "
        "batch; export the bundle again"
    )


_Rule = Callable[[_Value, Sequence["_Value | None"], Mapping[str, int]], "_Value | None"]


def _flat(value: _Value | None, rank: int = 2) -> bool:
    """Whether a value is fixed and the same for every row: of fewer axes than the rows, or with a first one of 1."""
    if not isinstance(value, _Fixed):
        return False
    return len(value.dims) < rank or (len(value.dims) == rank and value.dims[0] == 1)


def _unary(first: _Value, rest: Sequence[_Value | None], _: Mapping[str, int]) -> _Value | None:
    return None if rest else first


def _elementwise(first: _Value, rest: Sequence[_Value | None], _: Mapping[str, int]) -> _Value | None:
    operands = [first, *(value for value in rest if value is not None)]
    rows = [value for value in operands if isinstance(value, _Rows)]
    rank = rows[0].rank if rows else 2
    if len(set(rows)) > 1 or not all(_flat(value, rank) for value in operands if isinstance(value, _Fixed)):
        return None
    if rows:
        return rows[0]
    return max((value for value in operands if isinstance(value, _Fixed)), key=lambda value: len(value.dims))


def _gemm(first: _Value, rest: Sequence[_Value | None], attributes: Mapping[str, int]) -> _Value | None:
    right = first == _Rows(2) and not attributes.get("transA", 0) and len(rest) in (1, 2) and _is_fixed(rest[:1])
    return first if right and all(_flat(value) for value in rest[1:]) else None


def _matmul(first: _Value, rest: Sequence[_Value | None], _: Mapping[str, int]) -> _Value | None:
    matrix = len(rest) == 1 and isinstance(rest[0], _Fixed) and len(rest[0].dims) == 2
    return first if first == _Rows(2) and matrix else None


def _conv(first: _Value, rest: Sequence[_Value | None], _: Mapping[str, int]) -> _Value | None:
    return first if first == _Rows(4) and rest and _is_fixed(rest) else None


def _reshape(first: _Value, rest: Sequence[_Value | None], _: Mapping[str, int]) -> _Value | None:
    sizes = _integers(rest, 0)
    if not isinstance(first, _Rows) or len(rest) != 1 or len(sizes) < 2 or sizes[0] != -1 or min(sizes[1:]) < 1:
        return None
    return _Rows(len(sizes))


def _slice(first: _Value, rest: Sequence[_Value | None], _: Mapping[str, int]) -> _Value | None:
    axes = _integers(rest, 2)
    return first if axes and _is_fixed(rest) and all(_within(first, axis) for axis in axes) else None


def _split(first: _Value, rest: Sequence[_Value | None], attributes: Mapping[str, int]) -> _Value | None:
    return first if _within(first, attributes.get("axis", 0)) and _is_fixed(rest) else None


def _concat(first: _Value, rest: Sequence[_Value | None], attributes: Mapping[str, int]) -> _Value | None:
    return first if _within(first, attributes.get("axis", 0)) and all(value == first for value in rest) else None


def _gather(first: _Value, rest: Sequence[_Value | None], attributes: Mapping[str, int]) -> _Value | None:
    row = len(rest) == 1 and isinstance(rest[0], _Fixed) and len(rest[0].dims) == 1
    return first if row and _within(first, attributes.get("axis", 0)) else None


def _is_fixed(values: Sequence[_Value | None]) -> bool:
    return all(value is None or isinstance(value, _Fixed) for value in values)


def _integers(values: Sequence[_Value | None], index: int) -> tuple[int, ...]:
    value = values[index] if index < len(values) else None
    return (value.integers or ()) if isinstance(value, _Fixed) else ()


def _within(value: _Value, axis: int) -> bool:
    """Whether an axis of rows is not the first."""
    return isinstance(value, _Rows) and (axis == -1 or 1 <= axis < value.rank)


_RULES: dict[str, _Rule] = (
    dict.fromkeys(UNARY, _unary)
    | dict.fromkeys(ELEMENTWISE, _elementwise)
    | {"Gemm": _gemm, "MatMul": _matmul, "Conv": _conv, "Reshape": _reshape, "Slice": _slice, "Split": _split}
    | {"Concat": _concat, "Gather": _gather}
)

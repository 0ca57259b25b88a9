"""The operators allowed in a policy's network: they treat every row of a batch by itself, and nothing is hidden.

The list contains the operators that the exporter writes for every kind of policy and those that mjlab's networks need.
None of them draws random numbers, compares or branches, so no input switches to another behaviour, and none may touch
the first axis, so the rows of a batch are independent. The runtime in C++ has the same rules.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from robot_rl_deploy.strict import ContractError

UNARY = frozenset(
    "Elu Erf Gelu Identity LeakyRelu Mish Neg Relu Selu Sigmoid Softplus Softsign Sqrt Tanh".split()  # noqa: SIM905
)
ELEMENTWISE = frozenset(("Add", "Sub", "Mul", "Div", "Max", "Min", "Clip"))
FLOAT, INT64 = 1, 7
"""Types of tensors, as onnx.proto numbers them."""


@dataclass(frozen=True, slots=True)
class _Fixed:
    """A value that depends on no input."""

    dims: tuple[int, ...]
    integers: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Rows:
    """A value with a row for each robot along its first axis, of `rank` axes in all."""

    rank: int


_Value = _Fixed | _Rows


def check_operators(proto: Any) -> None:
    """Refuse a network with other operators than the exporter's, or with one that mixes the rows of a batch.

    Args:
        proto: An `onnx.ModelProto` without graphs inside operators.

    Raises:
        ContractError: The line names the operator.
    """
    graph = proto.graph
    values: dict[str, _Value] = {}
    for tensor in graph.initializer:
        values[tensor.name] = _fixed(tensor)
    for port in graph.input:
        values.setdefault(port.name, _Rows(2))
    for node in graph.node:
        result = _result(node, values)
        for name in node.output:
            if name in values:
                raise ContractError(f"policy.onnx: '{name}' is computed twice; export the bundle again")
            if name:
                values[name] = result


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


def _fixed(tensor: Any) -> _Fixed:
    from onnx import numpy_helper

    if tensor.data_type not in (FLOAT, INT64):
        raise ContractError(f"policy.onnx: '{tensor.name}' is of type {tensor.data_type}; weights are float32")
    integers = None
    if tensor.data_type == INT64:
        try:
            integers = tuple(int(value) for value in numpy_helper.to_array(tensor).reshape(-1))
        except Exception:  # those of numpy and of onnx share no other base
            raise ContractError(f"policy.onnx: '{tensor.name}' is damaged; export the bundle again") from None
    return _Fixed(tuple(tensor.dims), integers)


def _result(node: Any, values: Mapping[str, _Value]) -> _Value:
    operands: list[_Value | None] = []
    for name in node.input:
        if name and name not in values:
            raise ContractError(f"policy.onnx: {node.op_type} reads '{name}', which nothing computes; export it again")
        operands.append(values[name] if name else None)
    attributes = {item.name: item for item in node.attribute}
    if node.op_type == "Constant":
        if operands or list(attributes) != ["value"]:
            raise _mixing(node)
        return _fixed(attributes["value"].t)
    if node.op_type not in _RULES:
        raise ContractError(f"policy.onnx: the operator {node.op_type} is not allowed; export the bundle again")
    first = operands[0] if operands else None
    integers = {name: int(item.i) for name, item in attributes.items()}
    result = _RULES[node.op_type](first, operands[1:], integers) if first is not None else None
    if result is None:
        raise _mixing(node)
    return result


def _mixing(node: Any) -> ContractError:
    return ContractError(
        f"policy.onnx: {node.op_type} '{node.name}' is not as the exporter writes it, it could mix the rows of a "
        "batch; export the bundle again"
    )


_Rule = Callable[[_Value, Sequence["_Value | None"], Mapping[str, int]], "_Value | None"]


def _flat(value: _Value | None) -> bool:
    """Whether a value is fixed and the same for every row: at most one axis, or a first one of length 1."""
    return isinstance(value, _Fixed) and (len(value.dims) < 2 or (len(value.dims) == 2 and value.dims[0] == 1))


def _unary(first: _Value, rest: Sequence[_Value | None], _: Mapping[str, int]) -> _Value | None:
    return None if rest else first


def _elementwise(first: _Value, rest: Sequence[_Value | None], _: Mapping[str, int]) -> _Value | None:
    operands = [first, *(value for value in rest if value is not None)]
    rows = [value for value in operands if isinstance(value, _Rows)]
    if len(set(rows)) > 1 or not all(_flat(value) for value in operands if isinstance(value, _Fixed)):
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

"""The policy network in ONNX Runtime, set up so that it does not starve the control loop."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl_deploy.contract import Contract
from robot_rl_deploy.network import check_batch, check_operators
from robot_rl_deploy.precision import PLAIN, PrecisionSpec
from robot_rl_deploy.strict import ContractError

INPUT = "observation"
OUTPUTS: tuple[str, ...] = ("action", "joint_target")
STATE, STATE_OUT = "state", "state_out"
"""Input and output of a policy with a memory."""
RUNTIMES = {19: (1, 16), 20: (1, 17), 21: (1, 18), 22: (1, 20), 23: (1, 22)}
"""The oldest ONNX Runtime that knows a version of the ONNX operators."""
CONFIG = {"int8": "session.x64quantprecision", "fp8": "session.disable_quant_qdq"}
"""Setting of ONNX Runtime for a mode. In int8, processors without VNNI would saturate in sums. Its integer kernels take
no fp8, and with the setting the weights are converted once, at the start."""

Array = NDArray[np.float32]


class Session:
    """A network (num_envs, observation_size) -> action and joint target, each (num_envs, action_size).

    One with a memory also takes a state (num_envs, state_size) and returns the next one.
    """

    def __init__(self, model: bytes, contract: Contract):
        """Load the network: one thread within an operator, one between them, none of them spinning.

        Args:
            model: An ONNX file.
            contract: Gives the sizes and the precision.

        Raises:
            ContractError: It cannot be loaded, has other inputs and outputs than a policy, or other layers than those
                of the contract's precision.
        """
        check_batch(refuse_foreign_parts(model, contract.precision))
        check_runtime(contract.precision)
        try:
            self._session = open_network(model, contract.mode)
        except Exception as error:  # ONNX Runtime's exceptions share no other base
            raise _unloadable(contract.mode, _line(error)) from None
        layout = contract.layout
        inputs, outputs = {INPUT: layout.observation_size}, dict.fromkeys(OUTPUTS, layout.action_size)
        if layout.state_size:
            inputs[STATE] = outputs[STATE_OUT] = layout.state_size
        self._outputs, self._widths, self._state_size = list(outputs), list(outputs.values()), layout.state_size
        self._check(self._session.get_inputs(), inputs)
        self._check(self._session.get_outputs(), outputs)

    def metadata(self) -> dict[str, str]:
        """Texts that the exporter wrote into the file."""
        return self._session.get_modelmeta().custom_metadata_map

    def start_state(self, num_envs: int = 1) -> Array:
        """Return the state at the start and after a reset, (num_envs, state_size) of zeros."""
        return np.zeros((num_envs, self._state_size), np.float32)

    def run(self, observation: Array, state: Array) -> tuple[Array, Array, Array]:
        """Infer.

        Args:
            observation: Raw observations (N, observation_size).
            state: State of the network (N, state_size).

        Returns:
            Actions and joint targets, each (N, action_size), and the next state (N, state_size).

        Raises:
            ContractError: The network cannot be run, or returns another shape.
        """
        inputs = {INPUT: observation} | ({STATE: state} if self._state_size else {})
        try:
            outputs = self._session.run(self._outputs, inputs)
        except Exception as error:  # ONNX Runtime's exceptions share no other base
            raise ContractError(f"policy.onnx cannot be run ({_line(error)}); export the bundle again") from None
        action, target, *after = (np.asarray(output) for output in outputs)
        for name, output, width in zip(self._outputs, (action, target, *after), self._widths, strict=True):
            if output.shape != (shape := (len(observation), width)):
                raise ContractError(f"policy.onnx gave '{name}' the shape {output.shape}; the contract needs {shape}")
        return action, target, after[0] if after else state

    @staticmethod
    def _check(nodes: Sequence[Any], widths: Mapping[str, int]) -> None:
        found = [node.name for node in nodes]
        if found != list(widths):
            raise ContractError(f"policy.onnx: the names are {', '.join(found)}; a policy has {', '.join(widths)}")
        for node in nodes:
            width = widths[node.name]
            if node.type != "tensor(float)" or len(node.shape) != 2 or node.shape[1] != width:
                raise ContractError(
                    f"policy.onnx: '{node.name}' is {node.type} {node.shape}; the contract needs float (N, {width})"
                )


def check_runtime(precision: PrecisionSpec | None) -> None:
    """Refuse a precision that this ONNX Runtime is too old for.

    Args:
        precision: The contract's; None for a network in fp32.

    Raises:
        ContractError: It is; the line names both.
    """
    if precision is None:
        return
    import onnxruntime

    needed = RUNTIMES.get(precision.opset, max(RUNTIMES.values()))
    if tuple(int(part) for part in onnxruntime.__version__.split(".")[:2]) < needed:
        raise ContractError(
            f"policy.onnx: the bundle's precision is {precision.mode}, with opset {precision.opset}; ONNX Runtime "
            f"{onnxruntime.__version__} is too old for it, {needed[0]}.{needed[1]} or newer is needed"
        )


def _unloadable(mode: str, why: str) -> ContractError:
    if mode == PLAIN:
        return ContractError(f"policy.onnx cannot be loaded ({why}); export the bundle again")
    import onnxruntime

    return ContractError(
        f"policy.onnx: the bundle's precision is {mode}, and ONNX Runtime {onnxruntime.__version__} on the CPU cannot "
        f"load it ({why}); take a newer one or TensorRT, or a bundle in fp32"
    )


def open_network(model: bytes, mode: str = PLAIN) -> Any:
    """Open a network in ONNX Runtime: one thread, no spinning, and no telemetry.

    Args:
        model: An ONNX file.
        mode: Its precision.

    Returns:
        An `onnxruntime.InferenceSession`.
    """
    # Newer libraries open a connection and a database in the home folder for telemetry.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    if mode in CONFIG:
        options.add_session_config_entry(CONFIG[mode], "1")
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def refuse_foreign_parts(model: bytes, precision: PrecisionSpec | None = None) -> Any:
    """Refuse a network that uses other files, or other operators than a policy.

    These are weights in other files (ONNX Runtime would read them from any path), its own operators or functions,
    and everything that `robot_rl_deploy.network` does not allow.

    Args:
        model: An ONNX file.
        precision: The contract's; None for a network in fp32.

    Returns:
        The `onnx.ModelProto`.

    Raises:
        ContractError: It does, or cannot be read.
    """
    import onnx

    try:
        graph = (proto := onnx.load_model_from_string(model)).graph
    except Exception as error:  # protobuf's exception is not public
        raise ContractError(f"policy.onnx cannot be read ({_line(error)}); export the bundle again") from None
    tensors = list(graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g") or len(attribute.graphs):
                raise ContractError(f"policy.onnx: '{node.name}' holds a graph; a policy is a plain chain of operators")
            if attribute.HasField("sparse_tensor") or len(attribute.sparse_tensors):
                raise ContractError(f"policy.onnx: '{node.name}' holds a sparse tensor; a policy has none")
            tensors += [attribute.t, *attribute.tensors]
    for tensor in tensors:
        if tensor.data_location == onnx.TensorProto.EXTERNAL or len(tensor.external_data):
            raise ContractError(f"policy.onnx: '{tensor.name}' is in another file; the weights must be inside")
    domains = {item.domain for item in (*proto.opset_import, *graph.node)} - {"", "ai.onnx"}
    if domains or len(proto.functions) or len(proto.training_info) or len(graph.sparse_initializer):
        raise ContractError(
            f"policy.onnx: operators of {sorted(domains)} or functions; plain ONNX operators are allowed"
        )
    check_operators(proto, precision)
    return proto

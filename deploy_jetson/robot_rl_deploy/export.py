"""Write a policy bundle (network, contract, golden sequence, hashes) completely or not at all."""

import hashlib
import logging
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robot_rl_deploy import contract as contract_module
from robot_rl_deploy.bundle import CONTRACT, GOLDEN, MODEL, replacing, write_sums
from robot_rl_deploy.contract import Contract, TrainingSpec
from robot_rl_deploy.describe import make_contract
from robot_rl_deploy.golden import Golden
from robot_rl_deploy.precision import MAX_BOUND, PLAIN, PrecisionSpec, default_opset, minimum_opset
from robot_rl_deploy.record import ExportableActor, record_golden, state_size
from robot_rl_deploy.session import INPUT, OUTPUTS, STATE, STATE_OUT
from robot_rl_deploy.strict import ContractError, decode
from robot_rl_deploy.verify import BundleReport, verify_bundle

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

LEAST_BOUND = 1e-5
"""The least bound on the actions of a network with a precision."""


def export_bundle(
    actor: ExportableActor,
    description: Mapping[str, Any],
    out: Path,
    *,
    golden: Golden,
    run: TrainingSpec,
    opset: int | None = None,
) -> BundleReport:
    """Write a bundle, check it and only then put it in place of an older one.

    Args:
        actor: The trained actor.
        description: Result of the environment's `describe_policy()`.
        out: Directory of the bundle.
        golden: The golden sequence, from `record_golden`.
        run: Origin of the policy.
        opset: Version of the ONNX operators; None for the precision's own.

    Returns:
        The report of the check.

    Raises:
        ContractError: The policy reads values that no robot can measure, `opset` is too old for its precision, or the
            bundle fails its own check.
        OSError: It cannot be written; the content of `out` is unchanged.
    """
    module: Any = actor.export_module()
    contract = make_contract(description, run)
    contract = replace(contract, layout=replace(contract.layout, state_size=state_size(module)))
    golden.check(contract)
    opset = checked_opset(module, opset)
    bounds = _action_bounds(module, golden)
    if bounds is not None:
        stated = dict(module.precision) | {"opset": opset, "action_bound": float(bounds.max())}
        contract = replace(contract, precision=decode(PrecisionSpec, stated, "precision"))
        golden = replace(golden, action_bound=bounds)
    text = contract_module.dumps(contract).encode()
    model = make_onnx(module, contract, {"contract_sha256": hashlib.sha256(text).hexdigest()}, opset)
    return write_bundle(out, text, golden, model)


def checked_opset(module: "torch.nn.Module", opset: int | None) -> int:
    """Return the version of the ONNX operators for a module.

    Args:
        module: What `export_module()` of an actor returned.
        opset: The requested version; None for that of the module's precision.

    Returns:
        The version.

    Raises:
        ContractError: It is too old for the precision, or newer than onnx has.
    """
    import onnx

    mode = (getattr(module, "precision", None) or {"mode": PLAIN})["mode"]
    least = minimum_opset(mode)
    if opset is not None and opset < least:
        raise ContractError(f"opset={opset}: {mode} needs {least} or newer; omit it")
    if opset is not None and opset > (newest := onnx.defs.onnx_opset_version()):
        raise ContractError(f"opset={opset}: onnx {onnx.__version__} has {newest} at most; omit it")
    return default_opset(mode) if opset is None else opset


def _action_bounds(module: Any, golden: Golden) -> "NDArray[np.float32] | None":
    """How far rounding in another order may move an action of each step (steps,), by the module's own arithmetic.

    None without a precision. With a memory the states that a program computes are also off, so that each step has the
    greatest bound. Larger values than `MAX_BOUND` are omitted: nothing of that size is a rounding.
    """
    import torch

    if getattr(module, "precision", None) is None:
        return None
    observation = torch.from_numpy(golden.observation)
    with torch.no_grad():
        if not state_size(module):
            error = module.action_error(observation)
        else:
            state, before = torch.zeros(1, state_size(module)), []
            for row, reset in zip(observation, golden.reset, strict=True):
                state = torch.zeros_like(state) if reset else state
                before.append(state)
                _, state = module(row[None], state)
            error = module.action_error(observation, torch.cat(before))
            error = error.max().expand_as(error)
    bounds = error.amax(1).clamp(min=LEAST_BOUND, max=MAX_BOUND).float().numpy()
    if not np.isfinite(bounds).all():
        raise ContractError("precision.action_bound is not finite: the policy's weights or observations are not")
    return bounds


def write_bundle(out: Path, contract: bytes, golden: Golden, model: bytes) -> BundleReport:
    """Write the files of a bundle next to `out`, check them, and only then put them in place of an older one.

    Only a bundle is ever replaced (`robot_rl_deploy.bundle.foreign_content`).

    Args:
        out: Directory of the bundle.
        contract: Content of contract.json.
        golden: The golden sequence.
        model: The ONNX file.

    Returns:
        The report of the check.

    Raises:
        ContractError: The bundle fails the check, or `out` is something other than a bundle.
        OSError: It cannot be written; the content of `out` is unchanged.
    """
    with replacing(out) as fresh:
        (fresh / CONTRACT).write_bytes(contract)
        (fresh / GOLDEN).write_bytes(golden.dumps())
        (fresh / MODEL).write_bytes(model)
        write_sums(fresh)
        return verify_bundle(fresh)


def export_policy(
    env: Any,
    actor: ExportableActor,
    out: Path,
    *,
    run: TrainingSpec,
    steps: int = 256,
    opset: int | None = None,
) -> BundleReport:
    """Record a golden sequence in an environment and write the bundle.

    Args:
        env: The environment the actor was trained in; one world is enough. It is reset and stepped.
        actor: The trained actor.
        out: Directory of the bundle.
        run: Origin of the policy.
        steps: Length of the golden sequence.
        opset: Version of the ONNX operators; None for the precision's own.

    Returns:
        The report of the check.

    Raises:
        ContractError: The policy reads values that no robot can measure, `opset` is too old for its precision, or the
            bundle fails its own check.
        OSError: It cannot be written.
    """
    golden = record_golden(env, actor, steps)
    return export_bundle(actor, env.describe_policy(), out, golden=golden, run=run, opset=opset)


def make_onnx(
    module: "torch.nn.Module", contract: Contract, metadata: Mapping[str, str], opset: int | None = None
) -> bytes:
    """Convert an actor to ONNX: raw observation in, action and joint target out, batch size free, weights inside.

    Args:
        module: From raw observations (N, observation_size) to mean actions (N, action_size); with a memory from and to
            also a state (N, state_size).
        contract: Gives clip, scale and offset of the actions, which become part of the network, and the state's width.
        metadata: Texts to store in the file.
        opset: Version of the ONNX operators; None for the precision's own.

    Returns:
        The file's content, without paths or names of the machine that wrote it.
    """
    import onnx
    import torch

    deployed, layout = _deployed(module, contract), contract.layout
    inputs, outputs = {INPUT: layout.observation_size}, list(OUTPUTS)
    if layout.state_size:
        inputs[STATE] = layout.state_size
        outputs.append(STATE_OUT)
    batch = torch.export.Dim("batch")
    with _quiet():
        program = torch.onnx.export(
            deployed,
            tuple(torch.zeros(2, width) for width in inputs.values()),
            dynamo=True,
            input_names=list(inputs),
            output_names=outputs,
            dynamic_shapes={name: {0: batch} for name in inputs},
            opset_version=checked_opset(module, opset),
            verbose=False,
            optimize=contract.precision is None,
        )
        assert program is not None
        if contract.precision is not None:
            _simplify(program.model)
    model = program.model_proto
    _separate(model.graph)
    for holder in (
        model,
        model.graph,
        *model.graph.node,
        *model.graph.input,
        *model.graph.output,
        *model.graph.value_info,
        *model.graph.initializer,
    ):
        del holder.metadata_props[:]
        holder.doc_string = ""
    onnx.helper.set_model_props(model, dict(metadata))
    onnx.checker.check_model(model)
    return model.SerializeToString(deterministic=True)


def _simplify(model: Any) -> None:
    """Optimize a network as the exporter does, but leave weights in the type in which they are stored."""
    from onnxscript.optimizer import optimize_ir

    # The exporter would fold a cast of bf16 weights, and store them in float32.
    optimize_ir(model, should_fold=lambda node: False if node.op_type in ("Cast", "DequantizeLinear") else None)


def _separate(graph: Any) -> None:
    """Give each use of a weight its own node and arrays: ONNX Runtime replaces them with those of another type."""
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    reads = {n.output[0]: n for n in graph.node if n.op_type == "DequantizeLinear" and n.input[0] in tensors}
    if not reads:
        return
    nodes, used = [], Counter[str]()

    def own(names: Any, place: int) -> None:
        name = names[place]
        used[name] += 1
        if used[name] > 1:
            names[place] = f"{name}_use{used[name]}"
            graph.initializer.add().CopyFrom(tensors[name])
            graph.initializer[-1].name = names[place]

    for node in graph.node:
        if node.output[0] in reads:
            continue  # It goes before each node that reads it.
        for place, name in enumerate(node.input):
            if name in reads:
                read = type(node)()
                read.CopyFrom(reads[name])
                used[name] += 1
                if used[name] > 1:
                    read.output[0] = node.input[place] = f"{name}_use{used[name]}"
                    read.name = f"{read.name}_use{used[name]}"
                own(read.input, 0)
                own(read.input, 2)
                nodes.append(read)
        nodes.append(node)
    kept = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def _deployed(module: "torch.nn.Module", contract: Contract) -> "torch.nn.Module":
    import torch

    class Deployed(torch.nn.Module):
        """The actor with the targets of its actions."""

        def __init__(self) -> None:
            super().__init__()
            self.actor = module.to("cpu").eval()
            for name in ("scale", "offset"):
                values = [getattr(action, name) for action in contract.actions]
                self.register_buffer(name, torch.tensor(values, dtype=torch.float32))
            bounds = [float("inf") if action.clip is None else action.clip for action in contract.actions]
            self.bounded = min(bounds) < float("inf")
            self.register_buffer("bound", torch.tensor(bounds, dtype=torch.float32))
            self.commanded = contract.commanded()
            self.register_buffer("places", torch.tensor(self.commanded, dtype=torch.int64))

        def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return self.targets(self.actor(observation), observation)

        def targets(self, action: torch.Tensor, observation: torch.Tensor) -> tuple[torch.Tensor, ...]:
            if self.bounded:
                action = torch.minimum(torch.maximum(action, -self.bound), self.bound)  # type: ignore[operator]
            target = action * self.scale + self.offset  # type: ignore[operator]
            if self.commanded:
                target = target + torch.index_select(observation, 1, self.places)  # type: ignore[arg-type]
            return action, target

    class Remembering(Deployed):
        """The same of an actor with a memory."""

        def forward(self, observation: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, ...]:
            action, after = self.actor(observation, state)
            return *self.targets(action, observation), after

    return (Remembering() if contract.layout.state_size else Deployed()).eval()


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the warnings of torch's exporter about packages that no policy needs."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)

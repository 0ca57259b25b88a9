"""A policy's bundle as a checkpoint, so that a shipped policy can teach.

A bundle holds the network as ONNX: normalizer, perceptron, and the bounds and targets of the actions. Normalizer and
perceptron are read back into an actor of ours, which must lead to the actions of the bundle's golden sequence. A bundle
does not hold the deviation of the actions; the teacher gets `STD`.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.errors import UserError, as_user_error
from robot_rl.learn.algorithms import get_learner
from robot_rl.settings import apply_overrides, to_dict

if TYPE_CHECKING:
    import numpy as np
    from robot_rl_deploy.bundle import Bundle
    from torch import Tensor

STD = 0.2
"""Deviation of the teacher's actions: the unit of a student's error, and the value that its own deviation tends to."""
BOUND = 1e-4
"""Largest difference of an action from the golden sequence."""
FOLDER = ".teachers"
"""Directory below that of all runs, with a checkpoint for each bundle that taught."""
ACTIVATIONS = {"Elu": "elu", "Relu": "relu", "Tanh": "tanh"}


def find_teacher(name: str, root: Path) -> tuple[Path, "Bundle"]:
    """Return the checkpoint of a bundle's policy, written now if it is missing, and the bundle.

    Args:
        name: The name of a committed policy or the directory of a bundle, as `policy=` takes it.
        root: The directory of all runs.

    Raises:
        UserError: The bundle does not exist or is damaged, or its network is not a plain perceptron.
    """
    from robot_rl.learn.checkpoints.checkpoint import save_checkpoint, verify_checkpoint
    from robot_rl.runs.policies import find_bundle

    try:
        directory = find_bundle(name)
    except UserError as error:
        raise UserError(f"teacher.{error}") from error
    bundle = _open(directory)
    path = root.resolve() / FOLDER / bundle.digest[:16] / "0"
    try:
        verify_checkpoint(path)
    except UserError:
        save_checkpoint(path, *_checkpoint(bundle, f"teacher.policy={name}"))
    return path, bundle


def bundle_actor(directory: Path) -> tuple[dict[str, "Tensor"], dict[str, Any]]:
    """Return the tensors of a bundle's actor by their names in its state, and the settings of its network.

    Raises:
        UserError: The bundle is damaged, or its network is not a plain perceptron.
    """
    try:
        tensors, meta = _checkpoint(_open(directory), f"policy={directory}")
    except UserError as error:
        raise UserError(str(error).replace("; name a run", "; name another policy")) from None
    return {name.removeprefix("actor."): tensor for name, tensor in tensors.items()}, meta["learner"]["actor"]


def _open(directory: Path) -> "Bundle":
    """Return a bundle that replays its golden sequence; raise UserError for any other."""
    from robot_rl_deploy.bundle import read_bundle
    from robot_rl_deploy.policy import open_session

    with as_user_error():
        bundle = read_bundle(directory)
        open_session(bundle)
    return bundle


def _checkpoint(bundle: "Bundle", where: str) -> tuple[dict[str, "Tensor"], dict[str, Any]]:
    """Return the tensors and the description of a checkpoint with the bundle's policy, compared with its golden."""
    import torch

    from robot_rl.learn.build import make_actor
    from robot_rl.learn.dims import EnvSpec

    if bundle.contract.precision is not None:
        mode = bundle.contract.precision.mode
        raise UserError(f"{where}: computes in {mode}; only a bundle in fp32 becomes a network again; name a run")
    parts, hidden, activation = _read_network(bundle, where)
    layout = bundle.contract.layout
    settings = {"actor.hidden": hidden, "actor.activation": activation, "actor.init_std": STD}
    cfg = apply_overrides(get_learner("ppo")(), settings)
    width = layout.observation_size
    dims: dict[str, Any] = {"actor": width, "critic": width, "action": layout.action_size}
    dims |= {"actor_shapes": {"actor": [width]}, "critic_shapes": {"critic": [width]}}
    actor = make_actor(cfg, EnvSpec(**dims), None)
    # The scale is 1 / (deviation + 0.01), and a checkpoint has the variance.
    parts["normalizer.var"] = (1.0 / parts.pop("normalizer.scale") - 0.01).clamp(min=0.0).square()
    actor.load_state_dict(parts, strict=False)
    with torch.no_grad():
        acted = actor.mean(torch.tensor(bundle.golden.observation))
    bounds = torch.tensor([math.inf if one.clip is None else one.clip for one in bundle.contract.actions])
    error = (acted.clamp(-bounds, bounds) - torch.tensor(bundle.golden.action)).abs().max().item()
    if not error <= BOUND:
        raise UserError(f"{where}: the actor read from policy.onnx differs by {error:.1e} from golden.npz; name a run")
    meta = {"learner": to_dict(cfg), "dims": dims, "mirror": None}
    meta |= {"iteration": bundle.contract.training.iteration}
    return {f"actor.{name}": tensor for name, tensor in actor.state_dict().items()}, meta


def _read_network(bundle: "Bundle", where: str) -> tuple[dict[str, "Tensor"], list[int], str]:
    """Return the parts of an actor by their names in its state, the sizes of its hidden layers and its activation.

    The network must be `Sub, Mul, (Gemm, activation)*, Gemm`; the rest bounds and scales the actions.
    """
    import onnx
    import torch
    from onnx import numpy_helper

    graph = onnx.load_model_from_string(bundle.model).graph
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    kinds = [node.op_type for node in graph.node]
    last = max((at for at, kind in enumerate(kinds) if kind == "Gemm"), default=-1)
    between = set(kinds[3:last:2])
    is_plain = kinds[:2] == ["Sub", "Mul"] and last >= 2 and not last % 2 and set(kinds[2 : last + 1 : 2]) == {"Gemm"}
    if not is_plain or len(between) > 1 or not between <= ACTIVATIONS.keys():
        raise UserError(f"{where}: its network is not a plain perceptron ({', '.join(kinds[:8])}, ...); name a run")
    gemms = graph.node[2 : last + 1 : 2]
    layers = [[_operand(arrays, name, where) for name in gemm.input[1:]] for gemm in gemms]
    parts: dict[str, Any] = {}
    for key, node in zip(("mean", "scale"), graph.node[:2], strict=True):
        parts[f"normalizer.{key}"] = _operand(arrays, node.input[1], where)
    for at, (gemm, (weight, bias)) in enumerate(zip(gemms, layers, strict=True)):
        turned = {item.name: item.i for item in gemm.attribute}.get("transB", 0)
        parts |= {f"body.layers.{at}.weight": weight if turned else weight.T, f"body.layers.{at}.bias": bias}
    hidden = [len(bias) for _, bias in layers[:-1]]
    tensors = {name: torch.tensor(array) for name, array in parts.items()}
    return tensors, hidden, ACTIVATIONS[between.pop()] if between else "elu"


def _operand(arrays: Mapping[str, "np.ndarray"], name: str, where: str) -> "np.ndarray":
    if name not in arrays:
        raise UserError(f"{where}: '{name}' of its network is not a weight; name a run")
    return arrays[name]

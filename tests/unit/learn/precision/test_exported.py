"""The exported form of a quantized policy: the same bits in torch, and ONNX Runtime within the bound."""

import warnings

import numpy as np
import onnx
import pytest
import torch
from robot_rl_deploy.export import _separate, _simplify
from robot_rl_deploy.network import check_operators
from robot_rl_deploy.precision import PrecisionSpec
from robot_rl_deploy.session import open_network
from robot_rl_deploy.strict import decode

from robot_rl.learn.precision import bounds
from tests.covering import chosen
from tests.unit.learn.precision.actors import KINDS, make_actor, outputs, state_of


def run_onnx(module, inputs, mode, opset=21):
    """Return the outputs of ONNX Runtime, and the model."""
    names = ["obs", "state"][: len(inputs)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module,
            tuple(x[:2] for x in inputs),
            dynamo=True,
            input_names=names,
            dynamic_shapes=tuple({0: torch.export.Dim("batch")} for _ in inputs),
            opset_version=opset,
            verbose=False,
            optimize=False,
        )
        _simplify(program.model)
    model = program.model_proto
    _separate(model.graph)
    session = open_network(model.SerializeToString(), mode)
    feeds = {node.name: x.numpy() for node, x in zip(session.get_inputs(), inputs, strict=True)}
    return torch.from_numpy(session.run(None, feeds)[0]), model


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *(pytest.param(kind, "int8", marks=() if kind == "gru" else pytest.mark.long) for kind in KINDS),
        ("plain", "fp8"),
        *(
            pytest.param(kind, mode, marks=pytest.mark.long)
            for kind, mode in (("plain", "bf16"), ("images", "fp8"), ("gru", "bf16"))
        ),
    ],
)
def test_onnx_runtime_computes_the_same_within_the_bound(kind, mode):
    actor = make_actor(kind, mode)
    module, x = actor.export_module(), torch.randn(300, actor.obs_dim, generator=torch.Generator().manual_seed(0))
    state = state_of(actor, x)
    inputs = (x,) if state is None else (x, state)
    with torch.no_grad():
        wanted = actor.distribution.mode(actor.distribution.params(outputs(actor, x)))
        exported = module(*inputs)
    exported = exported if state is None else exported[0]
    bound = module.action_error(*inputs, torch.zeros_like(x))
    assert bool(((exported - wanted).abs() <= bound).all())
    if state is None:
        assert torch.equal(exported, wanted)
    found, model = run_onnx(module, inputs, mode)
    assert bool(((found - wanted).abs() <= bound).all())
    stated = module.precision | {"opset": 21, "action_bound": 0.01}
    check_operators(model, decode(PrecisionSpec, stated, "precision"))  # The layers, in the order of the contract.
    types = {tensor.data_type for tensor in model.graph.initializer if len(tensor.dims) > 1 and tensor.dims[0] > 1}
    own = {"int8": onnx.TensorProto.INT8, "fp8": onnx.TensorProto.FLOAT8E4M3FN, "bf16": onnx.TensorProto.BFLOAT16}
    assert own[mode] in types
    # The bound is no excuse: most rows have no value between two levels.
    assert float((found - wanted).abs().median()) < 1e-6


@pytest.mark.parametrize("opset", chosen([19, 21, 23], 21))
def test_int8_in_onnx_runtime_has_the_bits_of_training(opset):
    actor = make_actor("plain", "int8", activation="relu")
    x = torch.randn(500, 47, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        wanted = actor.mean(x)
    found, model = run_onnx(actor.export_module(), (x,), "int8", opset)
    assert torch.equal(found, wanted)
    assert model.opset_import[0].version == opset


def test_a_bound_holds_for_observations_that_are_a_little_off():
    actor = make_actor("plain", "int8")
    module, generator = actor.export_module(), torch.Generator().manual_seed(0)
    x = torch.randn(2000, 47, generator=generator)
    off = 1e-5 * torch.rand(2000, 47, generator=generator)
    with torch.no_grad():
        difference = (actor.mean(x + off) - actor.mean(x)).abs()
    bound = module.action_error(x, off)
    assert bool((difference <= bound + 1e-6).all())
    assert float(difference.max()) > 1e-4  # Some value has another level.
    assert float(bound.median()) < 1e-6  # Most have not.


def test_what_a_contract_says_of_it():
    module = make_actor("plain", "int8", keep=("actor.1",)).export_module()
    assert module.precision is not None
    assert module.precision["mode"] == "int8"
    first, second, third = module.precision["layers"]
    assert first["name"] == "actor.0"
    assert np.float32(first["input_scale"]) == first["input_scale"]
    assert second == {"name": "actor.1", "mode": "fp32"}
    assert third["mode"] == "int8"
    assert make_actor("plain", "fp32").export_module().precision is None


def test_a_module_without_a_bound_is_named():
    with pytest.raises(TypeError, match="no bound is known for Bilinear"):
        bounds.through(torch.nn.Bilinear(2, 2, 2), torch.zeros(1, 2), torch.zeros(1, 2))

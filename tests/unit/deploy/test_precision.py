"""Bundles of policies in int8, fp8 and bf16: written, replayed, and refused where they are not what they say."""

import hashlib
import json
import shutil

import numpy as np
import onnx
import pytest
import torch
from robot_rl_deploy import contract as contracts
from robot_rl_deploy import session
from robot_rl_deploy.bundle import read_bundle, write_sums
from robot_rl_deploy.describe import make_contract
from robot_rl_deploy.export import export_policy
from robot_rl_deploy.policy import BundlePolicy
from robot_rl_deploy.strict import ContractError
from robot_rl_deploy.verify import verify_bundle

from tests.covering import chosen
from tests.unit.deploy.rounded import RoundedActor

MODES = ("int8", "fp8", "bf16")
STORED = {"int8": onnx.TensorProto.INT8, "fp8": onnx.TensorProto.FLOAT8E4M3FN, "bf16": onnx.TensorProto.BFLOAT16}
SHAPES = {"plain": {}, "mixed": {"plain": 1}, "memory": {"memory": 6}, "image": {"image": True}}
LAYERS = [
    {"name": "actor.0", "mode": "int8", "input_scale": 0.05},
    {"name": "actor.1", "mode": "fp32"},
]
PRECISION = {"mode": "int8", "opset": 21, "layers": LAYERS, "action_bound": 3e-4}

# Changes of the precision of a contract, and what the one line must contain; the runtime in C++ reads the same table.
WRONG = [
    ({"mode": "int4"}, "precision.mode is 'int4'; it must be one of bf16, fp8, int8"),
    ({"mode": 8}, "precision.mode is 8; a text is needed"),
    ({"mode": "bf16"}, "layer 'actor.0': mode is 'int8'; it must be one of fp32, bf16"),
    ({"opset": 18}, "precision.opset is 18; it must be in [19, 99]"),
    ({"opset": 21.0}, "precision.opset is 21.0; a whole number is needed"),
    ({"layers": []}, "precision.layers is []; at least one is needed"),
    ({"layers": {}}, "precision.layers is {}; a list is needed"),
    ({"layers": [LAYERS[1]]}, "precision.layers: mode of each is 'fp32'; at least one must be int8"),
    ({"layers": [LAYERS[0], LAYERS[0]]}, "precision.layers is 'actor.0'; the name is given twice"),
    ({"layers": [LAYERS[0] | {"name": ""}]}, "precision.layers is ''; a name is needed"),
    ({"layers": [LAYERS[0] | {"step": 1}]}, "precision.layers[0].step is unknown"),
    ({"layers": [{"name": "a"}]}, "precision.layers[0].mode is missing"),
    (
        {"layers": [{"name": "a", "mode": "int8"}]},
        "layer 'a': input_scale is None; a layer in int8 needs the step of its input's grid",
    ),
    ({"layers": [LAYERS[0] | {"input_scale": 0.0}]}, "layer 'actor.0': input_scale is 0.0; it must be more than 0"),
    (
        {"layers": [LAYERS[0] | {"input_scale": float("nan")}]},
        "precision.layers[0].input_scale is nan; a finite number",
    ),
    (
        {"layers": [LAYERS[0], LAYERS[1] | {"input_scale": 0.1}]},
        "layer 'actor.1': input_scale is 0.1; a layer in fp32 has none",
    ),
    ({"action_bound": 0.0}, "precision.action_bound is 0.0; it must be more than 0"),
    ({"action_bound": 1.5}, "precision.action_bound is 1.5; it must be at most 1"),
    ({"action_bound": float("inf")}, "precision.action_bound is inf; a finite number is needed"),
    ({"action_bound": "1e-4"}, "precision.action_bound is '1e-4'; a number is needed"),
    ({"rounding": "up"}, "precision.rounding is unknown"),
]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A function that exports an actor of a mode and shape once and returns the bundle and its report."""
    from tests.unit.deploy.conftest import ToyEnv

    made = {}

    def make(mode, shape="mixed"):
        if (mode, shape) not in made:
            out = tmp_path_factory.mktemp(f"{shape}-{mode}") / "policy"
            actor = RoundedActor(30, 2, mode, **SHAPES[shape])
            run = contracts.TrainingSpec(run_id="r", task="toy", git_commit="unknown", iteration=3)
            made[mode, shape] = out, export_policy(ToyEnv(), actor, out, run=run, steps=200), actor
        return made[mode, shape]

    return make


@pytest.mark.parametrize("shape", chosen(SHAPES, "plain"))
@pytest.mark.parametrize("mode", MODES)
def test_a_bundle_is_written_and_replayed(written, mode, shape):
    out, report, actor = written(mode, shape)
    precision = report.contract.precision
    assert precision.mode == report.contract.mode == mode
    assert precision.opset == 21
    assert precision.action_bound == pytest.approx(0.02)
    rows = json.loads((out / "contract.json").read_text())["precision"]["layers"]
    assert rows == actor.rows()
    assert report.to_dict()["precision"] == {
        "mode": mode,
        "action_bound": precision.action_bound,
        "layers": len(rows),
        "rounded": len(rows) - SHAPES[shape].get("plain", 0),
    }
    assert report.replay.action_error <= 0.02
    model = onnx.load(out / "policy.onnx")
    stored = [tensor for tensor in model.graph.initializer if len(tensor.dims) > 1]
    rounded = [tensor for tensor in stored if tensor.data_type == STORED[mode]]
    assert len(rounded) == report.to_dict()["precision"]["rounded"]
    assert [item.version for item in model.opset_import] == [21]
    assert BundlePolicy(out).contract == report.contract


@pytest.mark.parametrize(("mode", "most"), [("int8", 0.3), ("fp8", 0.3), ("bf16", 0.52)])
def test_the_file_is_as_small_as_its_weights(make_toy_env, training, tmp_path, mode, most):
    actor = RoundedActor(30, 2, mode, hidden=(128, 128))
    report = export_policy(make_toy_env(), actor, tmp_path / "policy", run=training, steps=200)
    assert report.model_bytes < 4 * most * (30 * 128 + 128 * 128 + 128 * 2) + 6000


def test_the_bound_is_the_greatest_error_and_never_less_than_the_least(make_toy_env, training, tmp_path):
    actor = RoundedActor(30, 2, "bf16", error=1e-9)
    report = export_policy(make_toy_env(), actor, tmp_path / "policy", run=training, steps=200)
    assert report.contract.precision.action_bound == np.float32(1e-5)
    wide = RoundedActor(30, 2, "bf16", error=1.5)  # A deep network's worst case: more than any rounding makes.
    report = export_policy(make_toy_env(), wide, tmp_path / "policy", run=training, steps=200)
    assert report.contract.precision.action_bound == 1.0
    with pytest.raises(ContractError, match="precision.action_bound is not finite: the policy's weights or observa"):
        export_policy(make_toy_env(), RoundedActor(30, 2, "bf16", error=np.nan), tmp_path / "b", run=training)
    assert not (tmp_path / "b").exists()


def test_each_step_has_its_own_bound(make_toy_env, training, tmp_path, monkeypatch):
    actor = RoundedActor(30, 2, "int8")
    module = actor.export_module()
    monkeypatch.setattr(module, "action_error", lambda observation: 0.02 * (observation[:, :2] > 0.0))
    monkeypatch.setattr(actor, "export_module", lambda: module)
    report = export_policy(make_toy_env(), actor, tmp_path / "policy", run=training, steps=200)
    golden = read_bundle(tmp_path / "policy").golden
    wanted = np.where((golden.observation[:, :2] > 0.0).any(1), np.float32(0.02), np.float32(1e-5))
    assert np.array_equal(golden.action_bound, wanted)
    assert report.contract.precision.action_bound == np.float32(0.02)


def test_each_step_is_held_to_its_own_bound(written, tmp_path):
    bundle = tmp_path / "policy"
    shutil.copytree(written("int8")[0], bundle)
    wide, narrow = last_steps(read_bundle(bundle).golden)[:2]
    shift_actions(bundle, narrow, wide)
    assert verify_bundle(bundle).replay.action_error == pytest.approx(5e-3, rel=0.01)
    shift_actions(bundle, narrow, narrow)
    with pytest.raises(ContractError, match=f"golden replay: action 'hip' is .* step {narrow}, .* .tolerance 1e-05"):
        verify_bundle(bundle)


def test_the_bounds_of_a_memory_are_the_same_for_each_step(written):
    bounds = read_bundle(written("int8", "memory")[0]).golden.action_bound
    assert bounds.tolist() == [np.float32(0.02)] * 200


def test_the_error_of_a_memory_is_taken_at_the_states_of_the_sequence(make_toy_env, training, tmp_path, monkeypatch):
    actor, seen = RoundedActor(30, 2, "bf16", memory=6), []
    module = actor.export_module()

    def error(observation, state):
        seen.append((observation.clone(), state.clone()))
        return torch.full((len(observation), 2), 0.01)

    monkeypatch.setattr(module, "action_error", error)
    monkeypatch.setattr(actor, "export_module", lambda: module)
    export_policy(make_toy_env(), actor, tmp_path / "policy", run=training, steps=200)
    ((observation, state),) = seen
    with np.load(tmp_path / "policy" / "golden.npz") as golden:
        assert np.array_equal(observation.numpy(), golden["observation"])
        reset = golden["reset"]
    assert not state[torch.from_numpy(reset)].any()
    assert state[torch.from_numpy(~reset)].any(dim=1).all()


@pytest.mark.parametrize(("mode", "opset", "line"), [("fp8", 18, "fp8 needs 19"), ("int8", 13, "int8 needs 19")])
def test_an_opset_that_is_too_old_is_refused(make_toy_env, training, tmp_path, mode, opset, line):
    actor = RoundedActor(30, 2, mode)
    with pytest.raises(ContractError, match=f"opset={opset}: {line} or newer; omit it"):
        export_policy(make_toy_env(), actor, tmp_path / "policy", run=training, opset=opset)


@pytest.mark.long
@pytest.mark.parametrize(("mode", "opset"), [("int8", 19), ("fp8", 20), ("bf16", 19)])
def test_a_network_is_written_in_an_older_opset(make_toy_env, training, tmp_path, mode, opset):
    actor = RoundedActor(30, 2, mode)
    report = export_policy(make_toy_env(), actor, tmp_path / "policy", run=training, steps=200, opset=opset)
    assert report.contract.precision.opset == opset
    assert report.replay.action_error <= 0.02
    assert BundlePolicy(tmp_path / "policy").contract == report.contract


def test_an_opset_is_written(toy_actor, make_toy_env, training, tmp_path):
    with pytest.raises(ContractError, match="opset=17: fp32 needs 18 or newer"):
        export_policy(make_toy_env(), toy_actor, tmp_path / "policy", run=training, opset=17)
    with pytest.raises(ContractError, match=r"opset=99: onnx 1\S+ has \d\d at most; omit it"):
        export_policy(make_toy_env(), toy_actor, tmp_path / "policy", run=training, opset=99)
    report = export_policy(make_toy_env(), toy_actor, tmp_path / "policy", run=training, steps=200, opset=20)
    assert report.contract.precision is None
    assert onnx.load(tmp_path / "policy" / "policy.onnx").opset_import[0].version == 20


@pytest.mark.parametrize(("changes", "line"), WRONG, ids=[line for _, line in WRONG])
def test_a_wrong_precision_is_named(description, training, changes, line):
    data = contracts.to_dict(make_contract(description, training))
    with pytest.raises(ContractError) as caught:
        contracts.from_dict(data | {"precision": PRECISION | changes})
    assert line in str(caught.value)


@pytest.mark.parametrize("name", PRECISION)
def test_a_missing_field_is_named(description, training, name):
    data = contracts.to_dict(make_contract(description, training))
    assert "precision" not in data
    precision = {key: value for key, value in PRECISION.items() if key != name}
    with pytest.raises(ContractError, match=f"precision.{name} is missing"):
        contracts.from_dict(data | {"precision": precision})
    whole = data | {"precision": PRECISION}
    assert contracts.to_dict(contracts.from_dict(whole)) == whole


def edit(bundle, *, contract=None, model=None):
    """Change contract and network of a bundle, with hashes as a forger would write them."""
    data, proto = json.loads((bundle / "contract.json").read_text()), onnx.load(bundle / "policy.onnx")
    if contract:
        contract(data)
    (bundle / "contract.json").write_text(json.dumps(data))
    digest = hashlib.sha256((bundle / "contract.json").read_bytes()).hexdigest()
    if model:
        model(proto)
    onnx.helper.set_model_props(proto, {"contract_sha256": digest})
    (bundle / "policy.onnx").write_bytes(proto.SerializeToString())
    with np.load(bundle / "golden.npz") as stored:
        bound = stored.get("action_bound", np.full(len(stored["reset"]), 1e-4, np.float32))
    edit_golden(bundle, action_bound=bound if "precision" in data else None)


def last_steps(golden):
    """The steps before a reset: no later observation has their action."""
    return np.flatnonzero(golden.reset[1:])


def shift_actions(bundle, narrow, step):
    """Move an action of a step by 5e-3, with its target, and give one step a bound of 1e-5."""
    golden = read_bundle(bundle).golden
    bound, action = golden.action_bound.copy(), golden.action.copy()
    bound[narrow] = 1e-5
    action[step, 0] += 5e-3
    slope = np.polyfit(golden.action[:, 0], golden.joint_target[:, 0], 1)[0]
    target = golden.joint_target + np.float32(slope) * (action - golden.action)
    edit_golden(bundle, action_bound=bound, action=action, joint_target=target)


def edit_golden(bundle, **arrays):
    """Change or, with None, remove arrays of a bundle's golden sequence, with hashes as a forger would write them."""
    with np.load(bundle / "golden.npz") as stored:
        kept = {name: stored[name] for name in stored.files} | arrays
    np.savez(bundle / "golden.npz", **{name: array for name, array in kept.items() if array is not None})
    write_sums(bundle)


WRONG_BOUNDS = {
    "missing": (lambda bound: None, "golden.npz: action_bound is missing; export the bundle again"),
    "of another length": (lambda bound: bound[1:], r"action_bound is .* it must be float32 \(200,\)"),
    "of another type": (lambda bound: bound.astype(np.float64), r"action_bound is .* it must be float32 \(200,\)"),
    "not finite": (lambda bound: put(bound, 3, np.nan), r"action_bound must be in \(0, 0.02\], the contract's"),
    "zero": (lambda bound: put(bound, 3, 0), r"action_bound must be in \(0, 0.02\], the contract's"),
    "too wide": (lambda bound: put(bound, 3, 0.03), r"action_bound must be in \(0, 0.02\], the contract's"),
}


@pytest.mark.parametrize("name", WRONG_BOUNDS)
def test_wrong_bounds_of_steps_are_refused(written, tmp_path, name):
    change, line = WRONG_BOUNDS[name]
    bundle = tmp_path / "policy"
    shutil.copytree(written("int8")[0], bundle)
    edit_golden(bundle, action_bound=change(read_bundle(bundle).golden.action_bound))
    with pytest.raises(ContractError, match=line):
        verify_bundle(bundle)


def test_a_bundle_in_fp32_has_no_bounds(toy_bundle, tmp_path):
    bundle = tmp_path / "policy"
    shutil.copytree(toy_bundle, bundle)
    edit_golden(bundle, action_bound=np.full(len(read_bundle(bundle).golden.reset), 0.1, np.float32))
    with pytest.raises(ContractError, match="golden.npz: action_bound is there, for a policy in fp32; export"):
        verify_bundle(bundle)


def without(data):
    del data["precision"]


def as_mode(mode):
    def change(data):
        data["precision"]["mode"] = mode
        for layer in data["precision"]["layers"]:
            if layer["mode"] != "fp32":
                layer["mode"] = mode
            if mode == "bf16":
                layer.pop("input_scale", None)

    return change


def layer(index, **fields):
    return lambda data: data["precision"]["layers"][index].update(fields)


def plain_layer(data):
    data["precision"]["layers"][1] = {"name": "actor.1", "mode": "fp32"}


def narrow(data):
    data["precision"]["action_bound"] = 1e-9


def other_opset(data):
    data["precision"]["opset"] = 22


def replace(name, values):
    def change(proto):
        (tensor,) = (tensor for tensor in proto.graph.initializer if tensor.name == name(proto))
        tensor.CopyFrom(onnx.numpy_helper.from_array(values(onnx.numpy_helper.to_array(tensor)), tensor.name))

    return change


def reads(op, place, index=0):
    """The name of an input of a network's first operators of a type."""
    return lambda proto: [node for node in proto.graph.node if node.op_type == op][index].input[place]


def round_action(proto):
    """Round the action on a grid of which the contract says nothing."""
    scale, zero = reads("QuantizeLinear", 1)(proto), reads("QuantizeLinear", 2)(proto)
    node = next(node for node in proto.graph.node if "action" in node.output)
    node.output[0] = "before"
    make = onnx.helper.make_node
    rounded = make("QuantizeLinear", ["before", scale, zero], ["rounded"])
    read = make("DequantizeLinear", ["rounded", scale, zero], ["read"])
    at = list(proto.graph.node).index(node)
    for new in (make("Identity", ["read"], ["action"]), read, rounded):
        proto.graph.node.insert(at + 1, new)


def cast_to(kind):
    def change(proto):
        (proto_node,) = [node for node in proto.graph.node if node.op_type == "Cast"][:1]
        proto_node.attribute[0].i = kind

    return change


def attribute(op, **fields):
    def change(proto):
        node = next(node for node in proto.graph.node if node.op_type == op)
        for name, value in fields.items():
            node.attribute.append(onnx.helper.make_attribute(name, value))

    return change


def put(values, index, value):
    values = values.copy()
    values[index] = value
    return values


# Mode of a bundle, changes of its contract and of its network, and what the one line contains, in Python and in C++.
DAMAGED = {
    "int8 without precision": ("int8", without, None, "is of type 3; weights are float32"),
    "fp8 without precision": ("fp8", without, None, "is of type 17; weights are float32"),
    "bf16 without precision": ("bf16", without, None, "is of type 16; weights are float32"),
    "fp8 called int8": ("fp8", as_mode("int8"), None, "is of type 17; weights are float32 or int8"),
    "int8 called fp8": ("int8", as_mode("fp8"), None, "is of type 3; weights are float32 or fp8"),
    "fp8 called bf16": ("fp8", as_mode("bf16"), None, "is of type 17; weights are float32 or bf16"),
    "another scale": (
        "int8",
        layer(1, input_scale=0.05),
        None,
        "the input_scale of layer 'actor.1' is 0.0472440943; the contract has 0.0500000007",
    ),
    "a scale beyond float32": ("fp8", layer(0, input_scale=1e300), None, "is 0.0133928573; the contract has inf"),
    "a layer too few": ("int8", plain_layer, None, "policy.onnx: 2 layers are in int8; the contract has 1"),
    "a layer of bf16 too few": ("bf16", plain_layer, None, "policy.onnx: 2 layers are in bf16; the contract has 1"),
    "another opset": ("int8", other_opset, None, "policy.onnx: its opset is 21; the contract has 22"),
    "a bound that is too narrow": (
        "int8",
        narrow,
        None,
        r"golden.npz: action_bound must be in \(0, 1e-09\], the contract's",
    ),
    "a grid for the action": ("int8", None, round_action, "is not as the exporter writes it"),
    "a zero that is none": (
        "int8",
        None,
        replace(reads("QuantizeLinear", 2), lambda zero: np.array(3, np.int8)),
        "QuantizeLinear .* is not as the exporter writes it",
    ),
    "a zero of a weight that is none": (
        "int8",
        None,
        replace(reads("DequantizeLinear", 2, 1), lambda zero: put(zero, 3, 1)),
        "DequantizeLinear .* is not as the exporter writes it",
    ),
    "a scale that is not a number": (
        "int8",
        None,
        replace(reads("QuantizeLinear", 1), lambda scale: np.array(np.nan, np.float32)),
        "is not as the exporter writes it",
    ),
    "a scale for each column": (
        "int8",
        None,
        replace(reads("QuantizeLinear", 1), lambda scale: np.full(30, scale)),
        "QuantizeLinear .* is not as the exporter writes it",
    ),
    "blocks": ("int8", None, attribute("QuantizeLinear", block_size=2), "QuantizeLinear .* is not as the exporter"),
    "an axis": ("fp8", None, attribute("QuantizeLinear", axis=0), "QuantizeLinear .* is not as the exporter"),
    "a cast to float16": ("bf16", None, cast_to(onnx.TensorProto.FLOAT16), "Cast .* is not as the exporter writes it"),
    "a cast to float64": ("bf16", None, cast_to(onnx.TensorProto.DOUBLE), "Cast .* is not as the exporter writes it"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_bundle_that_is_not_what_it_says_is_refused(written, tmp_path, name):
    mode, contract, model, line = DAMAGED[name]
    bundle = tmp_path / "policy"
    shutil.copytree(written(mode)[0], bundle)
    edit(bundle, contract=contract, model=model)
    with pytest.raises(ContractError, match=line) as caught:
        verify_bundle(bundle)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("mode", MODES)
def test_the_forger_breaks_nothing(written, tmp_path, mode):
    bundle = tmp_path / "policy"
    shutil.copytree(written(mode)[0], bundle)
    edit(bundle)
    assert verify_bundle(bundle).contract.mode == mode


def test_a_network_in_fp32_has_no_precision(toy_bundle, tmp_path):
    bundle = tmp_path / "policy"
    shutil.copytree(toy_bundle, bundle)
    edit(bundle, contract=lambda data: data.update(precision=PRECISION | {"opset": 18}))
    with pytest.raises(ContractError, match="precision.opset is 18"):
        verify_bundle(bundle)
    edit(bundle, contract=lambda data: data.update(precision=PRECISION | {"opset": 19}))
    with pytest.raises(ContractError, match="its opset is 18; the contract has 19"):
        verify_bundle(bundle)
    assert "precision" not in verify_bundle(toy_bundle).to_dict()


def test_an_older_onnx_runtime_is_named(written, monkeypatch):
    import onnxruntime

    bundle, *_ = written("fp8")
    monkeypatch.setattr(onnxruntime, "__version__", "1.17.3")
    line = "the bundle's precision is fp8, with opset 21; ONNX Runtime 1.17.3 is too old for it, 1.18 or newer"
    with pytest.raises(ContractError, match=line):
        verify_bundle(bundle)


def test_a_runtime_that_lacks_the_precision_is_named(written, monkeypatch):
    bundle, *_ = written("fp8")
    monkeypatch.setattr(session, "CONFIG", {})
    with pytest.raises(ContractError, match=r"precision is fp8, and ONNX Runtime .* on the CPU cannot load it"):
        verify_bundle(bundle)

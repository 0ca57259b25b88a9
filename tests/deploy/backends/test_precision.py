"""Bundles in int8, fp8 and bf16 in the binary, which accepts and refuses what Python does."""

import json
import shutil

import numpy as np
import pytest
import robot_rl_runtime as rt
from robot_rl_deploy import contract as contracts
from robot_rl_deploy.bundle import read_bundle
from robot_rl_deploy.describe import make_contract
from robot_rl_deploy.session import Session
from robot_rl_deploy.strict import ContractError
from robot_rl_deploy.verify import verify_bundle

from tests.deploy.conftest import load as load_tests

unit = load_tests("unit/deploy/test_precision.py")
written = unit.written
MODES = unit.MODES


@pytest.fixture
def check(infer, tmp_path):
    """A function that runs --check: exit code, output and errors, and the report."""

    def run(bundle, *words):
        code, output, errors = infer("--bundle", bundle, "--check", "--report", tmp_path / "report.json", *words)
        return code, output, errors, json.loads((tmp_path / "report.json").read_text()) if code == 0 else None

    return run


@pytest.mark.parametrize("shape", unit.SHAPES)
@pytest.mark.parametrize("mode", MODES)
def test_a_bundle_is_checked(check, written, mode, shape):
    bundle, python, _ = written(mode, shape)
    code, output, errors, report = check(bundle)
    assert code == 0, errors
    precision = python.to_dict()["precision"]
    assert report["precision"] == precision
    assert report["replay"]["action_error"] == pytest.approx(python.replay.action_error, abs=1e-6)
    assert f", CPU, {mode}, 1 thread" in report["backend"]
    count = f"{precision['rounded']} of {precision['layers']} layers"
    assert f"  precision {mode}: {count}, actions within 2.0e-02, replayed to " in output
    assert f"onnxruntime {mode}: golden error " in output


def test_a_bundle_in_fp32_is_checked_as_before(check, small):
    code, output, _, report = check(small)
    assert code == 0
    assert "precision" not in report
    assert "precision" not in output
    assert ", CPU, fp32, 1 thread" in report["backend"]


@pytest.mark.parametrize("mode", MODES)
def test_actions_are_those_of_python(written, mode):
    bundle, *_ = written(mode)
    network, content = rt.open_network(str(bundle), "onnxruntime"), read_bundle(bundle)
    rows = 3 * np.random.default_rng(0).standard_normal((40, 30)).astype(np.float32)
    session = Session(content.model, content.contract)
    single = np.concatenate([session.run(row[None], session.start_state())[0] for row in rows])
    np.testing.assert_allclose(network.actions(rows), single, atol=1e-6)
    with pytest.raises(rt.UserError, match="observations of 29 values: the network needs 30"):
        network.actions(np.ascontiguousarray(rows[:, 1:]))


def test_the_state_goes_from_row_to_row(written):
    bundle, *_ = written("int8", "memory")
    network, state = rt.open_network(str(bundle), "onnxruntime"), np.zeros(6, np.float32)
    rows = np.random.default_rng(0).standard_normal((10, 30)).astype(np.float32)
    found = network.actions(rows)
    for row, action in zip(rows, found, strict=True):
        wanted, _, state = network.run(row, state)
        assert np.array_equal(action, wanted)


@pytest.mark.parametrize("name", unit.DAMAGED)
def test_a_bundle_that_is_not_what_it_says_is_refused_alike(check, written, tmp_path, name):
    mode, contract, model, _ = unit.DAMAGED[name]
    bundle = tmp_path / "policy"
    shutil.copytree(written(mode)[0], bundle)
    unit.edit(bundle, contract=contract, model=model)
    with pytest.raises(ContractError) as caught:
        verify_bundle(bundle)
    code, _, errors, _ = check(bundle)
    assert code == 3
    assert str(caught.value) in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize("name", unit.WRONG_BOUNDS)
def test_wrong_bounds_of_steps_are_refused_alike(check, written, tmp_path, name):
    bundle = tmp_path / "policy"
    shutil.copytree(written("int8")[0], bundle)
    bound = read_bundle(bundle).golden.action_bound
    unit.edit_golden(bundle, action_bound=unit.WRONG_BOUNDS[name][0](bound))
    with pytest.raises(ContractError) as caught:
        verify_bundle(bundle)
    code, _, errors, _ = check(bundle)
    assert code == 3
    shown = str(caught.value).partition(" is ")[0] if "it must be float32" in str(caught.value) else str(caught.value)
    assert shown in errors


def test_each_step_is_held_to_its_own_bound(check, written, tmp_path):
    bundle = tmp_path / "policy"
    shutil.copytree(written("int8")[0], bundle)
    wide, narrow = unit.last_steps(read_bundle(bundle).golden)[:2]
    unit.shift_actions(bundle, narrow, wide)
    assert check(bundle)[0] == 0
    unit.shift_actions(bundle, narrow, narrow)
    code, _, errors, _ = check(bundle)
    assert code == 3
    assert "golden replay: action 'hip' is" in errors
    assert f"at step {narrow}," in errors
    assert "(tolerance 1e-05)" in errors


@pytest.mark.parametrize(("changes", "line"), unit.WRONG, ids=[line for _, line in unit.WRONG])
def test_a_wrong_precision_is_named_alike(description, training, changes, line):
    data = contracts.to_dict(make_contract(description, training)) | {"precision": unit.PRECISION | changes}
    with pytest.raises(rt.ContractError) as caught:
        rt.read_contract(json.dumps(data).encode())
    with pytest.raises(ContractError) as python:
        contracts.from_dict(data)
    same = " is unknown" not in line and " is missing" not in line  # they end with other lists of names
    assert str(caught.value) == str(python.value) if same else line in str(caught.value)


def test_a_precision_is_read_alike(description, training):
    data = contracts.to_dict(make_contract(description, training))
    for precision in (unit.PRECISION, None):
        text = json.dumps(data | {"precision": precision})
        core = rt.read_contract(text.encode())
        assert core.precision == precision
        assert core.mode == contracts.loads(text).mode


def test_another_precision_is_refused(written, check):
    bundle, *_ = written("int8")
    line = "--precision=fp16: the bundle's precision is int8, and its network runs in no other; leave it out"
    code, _, errors, _ = check(bundle, "--precision", "fp16")
    assert code == 2
    assert line in errors
    with pytest.raises(rt.UserError, match=line):
        rt.load_network((bundle / "contract.json").read_text(), (bundle / "policy.onnx").read_bytes(), precision="fp16")
    for precision in ("auto", "int8"):
        assert "CPU, int8" in rt.open_network(str(bundle), "onnxruntime", precision).identity


def test_a_network_that_onnx_runtime_cannot_load_is_named(written):
    bundle, *_ = written("fp8")
    data = json.loads((bundle / "contract.json").read_text())
    data["precision"]["mode"] = data["precision"]["layers"][0]["mode"] = data["precision"]["layers"][1]["mode"] = "int8"
    line = "the bundle's precision is int8, and ONNX Runtime 1.* on the CPU cannot load it .*; take a newer one"
    with pytest.raises(rt.ContractError, match=line):  # without the setting for fp8, and without the check of its types
        rt.load_network(json.dumps(data), (bundle / "policy.onnx").read_bytes())


@pytest.mark.skipif(rt.has_tensorrt(), reason="this build has TensorRT")
def test_auto_takes_the_only_backend(written):
    bundle, *_ = written("bf16")
    assert "the only one that this program was built with; onnxruntime bf16" in rt.open_network(str(bundle)).why


def test_the_forger_breaks_nothing(check, written, tmp_path):
    for mode in MODES:
        bundle = tmp_path / mode
        shutil.copytree(written(mode)[0], bundle)
        unit.edit(bundle)
        assert check(bundle)[0] == 0

"""ONNX Runtime through its C API: the numbers that Python gives, and a clear line for whatever is wrong."""

import json
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
import robot_rl_runtime as rt
from robot_rl_deploy import contract as contract_module
from robot_rl_deploy.session import Session

EMPTY = np.zeros(0, np.float32)


def test_network_gives_what_python_gives(small, load):
    network, golden = load(small)
    contract = contract_module.loads((small / "contract.json").read_text())
    session = Session((small / "policy.onnx").read_bytes(), contract)
    for observation in golden["observation"][:20]:
        action, target, after = network.run(observation, EMPTY)
        wanted_action, wanted_target, _ = session.run(observation[None], session.start_state())
        np.testing.assert_allclose(action, wanted_action[0], atol=1e-6)
        np.testing.assert_allclose(target, wanted_target[0], atol=1e-6)
        assert after.size == 0


def test_memory_goes_from_step_to_step(remembering, load):
    network, golden = load(remembering)
    state = np.zeros(8, np.float32)
    for step in range(len(golden["reset"])):
        if golden["reset"][step]:
            state = np.zeros(8, np.float32)
        action, target, state = network.run(golden["observation"][step], state)
        np.testing.assert_allclose(action, golden["action"][step], atol=1e-4)
        np.testing.assert_allclose(target, golden["joint_target"][step], atol=1e-4)
    assert np.abs(state).max() > 0.01


def test_next_state_may_be_written_over_the_one_given(remembering, load):
    network, golden = load(remembering)
    state = np.linspace(-0.5, 0.5, 8, dtype=np.float32)
    for observation in golden["observation"][:10]:
        apart = network.run(observation, state)
        in_place = network.run_in_place(observation, state)
        for one, other in zip(apart, in_place, strict=True):
            assert np.array_equal(one, other)
        state = apart[2]


def test_a_rehearsal_changes_nothing(remembering, load):
    network, golden = load(remembering)
    state = np.linspace(-0.5, 0.5, 8, dtype=np.float32)
    for observation in golden["observation"][:10]:
        plain = network.run(observation, state)
        network.rehearse()
        again = network.run_in_place(observation, state)
        network.rehearse()
        for one, other in zip(plain, again, strict=True):
            assert np.array_equal(one, other)
        state = plain[2]


def test_other_sizes_are_refused_without_an_exception(remembering, load):
    network, golden = load(remembering)
    observation, state = golden["observation"][0], np.zeros(8, np.float32)
    assert network.run(observation[1:], state) is None
    assert network.run(observation, state[1:]) is None
    assert network.run(observation, state) is not None


def test_opened_bundle_says_what_runs_it_and_how_exactly(small):
    network = rt.open_network(str(small))
    assert network.identity.startswith("onnxruntime 1.")
    assert "CPU, fp32, 1 thread" in network.identity
    assert float(network.why.rsplit("golden error ", 1)[1]) < 1e-6


def test_measured_latencies_rise(small, load):
    network, golden = load(small)
    figures = network.measure(golden["observation"].ravel(), 100, 0.001)
    assert figures["runs"] == 100
    assert figures["failed"] == 0
    assert 0 < figures["p50_us"] <= figures["p99_us"] <= figures["p99.9_us"] <= figures["max_us"]


def test_only_the_caller_s_thread_runs_and_nothing_is_reported_to_anybody(small, tmp_path):
    program = (
        "import os, sys, robot_rl_runtime as rt\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "network = rt.open_network(sys.argv[1])\n"
        "print(len(os.listdir('/proc/self/task')) - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, small],
        env=os.environ | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "0\n", done.stderr
    assert list(tmp_path.iterdir()) == []  # newer libraries keep a database of what they tell their makers


def changed(bundle, change):
    model = onnx.load(bundle / "policy.onnx")
    change(model)
    return model.SerializeToString()


def rename(nodes, graph, old, new):
    for node in nodes:
        if node.name == old:
            node.name = new
    for node in graph.node:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                if name == old:
                    names[i] = new


def test_network_with_other_names_is_refused(small, load):
    model = changed(small, lambda m: rename(m.graph.input, m.graph, "observation", "obs"))
    with pytest.raises(rt.ContractError, match="the names are obs; a policy has observation"):
        load(small, model=model)
    model = changed(small, lambda m: rename(m.graph.output, m.graph, "joint_target", "target"))
    with pytest.raises(rt.ContractError, match="the names are action, target; a policy has action, joint_target"):
        load(small, model=model)


def test_network_of_another_width_is_refused(small, remembering, load):
    contract = json.loads((small / "contract.json").read_text())
    contract["observations"][0]["history"] = 2
    contract["layout"]["observation_size"] += 3
    with pytest.raises(rt.ContractError, match=r"'observation' is float \(N, 20\); the contract needs float \(N, 23\)"):
        load(small, contract=json.dumps(contract))
    with pytest.raises(rt.ContractError, match="the names are observation, state; a policy has observation"):
        load(small, model=(remembering / "policy.onnx").read_bytes())


def test_network_of_another_type_is_refused(small, load):
    def double(model):
        graph = model.graph
        graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
        for node in graph.node:
            for i, name in enumerate(node.input):
                if name == "observation":
                    node.input[i] = "single"
        cast = onnx.helper.make_node("Cast", ["observation"], ["single"], to=onnx.TensorProto.FLOAT)
        graph.node.insert(0, cast)

    with pytest.raises(rt.ContractError, match="'observation' is type 11"):
        load(small, model=changed(small, double))


@pytest.mark.parametrize("model", [b"", b"no network", b"\x08\x07"])
def test_what_is_no_network_is_refused(small, load, model):
    with pytest.raises(rt.ContractError, match="policy.onnx cannot be loaded"):
        load(small, model=model)


def test_named_library_is_taken_or_nothing(small, load, tmp_path):
    for path in (tmp_path / "missing.so", tmp_path, small / "policy.onnx"):
        with pytest.raises(rt.UserError, match=f"--onnxruntime={path}: cannot be loaded"):
            load(small, library=str(path))
    folder = rt.onnxruntime_library().parent
    assert load(small, library=str(folder))[0].identity.startswith("onnxruntime")


def test_of_several_versions_the_newest_is_taken(small, load, tmp_path):
    (tmp_path / "libonnxruntime.so.1.9.0").write_bytes(b"an older one")
    (tmp_path / "libonnxruntime.so.1.31.1").symlink_to(rt.onnxruntime_library())
    assert load(small, library=str(tmp_path))[0].identity.startswith("onnxruntime")


def test_library_that_is_not_onnx_runtime_is_refused(small, load):
    with pytest.raises(rt.UserError, match="has no OrtGetApiBase"):
        load(small, library="libm.so.6")


def test_binary_without_a_library_says_how_to_get_one(small, infer):
    code, _, errors = infer("--bundle", small, "--bench", ROBOT_RL_ONNXRUNTIME="")
    if code != 0:  # none among the system's libraries
        assert code == 2
        assert errors.count("\n") == 1
        assert "pip install onnxruntime" in errors
    code, _, errors = infer("--bundle", small, "--bench", ROBOT_RL_ONNXRUNTIME="/nowhere/lib.so")
    assert code == 2
    assert "ROBOT_RL_ONNXRUNTIME=/nowhere/lib.so: cannot" in errors


def test_other_backends_and_precisions_are_refused(small):
    with pytest.raises(rt.UserError, match="--precision=fp16: ONNX Runtime on the CPU runs fp32"):
        rt.open_network(str(small), "onnxruntime", "fp16")
    with pytest.raises(rt.UserError, match="--backend=gpu: must be auto, onnxruntime or tensorrt"):
        rt.open_network(str(small), "gpu")
    with pytest.raises(rt.UserError, match="--precision=int8: must be fp32, fp16 or auto"):
        rt.open_network(str(small), "auto", "int8")


@pytest.mark.skipif(rt.has_tensorrt(), reason="this build has TensorRT")
def test_tensorrt_left_out_is_said(small):
    with pytest.raises(rt.UserError, match="was built without it"):
        rt.open_network(str(small), "tensorrt")
    with pytest.raises(rt.UserError, match="--precision=fp16: only TensorRT supports it"):
        rt.open_network(str(small), "auto", "fp16")

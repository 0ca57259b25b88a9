"""Policies of mjlab's: an ONNX file with its metadata becomes a contract and a bundle, or one line of error."""

import dataclasses
import json

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from robot_rl_deploy.bundle import read_bundle
from robot_rl_deploy.mjlab import make_contract, read_facts, read_metadata
from robot_rl_deploy.mjlab_bundle import import_bundle
from robot_rl_deploy.policy import BundlePolicy
from robot_rl_deploy.strict import ContractError

from robot_rl.cli.main import main

# Three joints, the middle one without a motor; a history of two on the joint positions.
METADATA = {
    "run_path": "team/walks/abc",
    "joint_names": "hip,tail,knee",
    "joint_stiffness": "40.179,99.098",
    "joint_damping": "2.558,6.309",
    "default_joint_pos": "-0.312,0.000,0.669",
    "command_names": "twist",
    "observation_names": "base_ang_vel,projected_gravity,joint_pos,joint_vel,actions,command",
    "observation_terms_scale": "0.250,1.000,1.000,0.050,1.000,1.000",
    "observation_terms_flatten_history_dim": "True,True,True,True,True,True",
    "observation_terms_history_length": "0,0,2,0,0,0",
    "observation_terms_clip": "-inf;inf,-inf;inf,-inf;inf,-20.000;20.000,-inf;inf,-inf;inf",
    "action_scale": "0.548,0.439",
}
WIDTH = 3 + 3 + 2 * 3 + 3 + 2 + 3


def network(width=WIDTH, actions=2, metadata=METADATA, seed=0, second_input=False):
    """An ONNX file as mjlab exports it: one fixed world, obs -> actions, with metadata."""
    rng = np.random.default_rng(seed)
    weights = {
        "mlp.0.weight": rng.normal(size=(8, width)) / width**0.5,
        "mlp.0.bias": rng.normal(size=8),
        "mlp.2.weight": rng.normal(size=(actions, 8)),
    }
    nodes = [
        helper.make_node("Gemm", ["obs", "mlp.0.weight", "mlp.0.bias"], ["hidden"], transB=1),
        helper.make_node("Elu", ["hidden"], ["after"]),
        helper.make_node("Gemm", ["after", "mlp.2.weight"], ["actions"], transB=1),
    ]
    info = helper.make_tensor_value_info
    inputs = [info("obs", TensorProto.FLOAT, [1, width])]
    if second_input:
        inputs.append(info("h_in", TensorProto.FLOAT, [1, 4]))
    graph = helper.make_graph(
        nodes,
        "main_graph",
        inputs,
        [info("actions", TensorProto.FLOAT, [1, actions])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    helper.set_model_props(model, metadata)
    return model.SerializeToString()


def facts(**changes):
    limits = {"effort_limit": 88.0, "velocity_limit": 20.0, "lower": -2.5, "upper": 2.5}
    data = {
        "robot": "toy",
        "control_period_s": 0.02,
        "physics_timestep_s": 0.005,
        "joints": {"hip": limits, "knee": limits, "tail": {"effort_limit": 0.0}},
        "command": [{"name": name, "lower": -1.0, "upper": 1.0} for name in ("vx", "vy", "yaw")],
    }
    return read_facts(json.dumps(data | changes))


def contract_of(metadata=METADATA, **changes):
    return make_contract(read_metadata(network(metadata=metadata)), facts(**changes))


def test_the_metadata_becomes_a_contract():
    contract = contract_of()
    hip, tail, knee = contract.joints
    assert (hip.name, hip.kp, hip.kd, hip.default_pos, hip.effort_limit) == ("hip", 40.179, 2.558, -0.312, 88.0)
    assert (tail.kp, tail.kd, tail.effort_limit, tail.lower) == (0.0, 0.0, 0.0, None)
    assert (knee.kp, knee.default_pos) == (99.098, 0.669)
    assert [(a.joint, a.scale, a.offset) for a in contract.actions] == [("hip", 0.548, -0.312), ("knee", 0.439, 0.669)]
    gyro, _, position, velocity, *_ = contract.observations
    assert (gyro.signal, gyro.scale, gyro.history) == ("imu_gyro", 0.25, 1)
    assert (position.transform, position.history, position.size) == ("minus_default", 2, 3)
    assert velocity.clip == (-20.0, 20.0)
    assert contract.layout.observation_size == WIDTH
    assert contract.training.run_id == "team/walks/abc"
    assert contract.fallback_pose == {"hip": -0.312, "tail": 0.0, "knee": 0.669}


def test_exact_values_take_the_place_of_rounded_ones_that_they_agree_with():
    contract = contract_of(exact={"action_scale": [0.54751, 0.43858], "joint_stiffness": [40.17924, 99.09843]})
    assert [action.scale for action in contract.actions] == [0.54751, 0.43858]
    assert [joint.kp for joint in contract.joints] == [40.17924, 0.0, 99.09843]
    with pytest.raises(ContractError, match=r"facts.exact.action_scale\[1\] is 0.4; the metadata has 0.439"):
        contract_of(exact={"action_scale": [0.548, 0.4]})
    with pytest.raises(ContractError, match=r"facts.exact.observation_terms_scale is 1; values"):
        contract_of(exact={"observation_terms_scale": [0.25]})


def test_one_scale_may_stand_for_all_actions():
    assert [action.scale for action in contract_of(METADATA | {"action_scale": "0.25"}).actions] == [0.25, 0.25]


def test_a_term_of_another_name_is_what_the_facts_call_it():
    renamed = METADATA | {"observation_names": "imu,projected_gravity,joint_pos,joint_vel,actions,command"}
    assert contract_of(renamed, observations={"imu": "base_ang_vel"}).observations[0].signal == "imu_gyro"
    with pytest.raises(ContractError, match="what 'imu' is is 'imu'; facts.observations must call it one of"):
        contract_of(renamed)
    with pytest.raises(ContractError, match=r"facts.observations.gyro is 'base_ang_vel'; the policy lacks this term"):
        contract_of(observations={"gyro": "base_ang_vel"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observation_names": "base_lin_vel,projected_gravity,joint_pos,joint_vel,actions,command"}, "base_lin_vel"),
        ({"observation_names": "height_scan,projected_gravity,joint_pos,joint_vel,actions,command"}, "its grid"),
        ({"joint_stiffness": "40.179"}, "joint_stiffness is 1; values; 2 joints need one"),
        ({"joint_names": "hip,knee"}, "see tail"),
        ({"default_joint_pos": "0.1,x,0.2"}, "default_joint_pos is 'x'; a number is needed"),
        ({"default_joint_pos": "0.1,nan,0.2"}, "default_joint_pos is 'nan'; a number is needed"),
        ({"action_scale": "0.5,0.5,0.5"}, "action_scale is 3; values; 2 actions drive 2 joints"),
        ({"observation_terms_scale": "1;2;3,1,1,1,1,1"}, "different scales"),
        ({"observation_terms_history_length": "0,0,1,0,0,0"}, f"input is {WIDTH}; the terms add up to {WIDTH - 3}"),
        ({"observation_terms_flatten_history_dim": "True,True,False,True,True,True"}, "only a flat history"),
        ({"observation_terms_clip": "-inf;inf"}, "clip is 1; values; there are 6 terms"),
        ({"run_path": "", "joint_names": ""}, "see hip, knee, tail"),
    ],
)
def test_what_cannot_be_imported_is_refused_in_a_line(changes, message):
    with pytest.raises(ContractError) as refused:
        contract_of(METADATA | changes)
    assert message in str(refused.value)


def test_a_file_without_metadata_or_with_a_memory_is_refused():
    with pytest.raises(ContractError, match="no 'joint_names' in its metadata"):
        read_metadata(network(metadata={}))
    with pytest.raises(ContractError, match="obs, h_in, actions; one input and one output"):
        read_metadata(network(second_input=True))
    with pytest.raises(ContractError, match="cannot be read"):
        read_metadata(b"no network")


def test_the_bundle_gives_the_actions_of_the_network(tmp_path):
    import onnxruntime

    model = network()
    report = import_bundle(model, facts(action_clip=0.5), tmp_path / "policy")
    assert report.replay.resets == 3  # the first step, the one halfway, the one before the forced states
    bundle = read_bundle(tmp_path / "policy")
    original = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    golden = bundle.golden
    assert np.abs(golden.action).max() == 0.5  # some were clipped
    assert (np.abs(golden.action) < 0.5).any()
    for step in (0, 1, 100):
        (raw,) = original.run(None, {"obs": golden.observation[step : step + 1]})
        np.testing.assert_array_equal(np.clip(raw[0], -0.5, 0.5), golden.action[step])
    policy = BundlePolicy(tmp_path / "policy", joint_names=["knee", "hip", "tail"])
    state = {name: values[0] for name, values in golden.signals.items()}
    state["joint_pos"] = state["joint_pos"][[2, 0, 1]]
    state["joint_vel"] = state["joint_vel"][[2, 0, 1]]
    target, action, _ = policy.act(state)
    np.testing.assert_allclose(action[0], golden.action[0], atol=1e-6)
    np.testing.assert_allclose(target[0], [0.548, 0.439] * action[0] + [-0.312, 0.669], atol=1e-6)


def test_the_command_line_writes_a_form_and_then_the_bundle(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "walk.onnx").write_bytes(network())
    (tmp_path / "toy.xml").write_text(
        """<mujoco><worldbody><body><freejoint/><geom size="0.1"/>
        <body><joint name="hip" range="-60 90" limited="true" actuatorfrcrange="-9 9"/><geom size="0.1"/></body>
        <body><joint name="knee"/><geom size="0.1"/></body></body></worldbody>
        <actuator><motor joint="knee" forcerange="-7 7" forcelimited="true"/></actuator></mujoco>"""
    )
    command = ["import-mjlab", "policy=walk.onnx", "model=toy.xml"]
    assert main(command) == 0
    form = json.loads((tmp_path / "facts.json").read_text())
    assert form["joints"]["hip"] == pytest.approx(
        {"effort_limit": 9.0, "velocity_limit": None, "lower": -np.pi / 3, "upper": np.pi / 2}
    )
    assert form["joints"]["knee"]["effort_limit"] == 7.0
    assert main(command) == 2
    assert "facts.robot is None" in capsys.readouterr().err
    (tmp_path / "facts.json").write_text(json.dumps(dataclasses.asdict(facts())))
    assert main(command) == 0
    assert "3 joints" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "policy").iterdir()) == [
        "SHA256SUMS",
        "contract.json",
        "golden.npz",
        "policy.onnx",
    ]
    assert main(["import-mjlab", "policy=nowhere.onnx"]) == 2
    assert main(["import-mjlab", "policy=toy.xml"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "policy=toy.xml: no file that mjlab wrote and a robot could run: policy.onnx cannot be read" in error
    assert "export" not in error


def test_the_network_of_the_bundle_takes_any_number_of_worlds(tmp_path):
    import_bundle(network(), facts(), tmp_path / "policy")
    model = onnx.load(tmp_path / "policy" / "policy.onnx")
    assert [node.name for node in model.graph.input] == ["observation"]
    assert [node.name for node in model.graph.output] == ["action", "joint_target"]
    assert [entry.key for entry in model.metadata_props] == ["contract_sha256"]


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(sorted(METADATA)),
    st.one_of(
        st.text(max_size=30),
        st.lists(st.sampled_from(["1.0", "nan", "inf", "-inf;inf", "1;1", "hip", "True", "", "2"]), max_size=7).map(
            ",".join
        ),
    ),
)
def test_metadata_that_holds_anything_is_a_contract_or_one_line(key, text):
    message = ""
    try:
        width = contract_of(METADATA | {key: text}).layout.observation_size
    except ContractError as error:
        width, message = WIDTH, str(error)
    assert width == WIDTH
    assert len(message.splitlines()) <= 1

import hashlib
import json
import shutil

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from robot_rl_deploy import golden as golden_module
from robot_rl_deploy.bundle import read_bundle
from robot_rl_deploy.export import export_bundle
from robot_rl_deploy.policy import BundlePolicy
from robot_rl_deploy.record import record_golden
from robot_rl_deploy.strict import ContractError
from robot_rl_deploy.verify import verify_bundle


def test_a_fresh_bundle_passes(toy_bundle):
    report = verify_bundle(toy_bundle)
    assert report.replay.steps == 256
    assert report.replay.resets > 2  # the first step, the one halfway, and where episodes ended
    assert report.replay.observation_error == 0
    assert report.replay.action_error < 1e-5
    assert report.contract.training.iteration == 300
    assert json.loads(json.dumps(report.to_dict()))["replay"]["steps"] == 256


def test_content_of_the_directory(toy_bundle):
    names = sorted(path.name for path in toy_bundle.iterdir())
    assert names == ["SHA256SUMS", "contract.json", "golden.npz", "policy.onnx"]
    assert sorted(path.name for path in toy_bundle.parent.iterdir()) == ["policy"]
    for line in (toy_bundle / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((toy_bundle / name).read_bytes()).hexdigest() == digest


def test_the_network_is_small_whole_and_anonymous(toy_bundle):
    data = (toy_bundle / "policy.onnx").read_bytes()
    model = onnx.load_model_from_string(data)
    assert len(data) < 6_000
    assert [node.name for node in model.graph.input] == ["observation"]
    assert [node.name for node in model.graph.output] == ["action", "joint_target"]
    assert all(tensor.data_location == onnx.TensorProto.DEFAULT for tensor in model.graph.initializer)
    for word in (b"stack_trace", b"conftest", b"site-packages", b"/work", b"/home"):
        assert word not in data


def test_golden_holds_no_objects_and_a_reset_inside(toy_bundle):
    with np.load(toy_bundle / "golden.npz", allow_pickle=False) as stored:
        kinds = {name: stored[name].dtype for name in stored.files}
        assert kinds.pop("reset") == np.bool_
        assert set(kinds.values()) == {np.dtype(np.float32)}
        assert stored["reset"][128]
        assert len(stored["reset"]) == 256


def test_torch_and_onnx_agree(toy_bundle, toy_actor, random_states):
    policy, module = BundlePolicy(toy_bundle, num_envs=8), toy_actor.export_module()
    for raw in random_states(8, 20):
        target, action, observation = policy.act(raw)
        with torch.no_grad():
            wanted = module(torch.from_numpy(observation)).clamp(-10, 10).numpy()
        np.testing.assert_allclose(action, wanted, atol=1e-4)
        np.testing.assert_allclose(target, wanted * [0.25, 0.3] + [0.1, -1.5], atol=1e-4)
        np.testing.assert_array_equal(policy.last_action, action)


def test_actions_are_clipped_within_the_network(description, training, make_toy_env, toy_actor, tmp_path):
    for action in description["actions"]:
        action["clip"] = 0.1

    class Env(make_toy_env):
        def describe_policy(self):
            return description

    golden = record_golden(Env(), toy_actor, 200)
    export_bundle(toy_actor, description, tmp_path / "policy", golden=golden, run=training)
    assert np.abs(golden.action).max() == np.float32(0.1)
    assert np.abs(golden.observation[:, 26:28]).max() == np.float32(0.1)


def test_joints_in_another_order_give_the_same_targets(toy_bundle, random_states):
    own = BundlePolicy(toy_bundle, 4)
    permuted = BundlePolicy(toy_bundle, 4, joint_names=["knee", "tail", "hip"])
    assert permuted.action_joints == ("hip", "knee")
    for raw in random_states(4, 6):
        moved = raw | {name: raw[name][:, [1, 2, 0]] for name in ("joint_pos", "joint_vel")}
        np.testing.assert_array_equal(own.act(raw)[0], permuted.act(moved)[0])


def test_a_reset_of_one_robot_leaves_the_others(toy_bundle, random_states):
    states = list(random_states(3, 4))
    policy, fresh = BundlePolicy(toy_bundle, 3), BundlePolicy(toy_bundle, 3)
    for raw in states[:3]:
        policy.act(raw)
    policy.reset(np.array([False, True, False]))
    mixed, new = policy.act(states[3])[2], fresh.act(states[3])[2]
    np.testing.assert_array_equal(mixed[1], new[1])
    assert (mixed[0] != new[0]).any()


def test_one_thread_within_and_between_and_no_spinning(toy_bundle, monkeypatch):
    seen = []
    original = onnxruntime.InferenceSession

    def spy(model, options, **more):
        seen.append(options)
        return original(model, options, **more)

    monkeypatch.setattr(onnxruntime, "InferenceSession", spy)
    BundlePolicy(toy_bundle)
    options = seen[0]
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (1, 1)
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert options.get_session_config_entry("session.inter_op.allow_spinning") == "0"


@pytest.mark.long
def test_an_older_bundle_is_replaced_whole_or_not_at_all(
    toy_bundle, toy_actor, description, training, tmp_path, monkeypatch
):
    out = tmp_path / "policy"
    shutil.copytree(toy_bundle, out)
    before = (out / "SHA256SUMS").read_bytes()
    golden = read_bundle(toy_bundle).golden
    shifted = golden_module.Golden(
        signals=golden.signals,
        reset=golden.reset,
        observation=golden.observation,
        action=golden.action + np.float32(0.01),
        joint_target=golden.joint_target,
    )
    with pytest.raises(ContractError, match="golden replay"):
        export_bundle(toy_actor, description, out, golden=shifted, run=training)
    assert (out / "SHA256SUMS").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]

    def no_space(directory):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("robot_rl_deploy.export.write_sums", no_space)
    with pytest.raises(OSError, match="No space"):
        export_bundle(toy_actor, description, out, golden=golden, run=training)
    assert (out / "SHA256SUMS").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]
    monkeypatch.undo()
    export_bundle(toy_actor, description, out, golden=golden, run=training)
    assert verify_bundle(out).replay.steps == 256
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


def test_the_same_export_gives_the_same_bytes(toy_bundle, toy_actor, description, training, tmp_path):
    golden = read_bundle(toy_bundle).golden
    export_bundle(toy_actor, description, tmp_path / "policy", golden=golden, run=training)
    assert (tmp_path / "policy" / "SHA256SUMS").read_bytes() == (toy_bundle / "SHA256SUMS").read_bytes()


def test_too_short_a_recording_is_refused(make_toy_env, toy_actor):
    with pytest.raises(ValueError, match="at least 200"):
        record_golden(make_toy_env(), toy_actor, 100)


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        BundlePolicy(tmp_path / "nowhere")

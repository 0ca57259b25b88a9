"""What something around the robot measures, in a bundle: signals measured/<name>, from the contract to the action."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from robot_rl_deploy import contract as contracts
from robot_rl_deploy.contract import ContractError, from_dict, to_dict
from robot_rl_deploy.describe import make_contract
from robot_rl_deploy.export import export_policy
from robot_rl_deploy.forced import forced_states
from robot_rl_deploy.observe import Observer, needed_signals
from robot_rl_deploy.policy import BundlePolicy
from robot_rl_deploy.synthetic import write_synthetic_bundle
from robot_rl_deploy.verify import verify_bundle

GO2 = Path(__file__).parents[3] / "tasks" / "robot_rl_tasks" / "go2_flat" / "policy" / "contract.json"
ROWS = (
    {"name": "cube", "signal": "measured/cube_pos", "unit": "m", "frame": "base", "size": 3, "scale": 2.0, "clip": 0.5},
    {"name": "turn", "signal": "measured/_cube_2", "unit": "1", "frame": "world", "size": 4, "history": 2},
    {"name": "cube_raw", "signal": "measured/cube_pos", "unit": "m", "frame": "base", "size": 3},
)


def with_measured(description):
    """The description with three terms of two measured signals at its end."""
    return description | {
        "observations": [*description["observations"], *({"transform": "identity"} | r for r in ROWS)]
    }


@pytest.fixture
def contract(description, training):
    return make_contract(with_measured(description), training)


def test_it_is_read_back_equal_with_the_width_of_its_first_term(contract):
    assert contracts.loads(contracts.dumps(contract)) == contract
    assert contract.layout.observation_size == 30 + 3 + 8 + 3
    sizes = contract.signal_sizes()
    assert (sizes["measured/cube_pos"], sizes["measured/_cube_2"]) == (3, 4)
    assert needed_signals(contract)[-2:] == ("measured/cube_pos", "measured/_cube_2")


def test_a_contract_without_it_is_the_same_text_as_ever():
    text = GO2.read_text()
    assert contracts.dumps(contracts.loads(text)) == text


def test_the_observation_is_clip_times_scale_then_history(contract):
    observer = Observer(contract)
    state = {name: np.zeros(size, np.float32) for name, size in contract.signal_sizes().items()}
    cube = np.array([0.25, -0.75, 2.0], np.float32)
    for step in (1, 2):
        turn = np.full(4, step, np.float32)
        seen = observer.observe(state | {"measured/cube_pos": cube, "measured/_cube_2": turn})[0, 30:]
    np.testing.assert_array_equal(seen, [0.5, -1.0, 1.0, *[1.0] * 4, *[2.0] * 4, 0.25, -0.75, 2.0])


def test_a_signal_that_is_missing_or_of_another_width_is_named(contract):
    state = {name: np.zeros(size, np.float32) for name, size in contract.signal_sizes().items()}
    with pytest.raises(ContractError, match=r"'measured/cube_pos' has shape \(1, 2\); the contract needs \(1, 3\)"):
        Observer(contract).observe(state | {"measured/cube_pos": np.zeros(2)})
    del state["measured/_cube_2"]
    with pytest.raises(ContractError, match="no signal 'measured/_cube_2'"):
        Observer(contract).observe(state)


# What is changed of the contract's terms, and what the one line must contain.
WRONG = [
    ({"cube": {"signal": "measured/"}}, "signal is 'measured/'; no robot measures it"),
    ({"cube": {"signal": "measured/<name>"}}, "signal is 'measured/<name>'; no robot measures it"),
    ({"cube": {"signal": "measured/2nd"}}, "signal is 'measured/2nd'; no robot measures it"),
    ({"cube": {"signal": "measured/a b"}}, "signal is 'measured/a b'; no robot measures it"),
    ({"cube": {"signal": "measured/gr\u00f6\u00dfe"}}, "no robot measures it"),
    ({"cube": {"signal": "measured"}}, "signal is 'measured'; no robot measures it"),
    ({"cube": {"transform": "minus_default"}}, "for measured/cube_pos it must be one of identity"),
    ({"cube": {"unit": "inch"}}, "unit is 'inch'; it must be one of m, m/s"),
    ({"cube": {"frame": "camera"}}, "frame is 'camera'; it must be one of base, heading"),
    ({"cube": {"params": {"object": 1.0}}}, "params.object is 1.0; there is no such parameter of identity"),
    ({"cube_raw": {"size": 2}}, "size is 2; identity of measured/cube_pos is 3 wide"),
    ({"turn": {"size": 1022}}, "observations: number of measured values is 1025; 1024 are the most"),
    ({"turn": {"size": 1025}}, "observations: number of measured values is 1028; 1024 are the most"),
]


def changed(data, changes):
    """A contract's dictionary with fields of some terms replaced and its size right again."""
    data = json.loads(json.dumps(data))
    for term in data["observations"]:
        term.update(changes.get(term["name"], {}))
    data["layout"]["observation_size"] = sum(term["size"] * term["history"] for term in data["observations"])
    return data


@pytest.mark.parametrize(("changes", "line"), WRONG, ids=[line for _, line in WRONG])
def test_what_does_not_fit_is_one_line(contract, changes, line):
    with pytest.raises(ContractError) as caught:
        from_dict(changed(to_dict(contract), changes))
    assert line in str(caught.value)


def test_1024_values_are_possible(contract):
    assert from_dict(changed(to_dict(contract), {"turn": {"size": 1021}})).signal_sizes()["measured/_cube_2"] == 1021


def test_a_name_that_no_contract_may_contain_is_refused_with_its_cure(description, training):
    wrong = with_measured(description)
    wrong["observations"][-1] |= {"signal": "measured/a b"}
    with pytest.raises(ContractError, match=r"'cube_raw' reads signal 'measured/a b', .* \(measured=<name>\)"):
        make_contract(wrong, training)


class MeasuringEnv:
    """The toy with a cube that wanders."""

    device = "cpu"

    def __init__(self, toy, description):
        self.toy, self.num_envs = toy, toy.num_envs
        self.describe_policy = lambda: with_measured(description)
        self.reset, self.step = toy.reset, toy.step

    def robot_state(self):
        near = self.toy.signals["imu_gyro"]
        turn = self.toy.signals["imu_quat_wxyz"]
        return self.toy.signals | {"measured/cube_pos": 0.3 * near, "measured/_cube_2": turn}


def test_a_bundle_carries_it_and_its_golden_sequence(make_toy_env, toy_actor, description, training, tmp_path):
    env = MeasuringEnv(make_toy_env(num_envs=2), description)
    actor = type(toy_actor)(44, 2)
    report = export_policy(env, actor, tmp_path / "policy", run=training)
    assert report.replay.observation_error == 0.0
    assert verify_bundle(tmp_path / "policy").digest == report.digest
    with np.load(tmp_path / "policy" / "golden.npz") as golden:
        assert golden["measured/cube_pos"].shape == (256, 3)
        forced = forced_states(report.contract)["measured/cube_pos"]
        np.testing.assert_array_equal(golden["measured/cube_pos"][-len(forced) :], forced)
    assert np.ptp(forced, axis=0).min() > 0
    policy = BundlePolicy(tmp_path / "policy", 2)
    state = {name: value.numpy() for name, value in env.robot_state().items()}
    _, action, observation = policy.act(state)
    wanted = actor.export_module()(torch.from_numpy(observation)).detach().numpy().clip(-10, 10)
    np.testing.assert_allclose(action, wanted, atol=1e-5)
    np.testing.assert_array_equal(observation[:, -3:], state["measured/cube_pos"])


def test_the_synthetic_robot_may_measure_something(tmp_path):
    report = write_synthetic_bundle(tmp_path / "policy", joints=3, hidden=(8,), measured=5)
    assert report.contract.layout.observation_size == 11 + 9 + 5
    assert report.contract.signal_sizes()["measured/object"] == 5

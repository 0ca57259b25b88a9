"""Signals of sensors in the contract, and a bundle of a Go2 with foot contacts and a height scan, end to end."""

import dataclasses

import numpy as np
import pytest
import torch
from robot_rl_assets.registry import get_robot
from robot_rl_deploy.contract import ContractError, from_dict, to_dict
from robot_rl_deploy.describe import make_contract
from robot_rl_deploy.export import export_policy
from robot_rl_deploy.observe import Observer, needed_signals
from robot_rl_deploy.policy import BundlePolicy
from robot_rl_deploy.replay import observation_labels
from robot_rl_deploy.verify import verify_bundle
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import events, observations, rewards, sensing
from robot_rl_envs.sensing.sensors import HeightScan, Imu, Sensors
from robot_rl_envs.task import Event, Observation, ObservationGroup, Reward, Task
from robot_rl_envs.terrain import Stairs, TerrainCfg


@pytest.fixture(scope="module")
def env():
    half = float(np.sqrt(0.5))
    sensed = {
        "gyro": Observation(sensing.imu_gyro, scale=0.25),
        "gravity": Observation(sensing.imu_gravity),
        "acc": Observation(sensing.imu_acc, scale=0.1, history=2),
        "joint_pos": Observation(sensing.encoder_pos, resolution=0.0),
        "contact": Observation(observations.foot_contact),
        "force": Observation(sensing.foot_force, scale=0.01, clip=300.0),
        "scan": Observation(sensing.height_scan, offset=0.3, clip=1.0, scale=2.0),
        "last_action": Observation(observations.last_action),
    }
    task = Task(
        name="seeing",
        robot=get_robot("unitree_go2"),
        episode_length_s=0.6,
        observations={"actor": ObservationGroup(terms=sensed)},
        rewards={"alive": Reward(rewards.alive, weight=1.0)},
        events={
            "base": Event(events.reset_base, xy=0.4, yaw=3.14, velocity=0.3),
            "tilt": Event(sensing.imu_mount, mode="startup", rpy=0.05),
        },
        terrain=TerrainCfg(tiles={"stairs": Stairs()}, num_rows=1, num_columns=1, border=2.0),
        sensors=Sensors(
            imu=Imu(body="base_link", pos=(0.1, 0.0, 0.0), quat_wxyz=(half, 0.0, half, 0.0)),
            height_scan=HeightScan(size=(0.8, 0.6), resolution=0.2, offset=(0.2, 0.0)),
        ),
    )
    made = make_env(task, num_envs=4, engine="mujoco", seed=1, num_threads=1)
    yield made
    made.close()


class Seeing:
    """An untrained actor."""

    def __init__(self, size, outputs):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.net = torch.nn.Sequential(torch.nn.Linear(size, 32), torch.nn.ELU(), torch.nn.Linear(32, outputs))

    def export_module(self):
        return self.net


def test_sensors_in_the_contract(env, training):
    contract = make_contract(env.describe_policy(), training)
    rows = {term.name: term for term in contract.observations}
    frames = {name: (rows[name].signal, rows[name].frame, rows[name].size) for name in rows}
    assert frames["gyro"] == ("imu_gyro", "imu", 3)
    assert frames["gravity"] == ("imu_quat_wxyz", "imu", 3)
    assert frames["acc"] == ("imu_acc", "imu", 3)
    assert frames["contact"] == ("foot_contact", "none", 4)
    assert frames["force"] == ("foot_force", "none", 4)
    assert frames["scan"] == ("measured/height_scan", "heading", 20)
    assert rows["joint_pos"].params == {}, "an encoder's resolution is the simulation's affair"
    assert rows["scan"].params["grid"] == {"size": [0.8, 0.6], "resolution": 0.2, "offset": [0.2, 0.0]}
    assert rows["scan"].params["offset"] == 0.3
    assert contract.signal_sizes()["measured/height_scan"] == 20
    assert from_dict(to_dict(contract)) == contract
    wanted = {"imu_gyro", "imu_quat_wxyz", "imu_acc", "joint_pos", "foot_contact", "foot_force", "measured/height_scan"}
    assert set(needed_signals(contract)) == wanted


def test_observations_from_raw_state_are_the_environment_s(env, training):
    contract = make_contract(env.describe_policy(), training)
    observer, labels = Observer(contract, 4), observation_labels(contract)
    random, done, obs = torch.Generator().manual_seed(0), np.ones(4, bool), env.reset()
    for step in range(70):
        observer.reset(done)
        seen = observer.observe({key: value.numpy() for key, value in env.robot_state().items()})
        right = obs["actor"].numpy()
        error = np.abs(seen - right) / np.maximum(1, np.abs(right))
        worst = np.unravel_index(error.argmax(), error.shape)
        assert error[worst] <= 2e-6, f"step {step}, {labels[worst[1]]}: {seen[worst]} and {right[worst]}"
        action = torch.randn(4, 12, generator=random)
        obs, _, dones, _ = env.step(action)
        observer.last_action[:] = action.numpy()
        done = dones.numpy().astype(bool)


def test_a_bundle_that_sees_the_ground_passes_its_own_check(env, training, tmp_path):
    size = env.get_observations()["actor"].shape[1]
    actor = Seeing(size, 12)
    report = export_policy(env, actor, tmp_path / "policy", run=training)
    assert report.replay.observation_error == 0.0
    assert report.replay.action_error <= 1e-5
    assert verify_bundle(tmp_path / "policy").digest == report.digest
    policy = BundlePolicy(tmp_path / "policy")
    obs = env.reset()["actor"]
    state = {name: value[0].numpy() for name, value in env.robot_state().items()}
    policy.reset()
    _, action, observation = policy.act(state)
    np.testing.assert_allclose(observation[0], obs[0].numpy(), rtol=2e-6, atol=2e-6)
    with torch.no_grad():
        np.testing.assert_allclose(action[0], actor.net(obs[:1]).numpy()[0].clip(-10, 10), atol=1e-5)


WRONG = [
    (("params", "grid", "resolution"), 0.0, "params.grid.resolution is 0.0; it must be more than 0"),
    (("params", "grid", "resolution"), 0.1, "observation 'scan': size is 20; its grid has 63 points"),
    (("params", "grid", "size"), [0.8], "params.grid.size is [0.8]; it must be [x, y]"),
    (("params", "grid", "offset"), [], "params.grid.offset is []; it must be [x, y]"),
    (("params", "grid"), {"size": [0.8, 0.6]}, "params.grid.resolution is missing"),
    (("params", "offset"), "high", "params.offset is 'high'; a number is needed"),
    (("params",), {"offset": 0.3}, "params.grid is missing; minus_offset needs it"),
    (("transform",), "identity", "there is no such parameter of identity"),
    (("frame",), "wheel", "frame is 'wheel'; it must be one of base, heading"),
]


@pytest.mark.parametrize(("path", "value", "line"), WRONG, ids=[f"{p[-1]}={v!r:.20}" for p, v, _ in WRONG])
def test_a_wrong_grid_is_refused(env, training, path, value, line):
    data = to_dict(make_contract(env.describe_policy(), training))
    place = next(term for term in data["observations"] if term["name"] == "scan")
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(ContractError) as caught:
        from_dict(data)
    assert line in str(caught.value)


def test_a_contract_with_the_former_name_of_the_scan_is_read(env, training):
    contract = make_contract(env.describe_policy(), training)
    data = to_dict(contract)
    next(term for term in data["observations"] if term["name"] == "scan")["signal"] = "height_scan"
    assert from_dict(data) == contract


def test_two_terms_of_one_signal_are_as_wide(env, training):
    data = to_dict(make_contract(env.describe_policy(), training))
    second = next(dict(term) for term in data["observations"] if term["name"] == "force") | {"name": "again", "size": 3}
    data["observations"].append(second)
    data["layout"]["observation_size"] += 3
    with pytest.raises(ContractError, match="observation 'again': size is 3; identity of foot_force is 4 wide"):
        from_dict(data)
    assert dataclasses.is_dataclass(from_dict(to_dict(make_contract(env.describe_policy(), training))))

"""Exploration: noise of the requested size on the actions, the same every time, and targets as the contract states."""

import json

import numpy as np
import pytest
from robot_rl_deploy import synthetic
from robot_rl_deploy.bundle import read_bundle
from robot_rl_deploy.replay import apply_actions

from tests.deploy.learning.conftest import JOINTS, Body


def settings_of(rt, std, seed=0):
    made = rt.Settings()
    made.explore_std, made.explore_seed = std, seed
    return made


def play(rt, bundle, count, settings=None):
    """Observations, actions and targets of so many control steps, the first of which resets the policy."""
    policy, body, low = rt.open_policy(bundle, settings=settings), Body(), rt.LowState()
    rows = []
    for step in range(count):
        body.sense(low)
        out = policy.step(low, [0.1, 0.0, -0.2], reset=step == 0)
        rows.append([np.array(value, np.float32) for value in (policy.observation, out.action, out.target)])
    return [np.stack(column) for column in zip(*rows, strict=True)]


@pytest.fixture(scope="module")
def tight(write):
    """A bundle that clips its actions at 0.3."""
    before = synthetic.describe

    def describe(*args):
        made = before(*args)
        return made | {"actions": [action | {"clip": 0.3} for action in made["actions"]]}

    synthetic.describe = describe
    try:
        return write("tight")
    finally:
        synthetic.describe = before


@pytest.fixture(scope="module")
def plain(write):
    return write("plain")


@pytest.mark.parametrize("std", [0.1, 1.5])
def test_the_noise_is_normal_with_the_requested_std(rt, plain, network, std):
    observations, actions, _ = play(rt, plain, 2000, settings_of(rt, std))
    net = network(plain)
    mean = np.concatenate([net.run(row[None], net.start_state())[0] for row in observations])
    noise = (actions - mean) / std
    count = noise.size
    assert noise.std() == pytest.approx(1.0, abs=4 / np.sqrt(2 * count))
    assert noise.mean() == pytest.approx(0.0, abs=4 / np.sqrt(count))
    assert (noise**4).mean() == pytest.approx(3.0, abs=4 * np.sqrt(96 / count))
    correlation = np.corrcoef(np.concatenate([noise[1:], noise[:-1]], axis=1).T) - np.eye(2 * JOINTS)
    assert np.abs(correlation).max() < 5 / np.sqrt(len(noise))
    assert len(np.unique(noise)) > 0.99 * count  # float32 has the same number twice now and then


def test_the_same_seed_gives_the_same_bits_and_another_others(rt, plain):
    runs = [play(rt, plain, 50, settings_of(rt, 0.2, seed)) for seed in (3, 3, 4)]
    for left, right in zip(runs[0], runs[1], strict=True):
        assert left.tobytes() == right.tobytes()
    assert not (runs[0][1] == runs[2][1]).any()


def test_without_exploration_nothing_changes(rt, plain):
    bare, seeded = play(rt, plain, 50), play(rt, plain, 50, settings_of(rt, 0.0, 9))
    assert all(left.tobytes() == right.tobytes() for left, right in zip(bare, seeded, strict=True))


@pytest.mark.parametrize("name", ["plain", "tight"])
def test_a_target_is_that_of_the_noisy_action_and_the_next_observation_shows_it_as_clipped(rt, request, name):
    bundle = request.getfixturevalue(name)
    contract = read_bundle(bundle).contract
    observations, actions, targets = play(rt, bundle, 200, settings_of(rt, 0.5))
    assert apply_actions(contract, actions, observations).tobytes() == targets.tobytes()
    clip = contract.actions[0].clip
    assert (np.abs(actions) > clip).any() == (name == "tight")
    at = 9 + 2 * JOINTS  # gyro, gravity, command, joint_pos, joint_vel come before
    shown = observations[1:, at : at + JOINTS]
    assert shown.tobytes() == np.clip(actions[:-1], -clip, clip).tobytes()


def test_the_binary_explores_says_so_and_its_log_is_replayed_bit_for_bit(rt, first, serve, network, steps, tmp_path):
    log = tmp_path / "run.mcap"
    served = serve(first, "--log", log, explore_std=0.1, explore_seed=5)
    served.go(100)
    report = served.end()
    assert "explores: normal noise of std 0.1 on every action, seed 5" in served.said()
    assert (report["settings"]["explore_std"], report["settings"]["explore_seed"]) == (0.1, 5)
    found, net = steps(log), network(first)
    state, noise = net.start_state(), []
    for step in found:
        if step["reset"]:
            state = net.start_state()
        mean, _, state = net.run(np.array([step["observation"]], np.float32), state)
        noise.append(np.array(step["action"]) - mean[0])
    assert np.std(noise) == pytest.approx(0.1, rel=0.15)
    result = rt.replay_log(log)
    assert (result["difference"], result["same_backend"], result["action_difference"]) == ("", True, 0.0)
    assert (result["steps"], rt.log_about(log)["run"]["version"]) == (len(found), "2")


def test_a_log_of_another_backend_is_replayed_with_its_noisy_actions(rt, plain, tmp_path):
    """The mixture is no library: the log's actions are taken, which contain the noise already."""
    recorder = rt.Recorder(rt.read_bundle(plain), settings_of(rt, 0.5), tmp_path / "run.mcap", "mixture")
    recorder.start()
    body, low, now = Body(), rt.LowState(), 10**9
    recorder.ready(now)
    for k in range(50):
        body.sense(low)
        now += 2_000_000
        low.sequence, low.receive_time_ns = k + 1, now
        recorder.on_state(low, now)
        recorder.step(now)
        recorder.command(now, from_policy=True)
    recorder.stop()
    result = rt.replay_log(recorder.path)
    assert (result["difference"], result["same_backend"], result["steps"]) == ("", False, 50)
    assert 0 < result["action_difference"] < 1.5  # of the networks: the noise is the same in both


def test_a_log_without_exploration_is_one_that_older_programs_read(rt, plain, tmp_path, shared):
    logs = {}
    for std in (0.0, 0.5):
        recorder = rt.Recorder(rt.read_bundle(plain), settings_of(rt, std, 7), tmp_path / f"{std}.mcap")
        recorder.start()
        recorder.stop()
        logs[std] = recorder.path.read_bytes()
        assert rt.log_about(recorder.path)["run"]["version"] == ("2" if std else "1")
    assert b"explore" not in logs[0.0]
    assert b"explore_seed" in logs[0.5]


def test_the_checks_of_a_bundle_have_no_noise(infer, plain, tmp_path):
    reports = []
    for std in (0, 2):
        path = tmp_path / f"{std}.json"
        ended = infer("--bundle", plain, "--check", "--set", f"explore_std={std}", "--report", path)
        assert ended.returncode == 0, ended.stderr
        reports.append(json.loads(path.read_text())["replay"])
    assert reports[0] == reports[1]

"""A measured delay as randomization: read from a file, reduced to quantiles, drawn by each world and in each step."""

import json

import numpy as np
import pytest
import torch
from robot_rl_envs.actuation.actuators import ExplicitPd, PositionPd
from robot_rl_envs.actuation.latency import QUANTILES, quantiles, read_latency

from robot_rl.cli.main import main
from robot_rl.errors import UserError
from robot_rl.runs.settings import default_tree, resolve
from robot_rl.settings.tree import override

DT = 0.005
DEFAULT = np.tile([0.0, 0.9, -1.8], 4)
DELAY = {"edges": [0.004, 0.006, 0.010], "counts": [1, 1]}
JITTER = {"edges": [-0.001, 0.0, 0.003], "counts": [3, 1]}


@pytest.fixture
def latency_file(tmp_path):
    """write(**changes): a file of robot-rl latency with some keys changed."""

    def write(**changes):
        data = {"format": "robot_rl.latency", "version": 1, "delay_s": DELAY, "jitter_s": JITTER} | changes
        path = tmp_path / "latency.json"
        path.write_text(json.dumps(data))
        return str(path)

    return write


def test_quantiles_are_linear_within_a_bin():
    """Two bins of one value each: a quarter is in the middle of the first, three quarters in that of the second."""
    found = quantiles(DELAY["edges"], DELAY["counts"])
    assert len(found) == QUANTILES == 33
    np.testing.assert_allclose([found[k] for k in (0, 8, 16, 24, 32)], [0.004, 0.005, 0.006, 0.008, 0.010], rtol=1e-12)


def test_an_empty_bin_is_jumped_over():
    found = quantiles([0.0, 1.0, 2.0, 3.0], [1, 0, 1])
    assert found[16] == 1.0
    assert found[17] > 2.0


def test_a_file_gives_both_distributions(latency_file):
    delay, jitter = read_latency(latency_file())
    assert (delay[0], delay[-1]) == (0.004, 0.010)
    assert (jitter[0], jitter[24], jitter[-1]) == (-0.001, 0.0, 0.003)


def test_a_report_of_the_binary_is_read_too(tmp_path):
    """All commands came 2 to 4 ms after their state, states 1 ms late at most: the median is the delay."""
    state_to_command = {"unit": "us", "count": 100, "buckets": [[2000, 4000, 100]]}
    state_jitter = {"unit": "us", "count": 100, "buckets": [[0, 1000, 100]]}
    path = tmp_path / "report.json"
    path.write_text(json.dumps({"latencies": {"state_to_command": state_to_command, "state_jitter": state_jitter}}))
    delay, jitter = read_latency(str(path))
    assert delay == pytest.approx([0.0035] * QUANTILES, abs=2e-5)
    assert jitter[0] == pytest.approx(-0.0015, abs=5e-5)
    assert jitter[16] == pytest.approx(0.0, abs=5e-5)
    assert jitter[-1] == pytest.approx(0.0015, abs=5e-5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": "mcap"}, "is not a file of robot-rl latency"),
        ({"version": 2}, "version=2"),
        ({"delay_s": None}, "delay_s: must hold 'edges' and 'counts'"),
        ({"delay_s": {"edges": [0.0, 1.0, 0.5], "counts": [1, 1]}}, "delay_s.edges: must be ascending"),
        ({"delay_s": {"edges": [-0.1, 0.5], "counts": [1]}}, "is outside [0, 1] s"),
        ({"jitter_s": {"edges": [0.0, 3.0], "counts": [1]}}, "is outside [-1, 1] s"),
        ({"jitter_s": {"edges": [0.0, 0.1], "counts": [0]}}, "jitter_s.counts: must be whole numbers"),
        ({"jitter_s": {"edges": [0.0, 0.1], "counts": [True]}}, "jitter_s.counts: must be whole numbers"),
        ({"latencies": {}}, "latencies.state_to_command must be a histogram"),
    ],
)
def test_a_wrong_file_is_named_in_a_line(changes, words, latency_file):
    with pytest.raises(ValueError, match=r"randomize.latency_from=") as caught:
        read_latency(latency_file(**changes))
    assert words in str(caught.value)


def test_a_file_that_is_not_there_or_no_json_is_named(tmp_path, capsys):
    (tmp_path / "noise").write_bytes(b"\x89MCAP")
    for name, words in (("none.json", "no such file"), ("noise", "is not JSON")):
        assert main(["train", "task=go2_flat", f"randomize.latency_from={tmp_path / name}"]) == 2
        line = capsys.readouterr().err
        assert words in line
        assert line.count("\n") == 1


def test_a_run_keeps_the_figures_and_needs_the_file_no_more(latency_file, tmp_path):
    path = latency_file()
    cfg = resolve(override(default_tree("go2_flat", "cpu"), {"randomize.latency_from": path}))
    assert {name: value for name, value in cfg.tree["randomize"].items() if value} == {"latency_read": path}
    (tmp_path / "latency.json").unlink()
    again = resolve(cfg.tree)
    delay, jitter = quantiles(**DELAY), quantiles(**JITTER)
    for made in (cfg, again):
        assert made.task.actions.actuator.delay_quantiles_s == delay
        assert made.task.actions.actuator.jitter_quantiles_s == jitter


def test_a_delay_beyond_the_history_is_refused(latency_file):
    path = latency_file(delay_s={"edges": [0.2, 0.3], "counts": [1]})
    cfg = resolve(override(default_tree("go2_flat", "cpu"), {"randomize.latency_from": path, "num_envs": 1}))
    with pytest.raises(UserError, match=r"0.303 s with the measured delays are \d+ substeps .* set delay_history to"):
        cfg.make_env()


@pytest.mark.parametrize(
    ("field", "value"),
    [("delay_quantiles_s", (0.1,)), ("delay_quantiles_s", (0.2, 0.1)), ("jitter_quantiles_s", (0.0, float("nan")))],
)
def test_quantiles_that_are_no_distribution_are_refused(field, value):
    with pytest.raises(ValueError, match=rf"actuator.{field}="):
        PositionPd(**{field: value})


def test_each_world_draws_its_delay_at_a_reset_and_keeps_it(go2):
    """7.5 ms are one and a half substeps: half of the worlds get one, half two; and on average it is right."""
    env = go2(ExplicitPd(delay_quantiles_s=(0.0075, 0.0075)), num_envs=512)
    steps = env.state.delay_steps.numpy().copy()
    assert set(steps) == {1, 2}
    assert abs(steps.mean() - 1.5) < 0.1
    for _ in range(3):
        env.step(torch.zeros(512, 12))
        assert (env.state.delay_steps.numpy() == steps).all()
    env.reset()
    assert (env.state.delay_steps.numpy() != steps).any()


@pytest.mark.parametrize(
    ("actuator", "engine", "worlds"),
    [
        (PositionPd, "mujoco", 64),
        pytest.param(ExplicitPd, "mujoco", 64, marks=pytest.mark.long),
        pytest.param(PositionPd, "mujoco_warp", 8, marks=pytest.mark.long),
    ],
)
def test_jitter_varies_from_step_to_step_and_is_exact(actuator, engine, worlds, go2, formula):
    """A target a substep; the torque of each is the formula's with the target as many substeps ago as drawn for it."""
    quantiles_s = {"delay_quantiles_s": (0.0, 2 * DT), "jitter_quantiles_s": (0.0, 2 * DT)}
    env = go2(actuator(**quantiles_s, delay_s=(DT, DT)), num_envs=worlds, sim={"decimation": 1}, engine=engine)
    rng, targets, drawn = np.random.default_rng(0), [], []
    for n in range(24):
        actions = torch.from_numpy(rng.uniform(-0.3, 0.3, (worlds, 12)).astype(np.float32))
        targets.append(DEFAULT + 0.5 * actions.numpy())
        steps = env.state.delay_steps.numpy().copy()
        drawn.append(steps)
        pos, vel = env.state.qpos[:, 7:].numpy().copy(), env.state.qvel[:, 6:].numpy().copy()
        env.step(actions)
        late = [targets[n - k][i] if n >= k else DEFAULT for i, k in enumerate(steps)]
        np.testing.assert_allclose(env.state.joint_torque.numpy(), formula(np.array(late), pos, vel), atol=1e-3)
    drawn = np.array(drawn)
    assert drawn.min() == 1
    assert drawn.max() == 5
    assert (np.ptp(drawn, axis=0) > 0).all()
    if worlds == 64:
        assert abs(drawn.mean() - 3.0) < 0.15  # 1 always, 1 of the world's delay and 1 of the jitter on average
        assert np.std(drawn.mean(axis=0)) > 0.4  # worlds differ: part of their delay stays

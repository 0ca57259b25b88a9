"""rsl_rl's own runner as the baseline: our metrics and checkpoints, its arithmetic."""

import os
import signal
from dataclasses import fields, replace

import pytest
import torch

from robot_rl.errors import Interrupted, UserError
from robot_rl.learn.algorithms.ppo.config import PPOCfg, PPOLearnerCfg
from robot_rl.learn.algorithms.rsl_rl.config import RslRlLearnerCfg
from robot_rl.learn.algorithms.rsl_rl.runner import RslRlRunner, rsl_rl_cfg
from robot_rl.learn.checkpoints.checkpoint import list_checkpoints
from robot_rl.learn.make_trainer import make_trainer
from robot_rl.learn.policy import make_policy
from robot_rl.learn.trainer import Trainer
from robot_rl.metrics.writers import read_metrics
from robot_rl.performance.learner import EqualPair
from robot_rl.settings import NetworkCfg


def settings_of(cfg):
    return {field.name: getattr(cfg, field.name) for field in fields(cfg)}


@pytest.fixture
def cfg(small_cfg):
    return RslRlLearnerCfg(**settings_of(small_cfg) | {"name": "rsl_rl"})


@pytest.mark.long
def test_it_learns_and_is_kept_as_ours(make_point_env, cfg, tmp_path, capsys):
    runner = RslRlRunner(make_point_env(), cfg, run_dir=tmp_path)
    last = runner.train(40)
    assert last["episode/return"] > -1.4
    assert [path.name for path in list_checkpoints(tmp_path)] == ["000032", "000034", "000036", "000038", "000040"]
    rows = read_metrics(tmp_path)
    assert [row["iteration"] for row in rows] == list(range(1, 41))
    assert rows[0].keys() >= {"loss/value", "loss/surrogate", "policy/std", "perf/simulate_s", "episode/return"}
    obs = make_point_env().get_observations()
    with torch.no_grad():
        torch.testing.assert_close(make_policy(tmp_path)(obs), runner.runner.alg.actor(obs))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints", "metrics.jsonl", "tb"]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("symmetry", ["augment", "network"])
def test_symmetry_becomes_mirrored_samples(make_point_env, cfg, tmp_path, symmetry):
    runner = RslRlRunner(make_point_env(), replace(cfg, symmetry=symmetry), run_dir=tmp_path)
    assert runner.train(2)["loss/symmetry"] >= 0.0
    assert runner.cfg.symmetry == "augment"
    assert make_policy(tmp_path).meta["learner"]["symmetry"] == "augment"


def test_resuming(make_point_env, cfg, tmp_path):
    first = RslRlRunner(make_point_env(), cfg, run_dir=tmp_path)
    first.train(2)
    second = RslRlRunner(make_point_env(), cfg, run_dir=tmp_path, seed=7)
    second.load(first.checkpoint)
    before, after = first.networks() | first.state(), second.networks() | second.state()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert second.train(4)["iteration"] == 4


def test_its_checkpoint_starts_our_learner(make_point_env, cfg, tmp_path):
    first = RslRlRunner(make_point_env(), cfg, run_dir=tmp_path)
    first.train(1)
    second = Trainer(make_point_env(), replace(cfg, name="ppo"))
    second.load(first.checkpoint, weights_only=True)
    assert torch.equal(second.actor.distribution.log_std, first.actor.distribution.log_std)


def test_ctrl_c(make_point_env, cfg, tmp_path):
    runner = RslRlRunner(
        make_point_env(), cfg, run_dir=tmp_path, observer=lambda row: os.kill(os.getpid(), signal.SIGINT)
    )
    with pytest.raises(Interrupted) as caught:
        runner.train(10)
    assert caught.value.iteration in (1, 2)
    assert caught.value.checkpoint.is_dir()


def test_a_step_size_that_falls_linearly(make_point_env, cfg):
    """As with our learner: the step size of an iteration by the share of the training before it."""
    rates = {}
    for name in ("ppo", "rsl_rl"):
        linear = replace(cfg, name=name, ppo=PPOCfg(schedule="linear", learning_rate=1e-3))
        rows = []
        make_trainer(make_point_env(), linear, observer=rows.append).train(4)
        rates[name] = [row["policy/learning_rate"] for row in rows]
    assert rates["rsl_rl"] == pytest.approx([1e-3, 0.75e-3, 0.5e-3, 0.25e-3])
    assert rates["ppo"] == pytest.approx(rates["rsl_rl"])


def test_what_it_does_not_know_is_refused():
    with pytest.raises(UserError, match=r"ppo\.max_learning_rate: rsl_rl has"):
        rsl_rl_cfg(PPOLearnerCfg(ppo=PPOCfg(max_learning_rate=2e-3)), None, "cpu")


@pytest.mark.parametrize("clip_value_loss", [True, False])
def test_equal_arithmetic(clip_value_loss):
    """One update of all samples at once: the same losses, weights, step size and normalizers as rsl_rl's."""
    network = NetworkCfg(hidden=(32, 16), output_gain=0.5)
    ppo = PPOCfg(epochs=3, minibatches=1, clip_value_loss=clip_value_loss, max_grad_norm=0.7, desired_kl=1e-3)
    pair = EqualPair(PPOLearnerCfg(num_steps=6, actor=network, critic=network, ppo=ppo), num_envs=32)
    ours = {name: float(value) for name, value in pair.run_ours().items()}
    theirs = pair.run_theirs()
    assert ours["loss/value"] == pytest.approx(theirs["value"], rel=1e-5)
    assert ours["loss/surrogate"] == pytest.approx(theirs["surrogate"], abs=1e-6)
    assert ours["loss/entropy"] == pytest.approx(theirs["entropy"], rel=1e-6)
    assert float(pair.ours.optimizer.learning_rate) == pytest.approx(pair.theirs.learning_rate)
    for mine, other in ((pair.ours.actor, pair.theirs.actor), (pair.ours.critic, pair.theirs.critic)):
        for a, b in zip(mine.body.parameters(), other.mlp.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(mine.normalizer.mean, other.obs_normalizer._mean.view(-1))
        torch.testing.assert_close(mine.normalizer.var, other.obs_normalizer._var.view(-1))
    torch.testing.assert_close(pair.ours.actor.distribution.log_std, pair.theirs.actor.distribution.log_std_param)


@pytest.mark.gpu
def test_equal_arithmetic_on_cuda():
    """The same update on the GPU, by PyTorch's own operations, as on the CPU by the fused ones."""
    network = NetworkCfg(hidden=(32, 16), output_gain=0.5)
    cfg = PPOLearnerCfg(num_steps=6, actor=network, critic=network, ppo=PPOCfg(epochs=3, minibatches=1))
    rows = []
    for device in ("cpu", "cuda"):
        pair = EqualPair(cfg, num_envs=32, device=device)
        rows.append({name: float(value) for name, value in pair.run_ours().items()})
        theirs = pair.run_theirs()
        assert rows[-1]["loss/value"] == pytest.approx(theirs["value"], rel=1e-4)
    assert rows[1]["loss/entropy"] == pytest.approx(rows[0]["loss/entropy"], rel=1e-4)

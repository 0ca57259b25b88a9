"""Training in a precision: the ratio of the first minibatch, resuming, weights of another precision, refusals."""

from dataclasses import replace

import pytest
import torch

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.flashsac.config import FlashSACLearnerCfg
from robot_rl.learn.algorithms.rsl_rl.config import RslRlLearnerCfg
from robot_rl.learn.policy import make_policy
from robot_rl.learn.precision.conversion import layers_of
from robot_rl.learn.trainer import Trainer
from robot_rl.settings import MemoryCfg, PrecisionCfg, from_dict
from tests.covering import chosen
from tests.unit.learn.apart import assert_local_run, assert_resumed
from tests.unit.learn.precision.actors import MODES


def precise(cfg, mode, **settings):
    return replace(cfg, precision=PrecisionCfg(mode=mode, **settings))


@pytest.mark.parametrize("memory", ["none", "gru"])
@pytest.mark.parametrize("symmetry", chosen(["none", "network", "augment"], "network"))
@pytest.mark.parametrize("mode", MODES)
def test_the_first_ratio_is_exactly_one(make_point_env, small_cfg, mode, symmetry, memory):
    if (symmetry, memory) == ("augment", "gru"):
        return
    cfg = replace(precise(small_cfg, mode), symmetry=symmetry)
    cfg.actor.memory = cfg.critic.memory = MemoryCfg(kind=memory, hidden=16)
    runner = Trainer(make_point_env(num_envs=77), cfg)
    for _ in range(3):
        rollout = runner.collect()
        statistics = runner.algorithm.update(rollout, 0.0)
        assert float(statistics["precision/log_ratio_max"]) == 0.0
    steps = [float(layer.step) for layer in layers_of(runner.actor)]
    assert mode == "bf16" or len(set(steps)) > 1
    assert all(layer.fitted == 3.0 for layer in layers_of(runner.actor) if mode != "bf16")


def test_rollouts_in_another_precision_show_in_the_ratio(make_point_env, small_cfg):
    runner = Trainer(make_point_env(), precise(small_cfg, "bf16", rollout="int8"))
    statistics = runner.algorithm.update(runner.collect(), 0.0)
    assert 1e-6 < float(statistics["precision/log_ratio"]) < 0.1


def test_float32_says_nothing_of_precision(make_point_env, small_cfg):
    runner = Trainer(make_point_env(), small_cfg)
    assert not [name for name in runner.algorithm.update(runner.collect(), 0.0) if "precision" in name]
    assert not [name for name in runner.actor.state_dict() if "arithmetic" in name]


@pytest.mark.parametrize("mode", chosen(MODES, "int8"))
def test_it_learns(make_point_env, small_cfg, mode):
    def distance(runner):
        env, policy = make_point_env(num_envs=256), runner.actor
        for _ in range(9):
            env.step(policy.mean(env.get_observations()["actor"]))
        return float(env.pos.abs().mean())

    cfg = replace(precise(small_cfg, mode), max_iterations=40)
    runner = Trainer(make_point_env(num_envs=128), cfg)
    with torch.no_grad():
        before = distance(runner)
    runner.train(40)
    with torch.no_grad():
        assert distance(runner) < 0.5 * before


def test_grids_are_in_checkpoints_and_in_the_policy_of_a_run(make_point_env, small_cfg, tmp_path):
    run = Trainer(make_point_env(), precise(small_cfg, "int8"), run_dir=tmp_path)
    run.train(2)
    again = Trainer(make_point_env(), precise(small_cfg, "int8"), seed=3)
    again.load(run.checkpoint, fresh_worlds=True)
    for mine, theirs in (
        (run.actor, again.actor),
        (run.critic, again.critic),
        (run.actor, make_policy(tmp_path).actor),
    ):
        for one, other in zip(layers_of(mine), layers_of(theirs), strict=True):
            assert one.format is other.format
            assert torch.equal(one.step, other.step)
            assert torch.equal(one.fitted, other.fitted)


@pytest.mark.parametrize("mode", chosen(["int8", "bf16"], "int8"))
def test_a_simulator_apart_acts_in_it_and_is_resumed(make_point_env, small_cfg, tmp_path, mode):
    assert_local_run(make_point_env, precise(small_cfg, mode), tmp_path / "local", iterations=3)
    assert_resumed(make_point_env, precise(small_cfg, mode), tmp_path / "resumed", iterations=4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"mode": "bf16"},
            r"^precision=bf16: checkpoint 000002 was trained with int8; continue with that, or begin",
        ),
        ({"mode": "fp32"}, r"^precision=fp32: checkpoint 000002 was trained with int8"),
        ({"mode": "int8", "keep": ("actor.1",)}, r"^precision.keep=\[actor.1\]: .* was trained with \[\]"),
        ({"mode": "int8", "last": False}, r"^precision.last=false: .* was trained with true"),
    ],
)
def test_a_run_does_not_go_on_in_another_precision(make_point_env, small_cfg, tmp_path, settings, message):
    run = Trainer(make_point_env(), precise(small_cfg, "int8"), run_dir=tmp_path)
    run.train(2)
    other = Trainer(make_point_env(), replace(small_cfg, precision=PrecisionCfg(**settings)))
    with pytest.raises(UserError, match=message):
        other.load(run.checkpoint)


@pytest.mark.parametrize(("before", "after"), [("fp32", "int8"), ("int8", "fp32"), ("int8", "bf16")])
def test_another_run_may_begin_from_its_weights(make_point_env, small_cfg, tmp_path, before, after):
    run = Trainer(make_point_env(), precise(small_cfg, before), run_dir=tmp_path)
    run.train(2)
    other = Trainer(make_point_env(), precise(small_cfg, after), seed=5)
    other.load(run.checkpoint, weights_only=True)
    for mine, theirs in zip(other.actor.parameters(), run.actor.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PrecisionCfg(mode="int9"), "mode=int9: must be one of fp32, bf16, fp8, int8; did you mean 'int8'"),
        (lambda: PrecisionCfg(mode="int8", keep=("hidden.2",)), "keep=hidden.2: is not a layer; its name begins with"),
        (lambda: PrecisionCfg(keep=("actor.0",)), r"keep=\[actor.0\]: has no effect with mode=fp32"),
        (lambda: PrecisionCfg(first=False), "first=false: has no effect with mode=fp32"),
        (
            lambda: FlashSACLearnerCfg(precision=PrecisionCfg(mode="int8")),
            "precision=int8: learner=flashsac has networks without such a form; use learner=ppo, or fp32",
        ),
        (lambda: RslRlLearnerCfg(precision=PrecisionCfg(mode="bf16")), "precision=bf16: learner=rsl_rl has networks"),
    ],
)
def test_bad_settings_are_one_line(make, message):
    with pytest.raises(UserError, match=message):
        make()


def test_a_converter_and_a_precision_exclude_each_other(small_cfg):
    with pytest.raises(UserError, match="precision=int8 and converter=a:b: both replace how layers compute"):
        replace(small_cfg, converter="a:b", precision=PrecisionCfg(mode="int8"))


def test_a_build_without_e4m3_names_what_would_work(monkeypatch, make_point_env, small_cfg):
    monkeypatch.delattr(torch, "float8_e4m3fn")
    with pytest.raises(UserError, match="precision=fp8: this PyTorch lacks float8_e4m3fn; use precision=int8 or bf16"):
        Trainer(make_point_env(), precise(small_cfg, "fp8"))


def test_settings_there_and_back():
    cfg = PrecisionCfg(mode="fp8", keep=("actor.1",), rollout="int8")
    assert from_dict(PrecisionCfg, {"mode": "fp8", "keep": ["actor.1"], "rollout": "int8"}) == cfg
    assert PrecisionCfg(mode="fp8", rollout="fp8").rollout == ""

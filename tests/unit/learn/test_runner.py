"""The training loop on a task small enough to know the answer."""

import math
import os
import signal
import time
from dataclasses import fields, replace

import pytest
import torch

from robot_rl.errors import Interrupted, UserError
from robot_rl.learn.algorithms.ppo.config import PPOCfg
from robot_rl.learn.algorithms.rsl_rl.config import RslRlLearnerCfg
from robot_rl.learn.algorithms.rsl_rl.runner import RslRlRunner
from robot_rl.learn.checkpoints.checkpoint import list_checkpoints, load_checkpoint
from robot_rl.learn.make_trainer import make_trainer
from robot_rl.learn.policy import make_policy
from robot_rl.learn.trainer import Trainer
from robot_rl.metrics.writers import read_metrics
from robot_rl.settings import NetworkCfg
from tests.covering import chosen

EXPECTED = {
    "iteration",
    "env_steps",
    "time_s",
    "perf/steps_per_s",
    "perf/simulate_s",
    "perf/infer_s",
    "perf/learn_s",
    "perf/other_s",
    "loss/value",
    "loss/surrogate",
    "loss/entropy",
    "loss/kl",
    "policy/learning_rate",
    "policy/std",
    "episode/return",
    "episode/length_s",
}


def settings_of(cfg):
    return {field.name: getattr(cfg, field.name) for field in fields(cfg)}


def untimed(row):
    return {key: value for key, value in row.items() if not key.startswith("perf/") and key != "time_s"}


@pytest.mark.parametrize("symmetry", chosen(["none", "augment", "network"], "network"))
def test_it_learns(make_point_env, small_cfg, symmetry):
    """From about -7 to what is nearly the best: two steps of 0.5 to the origin, and then stay."""
    rows = []
    runner = Trainer(make_point_env(), replace(small_cfg, symmetry=symmetry), observer=rows.append)
    last = runner.train(40)
    assert rows[0]["episode/return"] < -5.0
    assert last["episode/return"] > -1.2
    assert last is rows[-1]
    assert last["episode/length_s"] == pytest.approx(1.0)


def test_rows_hold_what_is_promised(make_point_env, small_cfg):
    row = Trainer(make_point_env(), small_cfg).train(2)
    assert row.keys() >= EXPECTED
    assert row["iteration"] == 2
    assert row["env_steps"] == 2 * 8 * 64
    parts = sum(row[f"perf/{part}_s"] for part in ("simulate", "infer", "learn", "other"))
    assert row["perf/steps_per_s"] == pytest.approx(8 * 64 / parts, rel=1e-3)
    assert row["distance"] > 0.0
    assert all(math.isfinite(value) for value in row.values())


@pytest.mark.parametrize("symmetry", ["none", "augment", "network"])
def test_same_seed_same_bits(make_point_env, small_cfg, symmetry):
    rows, weights = [], []
    for seed in (3, 3, 4):
        torch.rand(1)  # The global stream must not matter.
        runner = Trainer(make_point_env(), replace(small_cfg, symmetry=symmetry), seed=seed)
        rows.append(untimed(runner.train()))
        weights.append([p.detach() for p in (*runner.actor.parameters(), *runner.critic.parameters())])
    assert rows[0] == rows[1]
    assert all(torch.equal(a, b) for a, b in zip(weights[0], weights[1], strict=True))
    assert rows[0] != rows[2]


def test_final_observations_reach_the_returns(make_point_env, small_cfg):
    """The critic sees the episode's age, so the value after a reset is not that of the final observation."""
    returns = []
    for bootstrap in ("final", "state"):
        cfg = replace(small_cfg, ppo=PPOCfg(bootstrap=bootstrap), stagger_episodes=False)
        runner = Trainer(make_point_env(num_envs=4, episode=4), cfg)
        runner.collect()
        rollout = runner.collector.rollout
        assert rollout.has_final_obs
        assert rollout.time_out[3].all()
        assert rollout.final_obs[3, :, 1].tolist() == [1.0] * 4
        assert rollout.critic_obs[4, :, 1].tolist() == [0.0] * 4
        returns.append(runner.algorithm.make_batch(rollout).returns.view(8, 4))
        with torch.no_grad():
            final = runner.critic.value(rollout.final_obs[3])
    torch.testing.assert_close(returns[0][3], rollout.reward[3] + 0.99 * final)
    assert float((returns[0][3] - returns[1][3]).abs().max()) > 1e-3
    assert torch.equal(returns[0][7], returns[0][7])


def test_without_final_observations_a_timeout_bootstraps_from_the_state(make_point_env, small_cfg):
    runner = Trainer(make_point_env(final_obs=False), small_cfg)
    runner.collect()
    assert not runner.collector.rollout.has_final_obs
    assert math.isfinite(runner.train(2)["loss/value"])


def test_episodes_start_staggered(make_point_env, small_cfg):
    env = make_point_env(episode=1000)
    Trainer(env, small_cfg).train(1)
    assert len(set(env.episode_length_buf.tolist())) > 30
    env = make_point_env(episode=1000)
    Trainer(env, replace(small_cfg, stagger_episodes=False)).train(1)
    assert set(env.episode_length_buf.tolist()) == {8}


def test_checkpoints_and_metrics_are_written(make_point_env, small_cfg, tmp_path):
    runner = Trainer(make_point_env(), replace(small_cfg, max_iterations=5), run_dir=tmp_path)
    runner.train()
    assert [path.name for path in list_checkpoints(tmp_path)] == ["000002", "000004", "000005"]
    assert runner.checkpoint == tmp_path / "checkpoints" / "000005"
    assert [row["iteration"] for row in read_metrics(tmp_path)] == [1, 2, 3, 4, 5]
    assert list((tmp_path / "tb").glob("events*"))


def test_resuming_restores_everything(make_point_env, small_cfg, tmp_path):
    first = Trainer(make_point_env(), small_cfg, run_dir=tmp_path)
    first.train(3)
    second = Trainer(make_point_env(), small_cfg, run_dir=tmp_path, seed=9)
    second.load(first.checkpoint)
    assert (second.iteration, second.env_steps, second.time_s) == (3, first.env_steps, first.time_s)
    before, after = first.networks() | first.state(), second.networks() | second.state()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert float(after["optimizer.step"]) == 60.0
    second.train(4)
    assert [row["iteration"] for row in read_metrics(tmp_path)] == [1, 2, 3, 4]


def test_a_resumed_learner_goes_on_to_the_bit(make_point_env, small_cfg, tmp_path):
    """Given the environment's state, too, the resumed run is the run."""
    env = make_point_env()
    whole = Trainer(env, small_cfg, run_dir=tmp_path)
    whole.train(2)
    other = make_point_env()
    other.pos, other.episode_length_buf = env.pos.clone(), env.episode_length_buf.clone()
    other.generator.set_state(env.generator.get_state())
    resumed = Trainer(other, small_cfg, seed=5)
    resumed.load(whole.checkpoint)
    expected, found = untimed(whole.train(3)), untimed(resumed.train(3))
    for key in ("loss/value", "loss/surrogate", "loss/kl", "policy/std", "policy/learning_rate"):
        assert found[key] == expected[key]
    for a, b in zip(whole.actor.parameters(), resumed.actor.parameters(), strict=True):
        assert torch.equal(a, b)


def test_starting_from_weights_begins_from_iteration_zero(make_point_env, small_cfg, tmp_path):
    first = Trainer(make_point_env(), small_cfg, run_dir=tmp_path)
    first.train(2)
    second = Trainer(make_point_env(), small_cfg, seed=9)
    second.load(first.checkpoint, weights_only=True)
    assert second.iteration == 0
    assert torch.equal(second.actor.normalizer.mean, first.actor.normalizer.mean)
    assert float(second.algorithm.optimizer.state_dict()["step"]) == 0.0
    assert all(torch.equal(a, b) for a, b in zip(first.actor.parameters(), second.actor.parameters(), strict=True))
    second.train(1)  # The loaded weights are the ones that are stepped.
    assert not torch.equal(second.actor.body.layers[0].weight, first.actor.body.layers[0].weight)


def test_another_architecture_is_refused_with_both_shapes(make_point_env, small_cfg, tmp_path):
    first = Trainer(make_point_env(), small_cfg, run_dir=tmp_path)
    first.train(1)
    second = Trainer(make_point_env(), replace(small_cfg, actor=NetworkCfg(hidden=(16, 32))))
    with pytest.raises(UserError, match=r"'actor.body.layers.0.weight' has shape \(32, 1\), must be \(16, 1\)"):
        second.load(first.checkpoint)


@pytest.mark.parametrize("symmetry", ["none", "network"])
def test_the_policy_of_a_run(make_point_env, small_cfg, tmp_path, symmetry):
    runner = Trainer(make_point_env(), replace(small_cfg, symmetry=symmetry), run_dir=tmp_path)
    runner.train(2)
    policy = make_policy(tmp_path)
    obs = make_point_env().get_observations()
    with torch.no_grad():
        assert torch.equal(policy(obs), runner.actor.mean(obs["actor"]))
    assert policy.meta["iteration"] == 2
    assert make_policy(tmp_path, tmp_path / "checkpoints" / "000002").path.name == "000002"


def test_an_observer_can_end_it(make_point_env, small_cfg, tmp_path):
    rows = []
    observers = [rows.append, lambda row: row["iteration"] == 3]
    runner = Trainer(make_point_env(), small_cfg, run_dir=tmp_path, observer=observers)
    assert runner.train(10)["iteration"] == 3
    assert len(rows) == 3
    assert runner.checkpoint.name == "000003"


def test_ctrl_c_finishes_the_iteration_and_saves(make_point_env, small_cfg, tmp_path):
    def press(row):
        if row["iteration"] == 3:
            os.kill(os.getpid(), signal.SIGINT)

    runner = Trainer(make_point_env(), small_cfg, run_dir=tmp_path, observer=press)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted) as caught:
        runner.train(10)
    assert (caught.value.iteration, caught.value.checkpoint.name) == (3, "000003")
    assert load_checkpoint(caught.value.checkpoint)[1]["iteration"] == 3
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_second_ctrl_c_does_not_wait(make_point_env, small_cfg, tmp_path):
    env = make_point_env()
    step, count = env.step, []

    def impatient(actions):
        count.append(1)
        if len(count) in (20, 21):  # Within the third iteration.
            os.kill(os.getpid(), signal.SIGINT)
        return step(actions)

    env.step = impatient
    with pytest.raises(Interrupted) as caught:
        Trainer(env, small_cfg, run_dir=tmp_path).train(10)
    assert (caught.value.iteration, caught.value.checkpoint.name) == (2, "000002")
    assert len(count) == 21


@pytest.mark.parametrize(("notice_s", "saved"), [(0.02, 2), (0.0, 3)])
def test_an_iteration_that_outlasts_a_notice_is_given_up_and_the_state_before_it_saved(
    make_point_env, small_cfg, tmp_path, notice_s, saved
):
    env = make_point_env()
    step, count = env.step, []

    def slow(actions):
        count.append(1)
        if len(count) == 2 * small_cfg.num_steps + 1:  # The first step of the third iteration.
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
        return step(actions)

    env.step = slow
    runner = Trainer(env, replace(small_cfg, notice_s=notice_s), run_dir=tmp_path)
    with pytest.raises(Interrupted) as caught:
        runner.train(5)
    assert (caught.value.iteration, caught.value.checkpoint.name, caught.value.saved) == (saved, f"{saved:06d}", True)
    tensors = load_checkpoint(caught.value.checkpoint)[0]
    for name, weight in runner.actor.state_dict().items():
        assert torch.equal(tensors[f"actor.{name}"], weight), name
    runner.train(5)
    assert [row["iteration"] for row in read_metrics(tmp_path)] == [1, 2, 3, 4, 5]


def test_nothing_but_copies_of_the_environments_tensors_is_kept(make_point_env, small_cfg):
    """The observations that a step returns are overwritten two steps later, as a real environment does."""
    env = make_point_env()
    step, given = env.step, []

    def reusing(actions):
        result = step(actions)
        given.append(result[0])
        if len(given) > 2:
            for tensor in given[-3].values():
                tensor.fill_(math.nan)
        return result

    env.step = reusing
    runner = Trainer(env, small_cfg)
    runner.collect()
    assert bool(runner.collector.rollout.critic_obs.isfinite().all())
    assert bool(runner.collector.rollout.actor_obs.isfinite().all())


def test_quarantined_worlds_do_not_spoil_the_update(make_point_env, small_cfg):
    env = make_point_env()
    step = env.step

    def sick(actions):
        obs, reward, done, extras = step(actions)
        obs["actor"][5], obs["critic"][5], reward[5] = math.nan, math.nan, math.nan
        extras["valid"] = torch.arange(64) != 5
        return obs, reward, done, extras

    env.step = sick
    runner = Trainer(env, small_cfg)
    row = runner.train(3)
    assert math.isfinite(row["loss/value"])
    assert all(bool(p.isfinite().all()) for p in runner.actor.parameters())


@pytest.mark.parametrize("rubbish", [math.nan, 1e6])
def test_training_is_the_same_whatever_a_quarantined_world_leaves(make_point_env, small_cfg, rubbish):
    """One world in each step is quarantined: its reward and its last observation are masked, not merely finite."""

    def train(left_behind):
        env = make_point_env()
        step, count = env.step, []

        def sick(actions):
            obs, reward, done, extras = step(actions)
            count.append(None)
            bad = torch.arange(64) == 7 * len(count) % 64
            final = obs.clone()
            for tensor in final.values():
                tensor[bad] = left_behind
            extras = {**extras, "valid": ~bad, "final_obs": final}
            return obs, torch.where(bad, left_behind, reward), done | bad, extras

        env.step = sick
        runner = Trainer(env, small_cfg)
        runner.train(3)
        return [*runner.actor.state_dict().values(), *runner.critic.state_dict().values()]

    masked, spoilt = train(0.0), train(rubbish)
    assert all(bool(tensor.isfinite().all()) for tensor in spoilt)
    assert all(torch.equal(one, other) for one, other in zip(masked, spoilt, strict=True))


def test_a_loss_that_is_not_finite_stops_before_it_is_saved(make_point_env, small_cfg, tmp_path):
    env = make_point_env()
    step = env.step

    def without_reward(actions):
        obs, reward, done, extras = step(actions)
        return obs, reward * math.nan, done, extras

    env.step = without_reward
    with pytest.raises(FloatingPointError, match="not finite in iteration 1"):
        Trainer(env, small_cfg, run_dir=tmp_path).train()
    assert list_checkpoints(tmp_path) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actor_groups": ("actr",)}, "actor_groups: the environment has no group 'actr', did you mean 'actor'"),
        ({"critic_groups": ("critic", "height")}, "critic_groups: the environment has no group 'height'"),
    ],
)
def test_groups_that_do_not_exist(make_point_env, small_cfg, change, message):
    with pytest.raises(UserError, match=message):
        Trainer(make_point_env(), replace(small_cfg, **change))


def test_groups_are_joined(make_point_env, small_cfg):
    runner = Trainer(make_point_env(), replace(small_cfg, critic_groups=("critic", "actor")))
    assert (runner.dims.actor, runner.dims.critic) == (1, 3)
    assert math.isfinite(runner.train(1)["loss/value"])


def test_symmetry_needs_a_mirror(make_point_env, small_cfg):
    env = make_point_env()
    env.mirror = None
    with pytest.raises(UserError, match="symmetry: 'network' needs an environment with a mirror"):
        Trainer(env, replace(small_cfg, symmetry="network"))


def test_the_runner_is_chosen_by_name(make_point_env, small_cfg):
    assert type(make_trainer(make_point_env(), small_cfg)) is Trainer
    assert (
        type(make_trainer(make_point_env(), RslRlLearnerCfg(**settings_of(small_cfg) | {"name": "rsl_rl"})))
        is RslRlRunner
    )

"""Recorded rollouts, as far as they can be tested without a GPU: the same bits, what is live, what is not recorded."""

from dataclasses import replace

import pytest
import torch
from robot_rl_envs.env import Env
from robot_rl_envs.make import make_env
from robot_rl_envs.task import TorchTerm
from robot_rl_tasks.registry import get_task

from robot_rl.errors import UserError
from robot_rl.learn.algorithm import Snapshot
from robot_rl.learn.algorithms.flashsac.config import FlashSACCfg, FlashSACLearnerCfg
from robot_rl.learn.algorithms.ppo.config import PPOCfg, PPOLearnerCfg
from robot_rl.learn.auxiliaries.auxiliary import RolloutHook
from robot_rl.learn.graphs import RecordedRollout, can_be_recorded, why_not_recorded
from robot_rl.learn.trainer import Trainer
from robot_rl.settings import MemoryCfg, NetworkCfg

from .conftest import Replaying

NETWORK = NetworkCfg(hidden=(16,))


def make(cfg=None, task="cartpole", recorder=None, seed=3):
    cfg = cfg or PPOLearnerCfg(num_steps=5, actor=NETWORK, critic=NETWORK, ppo=PPOCfg(epochs=1, minibatches=2))
    runner = Trainer(make_env(get_task(task), num_envs=8, engine="mujoco", num_threads=1, seed=2), cfg, seed=seed)
    if recorder is not None:
        collector = runner.collector
        collector.recorded = RecordedRollout(runner.env, cfg.num_steps, collector._walk_recorded, recorder)
    return runner


def tensors(runner):
    return {**runner.networks(), **runner.state(), **runner.env.state_dict()}


def assert_same(one, two):
    theirs = tensors(two)
    for name, tensor in tensors(one).items():
        assert torch.equal(tensor, theirs[name]), name


GRU = MemoryCfg(kind="gru", hidden=8)
CASES = {
    "odd": PPOLearnerCfg(num_steps=5, actor=NETWORK, critic=NETWORK, ppo=PPOCfg(epochs=1, minibatches=2)),
    "even": PPOLearnerCfg(num_steps=4, actor=NETWORK, critic=NETWORK, ppo=PPOCfg(epochs=1, minibatches=2)),
    "memory": PPOLearnerCfg(
        num_steps=5,
        actor=replace(NETWORK, memory=GRU),
        critic=replace(NETWORK, memory=GRU),
        ppo=PPOCfg(epochs=1, minibatches=2),
    ),
    "flashsac": FlashSACLearnerCfg(
        num_steps=2,
        flashsac=FlashSACCfg(batch=16, replay=400, warm_up=64, policy_width=16, critic_width=16, bins=11),
    ),
}


@pytest.mark.parametrize("case", list(CASES))
def test_a_replay_is_the_rollout(case):
    """Over several updates, with another policy in each: to the bit, for any number of steps."""
    recorder = Replaying()
    plain, graphed = make(CASES[case]), make(CASES[case], recorder=recorder)
    for _ in range(8):
        expected, found = plain._iterate(100), graphed._iterate(100)
        assert {k: v for k, v in found.items() if not k.startswith(("perf/", "time_s"))} == {
            k: v for k, v in expected.items() if not k.startswith(("perf/", "time_s"))
        }
    assert recorder.recorded == 1
    assert recorder.replays >= 3
    assert_same(plain, graphed)


def test_the_first_rollout_runs_without_a_graph():
    recorder = Replaying()
    runner = make(recorder=recorder)
    runner._iterate(10)
    assert (recorder.recorded, recorder.replays) == (0, 0)
    assert not runner.collector.recorded.is_recorded
    runner._iterate(10)
    assert (recorder.recorded, recorder.replays) == (1, 1)
    assert runner.collector.recorded.is_recorded


def test_what_changes_between_replays_is_read(tmp_path):
    """A live parameter, a loaded checkpoint, and worlds that others stepped in the meantime."""
    runner, plain = make(recorder=Replaying()), make()
    for one in (runner, plain):
        one.run_dir = tmp_path / str(id(one))
        one._iterate(100)
        one._iterate(100)
        path = one.save()
        weights = [name for name in one.env.params() if name.startswith("rewards.") and name.endswith(".weight")]
        one.env.set_param(weights[0], 0.25)
        one._iterate(100)
        one.load(path)
        one.env.step(torch.zeros(8, one.env.num_actions))
        one.collector.leave()
        one._iterate(100)
    assert_same(runner, plain)


def test_a_rollout_keeps_the_deviation_of_its_own_policy():
    """The recorded memory of it is overwritten by the next rollout's."""
    runner = make(recorder=Replaying())
    runner._iterate(100)
    first = runner.collect()
    kept = first.frozen
    before = kept.clone()
    runner.algorithm.update(first, 0.0)
    second = runner.collect()
    assert torch.equal(kept, before)
    assert not torch.equal(second.frozen, before)


def test_where_recording_fails_rollouts_run_without():
    runner, plain = make(recorder=Replaying(fails=True)), make()
    runner._iterate(100)
    plain._iterate(100)
    with pytest.warns(UserWarning, match="operation not permitted when stream is capturing$"):
        runner._iterate(100)
    plain._iterate(100)
    for one in (runner, plain):
        one._iterate(100)
    assert runner.collector.recorded.problem
    assert_same(runner, plain)


def test_a_recording_that_is_required_and_fails_is_refused():
    runner = make(recorder=Replaying(fails=True))
    runner.collector.recorded._is_required = True
    runner._iterate(100)
    with pytest.raises(UserError, match=r"^graph=on: recording a rollout failed: operation not permitted when stream"):
        runner._iterate(100)


class Gpu:
    """What of an environment on a GPU is looked at."""

    device, why_not_recorded = "cuda:0", ""
    recording = rewind = skip = None


def test_why_rollouts_are_not_recorded():
    class Other:
        device = "cuda:0"

    class Own(RolloutHook):
        capturable = True

    env, terms = Gpu(), Gpu()
    terms.why_not_recorded = "the task has terms that are torch functions"
    assert why_not_recorded(env, [], is_tracked=False) == ""
    assert why_not_recorded(env, [Own()], is_tracked=False) == ""
    assert why_not_recorded(env, [Own(), RolloutHook()], is_tracked=False) == "an auxiliary objective acts in rollouts"
    assert why_not_recorded(env, [], is_tracked=True) == "the environment lacks its own pop_metrics()"
    assert why_not_recorded(Other(), [], is_tracked=False) == "the environment cannot be recorded"
    assert why_not_recorded(terms, [], is_tracked=False) == "the task has terms that are torch functions"


def test_a_snapshot_of_its_own_kind_has_to_promise_it():
    class Own(Snapshot):
        def act(self, rollout, t, memory):
            return super().act(rollout, t, memory)

    class Promised(Own):
        capturable = True

    actor = make().actor
    assert can_be_recorded(Snapshot(actor, 0))
    assert not can_be_recorded(Own(actor, 0))
    assert can_be_recorded(Promised(actor, 0))


@pytest.mark.long
def test_an_environment_says_why_its_steps_cannot_be_recorded(monkeypatch):
    env = make_env(get_task("cartpole"), num_envs=2, engine="mujoco")
    assert env.why_not_recorded == "engine=mujoco on cpu has none"
    monkeypatch.setattr(type(env.engine), "capturable", True)
    assert env.why_not_recorded == ""
    task = get_task("cartpole")
    term = TorchTerm(kind="reward", fn=lambda s: s.qpos[:, 0])
    env = Env(replace(task, rewards={**task.rewards, "own": term}), num_envs=2, engine="mujoco")
    assert env.why_not_recorded == "the task has terms that are torch functions"


def test_a_graph_that_is_required_and_impossible_is_refused():
    cfg = replace(CASES["odd"], graph="on")
    with pytest.raises(UserError, match=r"^graph=on: graphs are CUDA's; use graph=auto$"):
        make(cfg)


def test_it_is_off_on_a_cpu_and_where_it_is_not_wanted():
    assert make().collector.recorded is None
    with pytest.raises(UserError, match="graph=never: must be one of"):
        replace(CASES["odd"], graph="never")

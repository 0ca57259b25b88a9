"""overlap=true: the next rollout is simulated while this one is learned from; nothing depends on which is sooner."""

import contextlib
import os
import signal
import time
from concurrent.futures import Future
from dataclasses import replace

import pytest
import torch

from robot_rl.errors import Interrupted, UserError
from robot_rl.learn.algorithms import get_learner
from robot_rl.learn.checkpoints.checkpoint import latest_checkpoint, load_checkpoint
from robot_rl.learn.make_trainer import make_trainer
from robot_rl.learn.rollouts.overlapped import OverlappedRollouts
from robot_rl.learn.trainer import Trainer
from robot_rl.metrics.iteration import describe_overlap, overlap_efficiency
from robot_rl.settings import MemoryCfg
from tests.covering import chosen


def stateful(make_point_env, sleep_s=0.0, **options):
    """A point task that can be saved, whose steps take a while."""

    class StatefulEnv(make_point_env):
        def state_dict(self):
            return {"pos": self.pos, "age": self.episode_length_buf, "draw": self.generator.get_state()}

        def load_state_dict(self, state):
            self.pos = state["pos"].clone()
            self.episode_length_buf.copy_(state["age"])
            self.generator.set_state(state["draw"])

        def step(self, actions):
            time.sleep(sleep_s)
            return super().step(actions)

    return StatefulEnv(**options)


@pytest.fixture(params=["perceptron", "memory"])
def cfg(request, small_cfg):
    cfg = replace(small_cfg, overlap=True, symmetry="none")
    if request.param == "memory":
        memory = MemoryCfg(kind="gru", hidden=8, sequence=4)
        cfg = replace(cfg, actor=replace(cfg.actor, memory=memory), critic=replace(cfg.critic, memory=memory))
    return cfg


def train(env, cfg, folder, iterations=4, rows=None):
    runner = make_trainer(env, cfg, run_dir=folder, observer=None if rows is None else rows.append)
    if folder.is_dir() and any(folder.iterdir()):
        runner.load(latest_checkpoint(folder))
    runner.train(iterations)
    return load_checkpoint(latest_checkpoint(folder))[0]


def test_the_same_bits_whichever_side_is_slower(make_point_env, cfg, tmp_path, monkeypatch):
    quick = train(stateful(make_point_env), cfg, tmp_path / "a")
    slow = train(stateful(make_point_env, sleep_s=0.005), cfg, tmp_path / "b")
    update = Trainer.modules  # Called by every save: time passes while a rollout is in the air.
    monkeypatch.setattr(Trainer, "modules", lambda self: time.sleep(0.02) or update(self))
    late = train(stateful(make_point_env), cfg, tmp_path / "c")
    for other in (slow, late):
        assert all(torch.equal(tensor, other[name]) for name, tensor in quick.items())


@pytest.mark.parametrize("first", chosen([1, 2, 3], 2))
def test_a_resumed_run_is_the_run(make_point_env, cfg, tmp_path, first):
    rows, parts = [], []
    whole = train(stateful(make_point_env), cfg, tmp_path / "whole", rows=rows)
    train(stateful(make_point_env), cfg, tmp_path / "parts", first, parts)
    resumed = train(stateful(make_point_env), cfg, tmp_path / "parts", rows=parts)
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in whole.items())
    assert [row["loss/value"] for row in rows] == [row["loss/value"] for row in parts]


def test_it_goes_on_in_the_same_process(make_point_env, cfg, tmp_path):
    whole = train(stateful(make_point_env), cfg, tmp_path / "whole")
    runner = make_trainer(stateful(make_point_env), cfg, run_dir=tmp_path / "again", observer=lambda row: True)
    for _ in range(4):  # The observer ends each call after one iteration, with a rollout in the air.
        runner.train(4)
    found = load_checkpoint(latest_checkpoint(tmp_path / "again"))[0]
    assert all(torch.equal(tensor, found[name]) for name, tensor in whole.items())


def test_a_rollout_is_one_version_old_but_for_the_first(make_point_env, cfg):
    rows = []
    runner = Trainer(make_point_env(), cfg, observer=rows.append)
    runner.train()
    assert [row["staleness/mean"] for row in rows] == [0.0, 1.0, 1.0, 1.0]
    assert [row["staleness/share_1"] for row in rows] == [0.0, 1.0, 1.0, 1.0]
    assert rows[0]["staleness/effective"] == pytest.approx(1.0, abs=1e-5)
    assert rows[0]["staleness/divergence"] == pytest.approx(0.0, abs=1e-6)
    assert all(row["staleness/divergence"] > 1e-6 for row in rows[1:])


def test_the_policy_that_simulates_is_the_one_before_the_update(make_point_env, cfg):
    runner = Trainer(make_point_env(), replace(cfg, num_steps=8), observer=lambda row: row["iteration"] == 3)
    runner.train(8)
    rollout = runner.rollouts.ahead.take()
    assert set(rollout.version.flatten().tolist()) == {2}
    if runner.actor.memory is not None:
        return
    with torch.no_grad():
        acted = runner.rollouts.ahead.actor
        params = acted.params(rollout.actor_obs.flatten(0, 1))
        expected = acted.distribution.log_prob(rollout.action.flatten(0, 1), params)
        torch.testing.assert_close(rollout.log_prob.flatten(), expected, rtol=0.0, atol=1e-5)
    assert not torch.equal(acted.distribution.log_std, runner.actor.distribution.log_std)


@pytest.mark.long
@pytest.mark.parametrize("with_signal", [False, True])
def test_a_stop_gives_up_the_rollout_that_is_simulated(make_point_env, cfg, tmp_path, with_signal):
    env = stateful(make_point_env)
    step, steps = env.step, [0]

    def slow_step(actions):
        steps[0] += 1
        if steps[0] > 48:  # Of the rollout that is simulated while the fourth is learned from.
            time.sleep(0.3)
        return step(actions)

    def stop(row):
        if row["iteration"] == 4:
            if with_signal:
                os.kill(os.getpid(), signal.SIGTERM)
            return not with_signal
        return False

    env.step = slow_step
    session = make_trainer(env, replace(cfg, num_steps=12), run_dir=tmp_path / "a", observer=stop)
    with pytest.raises(Interrupted) if with_signal else contextlib.nullcontext():
        session.train(6)
    assert 48 < steps[0] < 60
    assert not session.rollouts.ahead.is_flying
    resumed = make_trainer(stateful(make_point_env), replace(cfg, num_steps=12), run_dir=tmp_path / "a")
    resumed.load(latest_checkpoint(tmp_path / "a"))
    whole = make_trainer(stateful(make_point_env), replace(cfg, num_steps=12), run_dir=tmp_path / "b")
    session._observers, env.step = [], step
    for one in (resumed, session, whole):
        one.run_dir = tmp_path / f"{id(one)}"
        one.train(6)
    states = [load_checkpoint(latest_checkpoint(one.run_dir))[0] for one in (resumed, session, whole)]
    for other in states[:2]:
        assert all(torch.equal(tensor, other[name]) for name, tensor in states[2].items())


def test_a_checkpoint_that_is_refused_changes_nothing(make_point_env, cfg, tmp_path):
    wider = replace(cfg, actor=replace(cfg.actor, hidden=(7,)))
    train(stateful(make_point_env), wider, tmp_path / "other", 1)
    options = {"run_dir": tmp_path / "a", "observer": lambda row: row["iteration"] == 2}
    runner = make_trainer(stateful(make_point_env), cfg, **options)
    runner.train(4)
    with pytest.raises(UserError):
        runner.load(latest_checkpoint(tmp_path / "other"))
    runner.train(4)
    whole = train(stateful(make_point_env), cfg, tmp_path / "b")
    parts = load_checkpoint(latest_checkpoint(tmp_path / "a"))[0]
    assert all(torch.equal(tensor, parts[name]) for name, tensor in whole.items())


def test_an_error_of_the_worlds_is_raised(make_point_env, small_cfg):
    class BrokenEnv(make_point_env):
        def step(self, actions):
            raise UserError("the engine has gone")

    with pytest.raises(UserError, match="the engine has gone"):
        Trainer(BrokenEnv(), replace(small_cfg, overlap=True)).train()


def test_a_learner_that_cannot_use_stale_rollouts_is_refused():
    with pytest.raises(UserError, match="overlap: true, but learner=rsl_rl cannot learn from an older policy's"):
        get_learner("rsl_rl")(overlap=True)


def test_the_efficiency_is_the_share_of_the_shorter_side_that_is_hidden():
    assert overlap_efficiency(1.0, 1.0, 0.1, 1.0) == pytest.approx(1.0)
    assert overlap_efficiency(1.0, 1.0, 0.1, 2.1) == pytest.approx(0.0)
    assert overlap_efficiency(3.0, 1.0, 0.0, 3.25) == pytest.approx(0.75)
    assert overlap_efficiency(3.0, 0.0, 0.0, 3.0) == 0.0
    row = {"perf/simulate_apart_s": 3.0, "perf/learn_apart_s": 1.0, "perf/overlap_efficiency": 0.75}
    assert describe_overlap([row] * 3).startswith("simulate 3 s and learn 1 s apart; overlap efficiency 0.75")
    assert describe_overlap([]) == ""
    undefined = {"perf/simulate_apart_s": 3.0, "perf/learn_apart_s": 1.0}
    assert describe_overlap([row, undefined, undefined]) == "simulate 3 s and learn 1 s apart"


class AtOnce:
    """Runs work when it is submitted, as a GPU's executor launches it."""

    def submit(self, work):
        done = Future()
        done.set_result(work())
        return done

    def shutdown(self):
        pass


@pytest.mark.parametrize("first", [2, 4])
def test_work_that_is_launched_at_once_is_that_of_a_thread(make_point_env, cfg, tmp_path, monkeypatch, first):
    """Of an executor that ends nothing early, a run that stops keeps the rollout."""
    train(stateful(make_point_env), cfg, tmp_path / "thread")
    monkeypatch.setattr(OverlappedRollouts, "_make_executor", lambda self: AtOnce())
    train(stateful(make_point_env), cfg, tmp_path / "at once", first)
    found = train(stateful(make_point_env), cfg, tmp_path / "at once")
    expected = load_checkpoint(latest_checkpoint(tmp_path / "thread"))[0]
    assert all(torch.equal(tensor, found[name]) for name, tensor in expected.items())

"""Simulators apart from the learner: the bits of synchronous training, bounded staleness, stragglers, losses."""

import threading
import time
from dataclasses import replace

import pytest
import torch

from robot_rl.config import MemoryCfg
from robot_rl.config.learner import StalenessCfg
from robot_rl.errors import UserError
from robot_rl.learn.checkpoints.checkpoint import latest_checkpoint, load_checkpoint
from robot_rl.learn.runner import Runner, make_runner
from robot_rl.learn.simulators.pool import LostError, ThreadPool
from robot_rl.learn.simulators.runner import RemoteWorlds
from robot_rl.learn.simulators.simulator import Mailbox, Simulator
from robot_rl.learn.simulators.weights import pack, unpack
from tests.unit.learn.test_overlap import stateful

OWN = ("env.", "worlds.")


@pytest.fixture
def cfg(small_cfg):
    return replace(small_cfg, symmetry="none")


@pytest.fixture
def make_session(make_point_env, cfg):
    """make_session(count, staleness, sleeps=...): a learner with simulators in threads; they are ended."""
    pools = []

    def make(count=1, staleness=0, sleeps=(), cfg=cfg, pool=ThreadPool, **options):
        share, cfg = 64 // count, replace(cfg, staleness=StalenessCfg(max=staleness))

        def simulator(index):
            sleep_s = sleeps[index] if sleeps else 0.0
            env = stateful(make_point_env, sleep_s, num_envs=share, seed=index)
            return Simulator(env, cfg, seed=1, index=index, count=count, staleness=staleness)

        pools.append(pool([lambda index=index: simulator(index) for index in range(count)]))
        env = RemoteWorlds(make_point_env(num_envs=2), share * count, pools[-1])
        return make_runner(env, cfg, **options)

    yield make
    for pool in pools:
        pool.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("robot-rl-simulate")]


def tensors(folder):
    return {name: t for name, t in load_checkpoint(latest_checkpoint(folder))[0].items() if not name.startswith(OWN)}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@pytest.mark.parametrize("memory", [False, True])
def test_one_simulator_without_staleness_is_synchronous_training(make_session, make_point_env, cfg, tmp_path, memory):
    if memory:
        cfg = replace(cfg, actor=replace(cfg.actor, memory=MemoryCfg(kind="gru", hidden=8, sequence=4)))
    plain, rows, other = Runner(stateful(make_point_env), cfg, run_dir=tmp_path / "a"), [], []
    plain._observers = [rows.append]
    plain.learn()
    session = make_session(cfg=cfg, run_dir=tmp_path / "b", observer=other.append)
    session.learn()
    mine, theirs = tensors(tmp_path / "b"), tensors(tmp_path / "a")
    mine.pop("random.noise"), theirs.pop("random.noise")  # The simulator's, which is in the state of its worlds.
    assert same(mine, theirs)
    for name in ("loss/value", "loss/kl", "episode/return", "episodes"):
        assert [row.get(name) for row in rows] == [row.get(name) for row in other]
    assert all(row["staleness/dropped"] == 0.0 for row in other)


@pytest.mark.parametrize("count", [1, 2])
def test_a_resumed_run_without_staleness_is_the_run(make_session, tmp_path, count):
    make_session(count, run_dir=tmp_path / "whole").learn(4)
    make_session(count, run_dir=tmp_path / "parts").learn(2)
    session = make_session(count, run_dir=tmp_path / "parts")
    session.load(latest_checkpoint(tmp_path / "parts"))
    session.learn(4)
    if count == 1:  # With more, segments come in any order.
        assert same(tensors(tmp_path / "parts"), tensors(tmp_path / "whole"))
    assert session.iteration == 4


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_no_sample_is_older_than_allowed(make_session, staleness):
    rows = []
    session = make_session(2, staleness, observer=rows.append)
    seen = []
    update = session.algorithm.update

    def slow_update(rollout, progress):
        seen.append(int((session.iteration - rollout.version)[rollout.valid].max()))
        time.sleep(0.02)
        return update(rollout, progress)

    session.algorithm.update = slow_update
    session.learn(12)
    assert max(seen) <= staleness
    assert (max(seen) > 0) == (staleness > 0)
    assert all(("staleness/mean" in row) == (staleness > 0) for row in rows)
    shares = [[row.get(f"staleness/share_{age}", 0.0) for age in range(staleness + 1)] for row in rows]
    expected = [1.0 - row["staleness/dropped"] if staleness else 0.0 for row in rows]
    assert [sum(share) for share in shares] == pytest.approx(expected, abs=1e-5)


def test_weights_are_swapped_in_the_middle_of_a_rollout(make_session, cfg):
    session = make_session(1, 4, sleeps=[0.004], observer=None)
    mixed = []
    update = session.algorithm.update

    def look(rollout, progress):
        versions = rollout.version[:, 0].tolist()
        if len(set(versions)) > 1:
            mixed.append(versions)
            assert versions == sorted(versions)
        assert bool(rollout.log_prob.isfinite().all())
        return update(rollout, progress)

    session.algorithm.update = look
    session.learn(12)
    assert mixed


def test_log_probabilities_are_those_of_the_weights_that_acted(make_point_env, cfg):
    env = stateful(make_point_env, num_envs=8)
    simulator = Simulator(env, cfg, seed=1, index=0, count=1, staleness=8)
    actors = [Runner(make_point_env(num_envs=8), cfg, seed=seed).actor for seed in (5, 6)]
    simulator.mailbox.put(0, pack(actors[0]))
    step, count = env.step, [0]

    def step_and_publish(actions):
        count[0] += 1
        if count[0] == 3:
            simulator.mailbox.put(1, pack(actors[1]))
        return step(actions)

    env.step = step_and_publish
    segment = simulator.segment(0)
    assert segment.tensors["version"][:, 0].tolist() == [0, 0, 0, 1, 1, 1, 1, 1]
    for t, actor in enumerate([actors[0]] * 3 + [actors[1]] * 5):
        with torch.no_grad():
            params = actor.params(segment.tensors["actor_obs"][t])
            expected = actor.distribution.log_prob(segment.tensors["action"][t], params)
        torch.testing.assert_close(segment.tensors["log_prob"][t], expected, rtol=0.0, atol=1e-5)


def test_a_straggler_holds_nobody_up_and_no_phase_of_its_episodes_is_preferred(make_session, make_point_env):
    session = make_session(2, 2, sleeps=[0.002, 0.01])
    shares = {0: torch.zeros(10), 1: torch.zeros(10)}
    take, counts = session._pool.take, {0: 0, 1: 0}

    def count_phases():
        found = take()
        for segment in found:
            counts[segment.index] += 1
            age = (segment.tensors["critic_obs"][:-1, :, 1] * 10).round().long().flatten()
            shares[segment.index] += torch.bincount(age, minlength=10)[:10].float()
        return found

    session._pool.take = count_phases
    session.learn(40)
    assert counts[0] > counts[1] > 3
    for index in (0, 1):  # Ten steps an episode, begun at random times: each phase has a tenth of the samples.
        share = shares[index] / shares[index].sum()
        assert float((share - 0.1).abs().max()) < 0.03


class Fragile(ThreadPool):
    """Simulators of which one is lost in its third segment."""

    received = 0

    def receive(self):
        index, segment = super().receive()
        self.received += 1
        if self.received == 3:
            raise LostError(index, "killed")
        return index, segment


def test_a_lost_simulator_goes_on_from_its_last_snapshot_and_nothing_is_counted_twice(make_session, tmp_path):
    rows = []
    session = make_session(1, pool=Fragile, run_dir=tmp_path / "b", observer=rows.append)
    session.learn(4)
    make_session(1, run_dir=tmp_path / "a").learn(4)
    assert same(tensors(tmp_path / "a"), tensors(tmp_path / "b"))
    assert [row["simulators/lost"] for row in rows] == [0.0, 0.0, 1.0, 1.0]
    assert [row["env_steps"] for row in rows] == [512.0, 1024.0, 1536.0, 2048.0]


def test_an_error_of_the_worlds_is_raised(make_session, monkeypatch):
    session = make_session(2)
    monkeypatch.setattr(session._pool._simulators[1].runner.env, "step", lambda actions: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        session.learn()


def test_weights_go_through_one_vector(make_point_env, cfg):
    one, other = (Runner(make_point_env(), cfg, seed=seed) for seed in (1, 2))
    one.learn(2)
    vector = pack(one.actor)
    unpack(vector, other.actor)
    assert all(torch.equal(a, b) for a, b in zip(one.actor.buffers(), other.actor.buffers(), strict=True))
    assert torch.equal(pack(other.actor), vector)
    with pytest.raises(ValueError, match="must be"):
        unpack(vector[:-4], other.actor)


def test_only_newer_weights_are_taken():
    mailbox = Mailbox()
    mailbox.put(2, torch.ones(3, dtype=torch.uint8))
    mailbox.put(1, torch.zeros(3, dtype=torch.uint8))
    assert mailbox.get(1)[0] == 2
    assert int(mailbox.get(1)[1].sum()) == 3


def test_what_cannot_be_learned_from_segments_is_refused(make_session, cfg):
    memory = replace(cfg, critic=replace(cfg.critic, memory=MemoryCfg(kind="gru", hidden=8, sequence=4)))
    with pytest.raises(UserError, match=r"critic\.memory\.kind: segments"):
        make_session(2, cfg=memory)

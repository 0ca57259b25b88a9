"""Simulators apart from the learner: the bits of synchronous training, bounded staleness, stragglers, losses."""

import signal
import time
from dataclasses import replace

import pytest
import torch

from benchmarks.thread_pool import ThreadPool
from robot_rl.errors import Interrupted, UserError
from robot_rl.learn.checkpoints.checkpoint import latest_checkpoint, load_checkpoint, load_worlds
from robot_rl.learn.make_trainer import make_trainer
from robot_rl.learn.rollouts.source import StoppedError
from robot_rl.learn.simulators.pool import LostError
from robot_rl.learn.simulators.remote import RemoteWorlds
from robot_rl.learn.simulators.simulator import Mailbox, Simulator
from robot_rl.learn.simulators.weights import pack, unpack
from robot_rl.learn.trainer import Trainer
from robot_rl.settings import MemoryCfg
from robot_rl.settings.learner import StalenessCfg
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
        return make_trainer(env, cfg, **options)

    yield make
    for pool in pools:
        pool.close()
    assert not [thread for pool in pools for thread in pool._threads if thread.is_alive()]


def tensors(folder):
    return {name: t for name, t in load_checkpoint(latest_checkpoint(folder))[0].items() if not name.startswith(OWN)}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@pytest.mark.parametrize("memory", [False, True])
def test_one_simulator_without_staleness_is_synchronous_training(make_session, make_point_env, cfg, tmp_path, memory):
    if memory:
        cfg = replace(cfg, actor=replace(cfg.actor, memory=MemoryCfg(kind="gru", hidden=8, sequence=4)))
    plain, rows, other = Trainer(stateful(make_point_env), cfg, run_dir=tmp_path / "a"), [], []
    plain._observers = [rows.append]
    plain.train()
    session = make_session(cfg=cfg, run_dir=tmp_path / "b", observer=other.append)
    session.train()
    mine, theirs = tensors(tmp_path / "b"), tensors(tmp_path / "a")
    mine.pop("random.noise"), theirs.pop("random.noise")  # The simulator's, which is in the state of its worlds.
    assert same(mine, theirs)
    for name in ("loss/value", "loss/kl", "episode/return", "episodes"):
        assert [row.get(name) for row in rows] == [row.get(name) for row in other]
    assert all(row["staleness/dropped"] == 0.0 for row in other)


@pytest.mark.parametrize("count", [1, 2])
def test_a_resumed_run_without_staleness_is_the_run(make_session, tmp_path, count):
    make_session(count, run_dir=tmp_path / "whole").train(4)
    make_session(count, run_dir=tmp_path / "parts").train(2)
    session = make_session(count, run_dir=tmp_path / "parts")
    session.load(latest_checkpoint(tmp_path / "parts"))
    session.train(4)
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
    session.train(12)
    assert max(seen) <= staleness
    assert (max(seen) > 0) == (staleness > 0)
    assert all(("staleness/mean" in row) == (staleness > 0) for row in rows)
    shares = [[row.get(f"staleness/share_{age}", 0.0) for age in range(staleness + 1)] for row in rows]
    expected = [1.0 if staleness else 0.0] * len(rows)  # Of the samples that are not dropped.
    assert [sum(share) for share in shares] == pytest.approx(expected, abs=1e-5)


def test_weights_are_swapped_in_the_middle_of_a_rollout(make_session, cfg):
    session = make_session(1, 4, sleeps=[0.02], observer=None)  # A segment takes longer than an update.
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
    session.train(8)
    assert mixed


def test_log_probabilities_are_those_of_the_weights_that_acted(make_point_env, cfg):
    env = stateful(make_point_env, num_envs=8)
    simulator = Simulator(env, cfg, seed=1, index=0, count=1, staleness=8)
    actors = [Trainer(make_point_env(num_envs=8), cfg, seed=seed).actor for seed in (5, 6)]
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


@pytest.mark.long
def test_a_straggler_holds_nobody_up_and_no_phase_of_its_episodes_is_preferred(make_session, make_point_env):
    session = make_session(2, 2, sleeps=[0.002, 0.01])
    shares = {0: torch.zeros(10), 1: torch.zeros(10)}
    take, counts = session.env.pool.take, {0: 0, 1: 0}

    def count_phases():
        found = take()
        for segment in found:
            counts[segment.index] += 1
            age = (segment.tensors["critic_obs"][:-1, :, 1] * 10).round().long().flatten()
            shares[segment.index] += torch.bincount(age, minlength=10)[:10].float()
        return found

    session.env.pool.take = count_phases
    session.train(40)
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
    session.train(4)
    make_session(1, run_dir=tmp_path / "a").train(4)
    assert same(tensors(tmp_path / "a"), tensors(tmp_path / "b"))
    assert [row["simulators/lost"] for row in rows] == [0.0, 0.0, 1.0, 1.0]
    assert [row["env_steps"] for row in rows] == [512.0, 1024.0, 1536.0, 2048.0]


class Elastic(ThreadPool):
    """Simulators of which `plan` says after how many segments which are lost, and which find room again.

    Attributes:
        plan: (segments, simulator, whether it is there from then on).
        absent: Those for which there is no room at first.
    """

    plan, absent, least = (), (), 1

    def __init__(self, makes):
        super().__init__(makes, type(self).least)
        self.received, self.waiting, self.homeless, self.kept = 0, [], set(), []
        for index in self.absent:
            self.missing.add(index)
            self.states[index] = {}
        self.left = list(self.plan)

    def receive(self):
        if self.waiting:
            self.join(index := self.waiting.pop())
            return index, None
        if self.left and self.received >= self.left[0][0]:
            _, index, is_there = self.left.pop(0)
            if is_there:
                self.join(index)
                return index, None
            self.homeless.add(index)
            while index in self._working and index not in {sender for sender, _ in self.kept}:
                self.kept.append(super().receive())
            self.kept = [one for one in self.kept if one[0] != index]  # What its thread still sends is nobody's.
            raise LostError(index, "no machine")
        index, segment = self.kept.pop(0) if self.kept else super().receive()
        self.received += segment is not None
        return index, segment

    def restart(self, index):
        if index not in self.homeless:
            self.waiting.append(index)


@pytest.mark.parametrize("staleness", [0, 1])
def test_the_others_go_on_while_a_simulator_is_missing_and_it_joins_again(make_session, staleness, tmp_path):
    class Pool(Elastic):
        plan, absent = ((6, 2, True), (12, 0, False), (15, 0, True)), (2,)

    rows, sent = [], []
    session = make_session(4, staleness, pool=Pool, run_dir=tmp_path / "a", observer=rows.append)
    take = session.env.pool.take
    session.env.pool.take = lambda: sent.append(found := take()) or found
    session.train(7)
    assert rows[0]["simulators"] == 3.0
    assert {row["simulators"] for row in rows} == {3.0, 4.0}
    assert rows[-1]["simulators"] == 4.0
    assert rows[-1]["simulators/lost"] == 1.0
    assert [row["env_steps"] for row in rows] == [512.0 * k for k in range(1, 8)]
    assert all(len(found) == 4 for found in sent)
    assert 2 not in {one.index for one in sent[0]}
    if not staleness:  # With it one that is slow may come later.
        assert {one.index for one in sent[0]} == {0, 1, 3}
        assert 2 in {one.index for found in sent for one in found}
        assert all(row["staleness/dropped"] == 0.0 for row in rows)
    names = load_worlds(latest_checkpoint(tmp_path / "a"), 0)
    assert {name.split(".")[1] for name in names if name.startswith("env.")} == {"0", "1", "2", "3"}


def test_a_checkpoint_without_the_worlds_of_a_simulator_that_never_came_is_resumed_with_it(make_session, tmp_path):
    class Lacking(Elastic):
        absent = (1,)

    make_session(2, pool=Lacking, run_dir=tmp_path / "a").train(2)
    names = load_worlds(latest_checkpoint(tmp_path / "a"), 0)
    assert {name.split(".")[1] for name in names if name.startswith("env.")} == {"0"}
    session = make_session(2, run_dir=tmp_path / "a")
    session.load(latest_checkpoint(tmp_path / "a"))
    assert session.env.pool._firsts == {1}
    assert session.train(4)["simulators"] == 2.0
    names = load_worlds(latest_checkpoint(tmp_path / "a"), 0)
    assert {name.split(".")[1] for name in names if name.startswith("env.")} == {"0", "1"}
    again = make_session(2, pool=Lacking, run_dir=tmp_path / "a")  # It holds the worlds of the one that is missing.
    again.load(latest_checkpoint(tmp_path / "a"))
    again.train(5)
    kept = load_worlds(latest_checkpoint(tmp_path / "a"), 0)
    assert same({k: t for k, t in kept.items() if ".1." in k}, {k: t for k, t in names.items() if ".1." in k})


class Failing(ThreadPool):
    """Simulators of which the second is lost whenever something of it arrives."""

    least = 2

    def __init__(self, makes):
        super().__init__(makes, type(self).least)

    def receive(self):
        index, segment = super().receive()
        if index == 1:
            raise LostError(index, "broken")
        return index, segment


def test_one_that_is_lost_again_and_again_ends_the_training_unless_fewer_are_enough(make_session, capsys):
    with pytest.raises(LostError, match="was lost 4 times without having sent anything"):
        make_session(2, pool=Failing).train(20)

    class Lenient(Failing):
        least = 1

    rows = []
    make_session(2, pool=Lenient, observer=rows.append).train(20)
    assert rows[-1]["simulators"] == 1.0
    assert "simulator 1: was lost 4 times without having sent anything (broken); 1 of 2" in capsys.readouterr().err


def test_a_request_to_stop_while_nothing_arrives_saves(make_session, tmp_path):
    class Silent(ThreadPool):
        received = 0

        def receive(self):
            self.received += 1
            if self.received > 3:
                raise StoppedError(None, 0, signal.SIGTERM, saved=False)
            return super().receive()

    with pytest.raises(Interrupted) as stop:
        make_session(1, pool=Silent, run_dir=tmp_path / "a").train(9)
    assert (stop.value.iteration, stop.value.saved) == (3, True)
    assert latest_checkpoint(tmp_path / "a").name == "000003"
    session = make_session(1, run_dir=tmp_path / "a")
    session.load(latest_checkpoint(tmp_path / "a"))
    session.train(5)
    make_session(1, run_dir=tmp_path / "whole").train(5)
    assert same(tensors(tmp_path / "a"), tensors(tmp_path / "whole"))


def test_a_checkpoint_that_is_refused_changes_nothing(make_session, cfg, tmp_path):
    wider = replace(cfg, actor=replace(cfg.actor, hidden=(7,)))
    make_session(1, cfg=wider, run_dir=tmp_path / "other").train(1)
    session = make_session(1, run_dir=tmp_path / "a")
    session.train(2)
    with pytest.raises(UserError):
        session.load(latest_checkpoint(tmp_path / "other"))
    session.train(4)
    make_session(1, run_dir=tmp_path / "whole").train(4)
    assert same(tensors(tmp_path / "a"), tensors(tmp_path / "whole"))


def test_rows_have_the_metrics_of_each_engine(make_session):
    class Mixed(ThreadPool):
        def __init__(self, makes):
            super().__init__(makes, engines=("quick", "exact"))

    rows = []
    make_session(2, pool=Mixed, observer=rows.append).train(3)
    returns = [rows[-1][f"simulators/{name}/episode/return"] for name in ("quick", "exact")]
    assert min(returns) <= rows[-1]["episode/return"] <= max(returns)
    assert returns[0] != returns[1]


def test_an_error_of_the_worlds_is_raised(make_session, monkeypatch):
    session = make_session(2)
    monkeypatch.setattr(session.env.pool._simulators[1].runner.env, "step", lambda actions: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        session.train()


def test_weights_go_through_one_vector(make_point_env, cfg):
    one, other = (Trainer(make_point_env(), cfg, seed=seed) for seed in (1, 2))
    one.train(2)
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

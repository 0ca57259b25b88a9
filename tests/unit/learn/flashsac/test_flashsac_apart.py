"""FlashSAC with simulators and with overlap: the local run's bits, noise that goes on, transitions of slow worlds."""

from dataclasses import replace

import pytest
import torch

from benchmarks.thread_pool import ThreadPool
from robot_rl.learn.algorithms.flashsac.config import FlashSACCfg, FlashSACLearnerCfg
from robot_rl.learn.algorithms.flashsac.flashsac import ReturnScale, keep_transitions
from robot_rl.learn.dims import EnvSpec
from robot_rl.learn.ranks import SINGLE_PROCESS
from robot_rl.learn.replay import Replay
from robot_rl.learn.rollout import make_rollout
from robot_rl.learn.simulators.pool import LostError

from ..apart import apart, assert_local_run, assert_resumed, same, tensors

SIZES = {"actor": 1, "critic": 1, "action": 1}


@pytest.fixture
def cfg():
    flash = FlashSACCfg(
        gamma=0.8, batch=64, replay=6400, warm_up=1024, policy_width=16, critic_width=16, bins=21, learning_rate=3e-3
    )
    return FlashSACLearnerCfg(num_steps=8, save_interval=2, flashsac=flash)


def test_one_simulator_without_staleness_is_the_local_run(make_point_env, cfg, tmp_path):
    rows = assert_local_run(make_point_env, cfg, tmp_path)
    assert rows[0]["loss/critic"] == 0.0  # Nothing is learned, and actions are noise only, for two rollouts.
    assert rows[-1]["loss/critic"] > 0.0


def test_a_resumed_run_is_the_run(make_point_env, cfg, tmp_path):
    assert_resumed(make_point_env, replace(cfg, flashsac=replace(cfg.flashsac, warm_up=1500)), tmp_path)


class Fragile(ThreadPool):
    """Simulators of which one is lost in its third segment."""

    received = 0

    def receive(self):
        index, segment = super().receive()
        self.received += 1
        if self.received == 3:
            raise LostError(index, "killed")
        return index, segment


def test_the_noise_of_a_lost_simulator_goes_on(make_point_env, cfg, tmp_path):
    for name, pool in (("a", ThreadPool), ("b", Fragile)):
        with apart(make_point_env, cfg, run_dir=tmp_path / name, pool=pool) as session:
            session.train(4)
    assert same(tensors(tmp_path / "a"), tensors(tmp_path / "b"))


def test_only_noise_acts_until_the_learner_has_seen_enough(make_point_env, cfg):
    with apart(make_point_env, cfg, count=2, staleness=1) as session:
        kept, update = [], session.algorithm.update

        def look(rollout, progress):
            is_noise = (rollout.action == rollout.noise).all(-1)
            kept.append((is_noise[rollout.valid], rollout.version[rollout.valid]))  # Too old ones are zeros.
            return update(rollout, progress)

        session.algorithm.update = look
        session.train(8)
    for is_noise, version in kept:
        assert torch.equal(is_noise, version < 2)  # 1024 transitions are two rollouts.


def test_its_age_is_measured_and_a_simulator_has_no_replay_memory(make_point_env, cfg):
    rows = []
    with apart(make_point_env, cfg, count=2, staleness=2, observer=rows.append) as session:
        session.train(12)
        own = session.env.pool._simulators[0].runner.algorithm.replay
    assert max(row["staleness/max"] for row in rows) in (1.0, 2.0)
    assert "staleness/effective" not in rows[-1]
    assert own.rows == cfg.num_steps + 1


@pytest.mark.long
def test_it_learns_the_point_from_stale_rollouts_of_a_quick_and_a_slow_simulator(make_point_env, cfg):
    rows = []
    flash = replace(cfg.flashsac, updates=2.0, warm_up=256, tau=0.05)
    cfg = replace(cfg, stagger_episodes=False, flashsac=flash)
    with apart(make_point_env, cfg, count=2, staleness=2, sleeps=(0.0, 0.01), observer=rows.append) as session:
        session.train(60)
        counts = session.algorithm.replay.counts
    assert min(rows[k]["episode/return"] for k in range(3) if "episode/return" in rows[k]) < -5.0
    assert rows[-1]["episode/return"] > -3.5
    assert int(counts[0]) > int(counts[-1])  # The quick one sent more.


def rollout_of(worlds, first, blocks):
    """A rollout of two worlds a block, whose observations are 100 times the world plus the step."""
    rollout = make_rollout(2, 2 * len(blocks), EnvSpec(**SIZES), "cpu")
    for block, (world, start) in enumerate(zip(blocks, first, strict=True)):
        for t in range(2):
            for n in range(2):
                value = 100.0 * (world + n) + start + t
                rollout.actor_obs[t, 2 * block + n] = rollout.critic_obs[t, 2 * block + n] = value
                rollout.reward[t, 2 * block + n] = value
    rollout.blocks = tuple((world, 2) for world in blocks)
    return rollout


def test_a_transition_goes_on_in_its_own_world_whoever_came_first():
    ring = Replay(16, 4, SIZES, "cpu")
    for first, blocks in (((0, 0), (2, 0)), ((2, 4), (2, 2)), ((2, 6), (0, 2)), ((4, 6), (0, 0))):
        keep_transitions(ring, rollout_of(4, first, blocks), torch.zeros(2, 4, 1))
    assert ring.counts.tolist() == [8, 8, 8, 8]
    batch = ring.draw(2000, torch.Generator().manual_seed(0), 0.5)
    steps = {100.0 * world + step for world in range(4) for step in range(4, 7)}  # Four steps fit, of eight.
    assert set(batch["actor"].flatten().tolist()) == steps
    assert torch.equal(batch["next_actor"], batch["actor"] + 1.0)
    keep_transitions(ring, rollout_of(4, (8, 10), (0, 0)), torch.zeros(2, 4, 1))
    batch = ring.draw(2000, torch.Generator().manual_seed(0), 0.5)
    assert torch.equal(batch["next_actor"], batch["actor"] + 1.0)
    assert batch["actor"].flatten().max() == 306.0


def test_discounted_sums_go_on_in_their_own_worlds():
    found = []
    for parts in (([(0, 0)], [(2, 0), (0, 2)], [(2, 2)]), ([(0, 0), (2, 0)], [(0, 2), (2, 2)])):
        scale = ReturnScale(4, 0.5, 5.0)
        for part in parts:
            rollout = rollout_of(4, [start for _, start in part], [world for world, _ in part])
            scale.update(rollout, SINGLE_PROCESS)
        found.append(scale.running)
    assert torch.equal(found[0], found[1])

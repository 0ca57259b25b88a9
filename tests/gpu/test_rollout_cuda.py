"""Rollouts in one CUDA graph: what the steps do one by one, with live parameters, and without a wait."""

from dataclasses import replace

import pytest
import torch
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

from robot_rl.learn.algorithms.flashsac.config import FlashSACCfg, FlashSACLearnerCfg
from robot_rl.learn.algorithms.ppo.config import PPOCfg, PPOLearnerCfg
from robot_rl.learn.trainer import Trainer
from robot_rl.settings import MemoryCfg, NetworkCfg

pytestmark = [pytest.mark.gpu, pytest.mark.long]

N = 64
NETWORK = NetworkCfg(hidden=(32, 32))
GRU = replace(NETWORK, memory=MemoryCfg(kind="gru", hidden=16))
PPO = PPOLearnerCfg(num_steps=5, actor=NETWORK, critic=NETWORK, ppo=PPOCfg(epochs=1, minibatches=2))
CASES = {
    "odd": PPO,
    "even": replace(PPO, num_steps=6),
    "memory": replace(PPO, actor=GRU, critic=GRU),
    "flashsac": FlashSACLearnerCfg(num_steps=3, flashsac=FlashSACCfg(batch=64, replay=2000, warm_up=0, bins=11)),
}


def make(graph, cfg=PPO, task="cartpole"):
    return Trainer(make_env(get_task(task), num_envs=N, device="cuda", seed=2), replace(cfg, graph=graph), seed=3)


def assert_recorded(runner):
    assert runner.collector.recorded.problem == ""
    assert runner.collector.recorded.is_recorded


@pytest.mark.parametrize("case", list(CASES))
def test_a_replay_is_the_rollout(case):
    plain, graphed = (make(graph, CASES[case]) for graph in ("off", "on"))
    for _ in range(4):
        expected, found = plain.collect(), graphed.collect()
        for name in ("actor_obs", "critic_obs", "action", "reward", "done", "log_prob"):
            torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=1e-3, atol=1e-4, msg=name)
        for runner, rollout in ((plain, expected), (graphed, found)):
            runner.algorithm.update(rollout, 0.0)
            runner.iteration += 1
    assert plain.collector.recorded is None
    assert_recorded(graphed)


@pytest.mark.parametrize("task", ["go2_flat", "go2_rough"])
def test_a_robot_with_contacts(task):
    """The first observations agree, but for a few worlds in which a contact came a step sooner or later."""
    cfg = replace(PPO, num_steps=4)
    plain, graphed = (make(graph, cfg, task) for graph in ("off", "on"))
    for _ in range(2):
        expected, found = plain.collect(), graphed.collect()
    assert_recorded(graphed)
    apart = (found.actor_obs[:2] - expected.actor_obs[:2]).abs().amax(dim=2)
    assert (apart < 1e-2).float().mean() > 0.95
    assert bool(found.reward.isfinite().all())


def test_a_live_parameter_is_read_by_a_replay():
    runner = make("on")
    for _ in range(2):
        runner.collect()
    assert float(runner.collect().reward.abs().sum()) > 0
    for name in runner.env.params():
        if name.startswith("rewards.") and name.endswith(".weight"):
            runner.env.set_param(name, 0.0)
    assert float(runner.collect().reward.abs().sum()) == 0
    assert_recorded(runner)


def test_learned_weights_are_read_by_a_replay():
    runner = make("on")
    for _ in range(3):
        rollout = runner.collect()
    with torch.no_grad():
        for parameter in runner.actor.parameters():
            parameter.zero_()
    before = rollout.out.clone()
    assert not torch.equal(runner.collect().out, before)
    assert float(runner.collector.rollout.out.abs().max()) < 1e-6
    assert_recorded(runner)


def test_collecting_waits_for_nothing():
    runner = make("on", task="go2_flat")
    for _ in range(2):
        runner._iterate(100)
    torch.cuda.set_sync_debug_mode("error")
    try:
        runner.watch.start()
        runner.collect()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert_recorded(runner)


def test_memory_does_not_grow():
    runner = make("on")
    for _ in range(3):
        runner._iterate(100)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(5):
        runner._iterate(100)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before


def test_what_is_allocated_later_is_not_the_graphs():
    """Memory that others take between replays is none that the graph writes to."""
    runner = make("on", task="go2_flat")
    for _ in range(2):
        runner._iterate(100)
    assert_recorded(runner)
    held = [torch.full((size,), 7.0, device="cuda") for size in (64, 1024, 64 * 12, 64 * 48, 10**6) for _ in range(20)]
    for _ in range(3):
        runner._iterate(100)
    assert all(bool((tensor == 7.0).all()) for tensor in held)

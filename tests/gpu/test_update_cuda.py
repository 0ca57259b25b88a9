"""The update on a CUDA device: replayed graphs do what the steps did, and an iteration waits for nothing."""

from dataclasses import replace

import pytest
import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict

from robot_rl.learn.algorithms.ppo.config import PPOCfg, PPOLearnerCfg
from robot_rl.learn.algorithms.ppo.graphed import WARM_UP, why_not_graphed
from robot_rl.learn.trainer import Trainer
from robot_rl.settings import MemoryCfg, NetworkCfg

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
N = 256


class Points(VecEnv):
    """Points in a plane that are pushed toward the origin, without a look at the host; a mirror swaps the axes."""

    def __init__(self, episode=10, sick=False):
        self.num_envs, self.num_actions, self.max_episode_length, self.sick = N, 2, episode, sick
        self.device, self.cfg, self.step_dt = torch.device(DEVICE), {}, 0.1
        self.generator = torch.Generator(DEVICE).manual_seed(1)
        self.episode_length_buf = torch.arange(N, device=DEVICE) % episode
        self.pos = self._draw()
        swap = (torch.tensor([1, 0]), torch.tensor([1.0, 1.0]))
        self.mirror = {"actor": swap, "critic": swap, "action": swap}

    def _draw(self):
        return torch.rand(N, 2, generator=self.generator, device=DEVICE) * 4.0 - 2.0

    def pop_metrics(self):
        return {}

    def get_observations(self):
        return TensorDict({"actor": self.pos.clone(), "critic": self.pos.clone()}, batch_size=[N], device=DEVICE)

    def step(self, actions):
        self.pos = self.pos + 0.5 * actions.clamp(-1.0, 1.0)
        reward = -self.pos.square().sum(-1)
        self.episode_length_buf += 1
        time_outs = self.episode_length_buf >= self.max_episode_length
        extras = {"time_outs": time_outs, "final_obs": self.get_observations()}
        if self.sick:
            extras["valid"] = self.pos[:, 0] < 1.5
        self.pos = torch.where(time_outs[:, None], self._draw(), self.pos)
        self.episode_length_buf.masked_fill_(time_outs, 0)
        return self.get_observations(), reward, time_outs, extras


def make(graph, env=None, cfg=None, **ppo):
    base = PPOLearnerCfg(
        num_steps=16,
        actor=NetworkCfg(hidden=(64, 64), init_std=0.5),
        critic=NetworkCfg(hidden=(64, 64), output_gain=1.0),
    )
    cfg = cfg or base
    return Trainer(env or Points(), replace(cfg, ppo=PPOCfg(**{"learning_rate": 1e-3, **ppo}, cuda_graph=graph)))


def weights(runner):
    return {**runner.networks(), **{k: v for k, v in runner.state().items() if k.startswith("optimizer")}}


def assert_alike(one, two):
    for name, expected in weights(one).items():
        torch.testing.assert_close(weights(two)[name], expected, rtol=2e-3, atol=2e-4, msg=name)


@pytest.mark.parametrize("schedule", ["adaptive", "fixed", "linear"])
@pytest.mark.parametrize("sick", [False, True])
def test_replayed_steps_are_the_steps(schedule, sick):
    """Over several updates of new samples each, the step size and the frozen policy changing between them."""
    eager, graphed = (make(graph, Points(sick=sick), schedule=schedule) for graph in (False, True))
    assert eager.algorithm.graphed is None
    for _ in range(4):
        expected, found = eager._iterate(100), graphed._iterate(100)
        for name in ("loss/value", "loss/surrogate", "loss/entropy", "loss/kl", "policy/learning_rate"):
            assert found[name] == pytest.approx(expected[name], rel=5e-3, abs=1e-5)
    assert graphed.algorithm.graphed.problem == ""
    (recording,) = graphed.algorithm.graphed._recordings.values()
    assert len(recording.replays) == 1
    assert recording.steps == 4 * 20 > WARM_UP
    assert_alike(eager, graphed)


@pytest.mark.parametrize("symmetry", ["augment", "network"])
def test_with_mirrored_samples_and_networks(symmetry):
    cfg = replace(make(False).cfg, symmetry=symmetry)
    eager, graphed = (make(graph, cfg=cfg) for graph in (False, True))
    for _ in range(3):
        eager._iterate(100)
        graphed._iterate(100)
    assert graphed.algorithm.graphed.problem == ""
    assert_alike(eager, graphed)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_with_a_memory(kind):
    network = NetworkCfg(hidden=(32,), memory=MemoryCfg(kind=kind, hidden=16))
    cfg = replace(make(False).cfg, actor=network, critic=replace(network, output_gain=1.0))
    eager, graphed = (make(graph, cfg=cfg) for graph in (False, True))
    for _ in range(3):
        eager._iterate(100)
        graphed._iterate(100)
    assert graphed.algorithm.graphed.problem == ""
    assert_alike(eager, graphed)


def test_a_loaded_state_is_what_is_replayed(tmp_path):
    """A checkpoint is loaded into a runner with recorded graphs: they read what was loaded."""
    first = make(True)
    first.run_dir = tmp_path
    first._iterate(100)
    path = first.save()
    other = make(True)
    for _ in range(2):
        other._iterate(100)
    other.load(path)
    assert all(torch.equal(a, b) for a, b in zip(weights(first).values(), weights(other).values(), strict=True))
    before = other.algorithm.optimizer.params.clone()
    other._iterate(100)
    assert other.iteration == 2
    assert float(other.algorithm.optimizer.state_dict()["step"]) == 40.0
    assert not torch.equal(before, other.algorithm.optimizer.params)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("sick", [False, True])
def test_an_iteration_waits_for_nothing(graph, sick):
    """All of it but the one read at its end; the first two allocate and record."""
    runner = make(graph, Points(sick=sick))
    for _ in range(2):
        runner._iterate(100)
    torch.cuda.set_sync_debug_mode("error")
    try:
        runner.watch.start()
        runner.collect()
        runner.watch.lap("other")
        metrics = runner.algorithm.update(runner.collector.rollout, 0.5)
        runner.watch.lap("learn")
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(bool(value.isfinite()) for value in metrics.values())


def test_memory_does_not_grow():
    runner = make(True)
    for _ in range(3):
        runner._iterate(100)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(5):
        runner._iterate(100)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before


def test_a_graph_can_be_left_out():
    assert why_not_graphed(make(False).algorithm, torch.device(DEVICE)) == "ppo.cuda_graph=false"
    assert why_not_graphed(make(True).algorithm, torch.device(DEVICE)) == ""

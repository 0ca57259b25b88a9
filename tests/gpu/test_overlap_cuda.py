"""overlap=true on a CUDA device: a rollout in one graph runs during the update, and is what it would be before it."""

from dataclasses import replace

import pytest
import torch
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.flashsac.config import FlashSACCfg, FlashSACLearnerCfg
from robot_rl.learn.algorithms.ppo.config import PPOCfg, PPOLearnerCfg
from robot_rl.learn.checkpoints.checkpoint import latest_checkpoint
from robot_rl.learn.make_trainer import make_trainer
from robot_rl.learn.rollouts.overlapped import StreamExecutor
from robot_rl.settings import NetworkCfg

pytestmark = [pytest.mark.gpu, pytest.mark.long]

NETWORK = NetworkCfg(hidden=(256, 256))
PPO = PPOLearnerCfg(num_steps=12, actor=NETWORK, critic=NETWORK, ppo=PPOCfg(epochs=3, minibatches=4), overlap=True)
FLASHSAC = FlashSACLearnerCfg(
    num_steps=3, flashsac=FlashSACCfg(batch=256, replay=40_000, warm_up=0, bins=11), overlap=True
)


class InTurn(StreamExecutor):
    """Lets nothing run during the work."""

    def submit(self, work):
        torch.cuda.synchronize()
        flight = super().submit(work)
        torch.cuda.synchronize()
        return flight


def make(cfg=PPO, in_turn=False, num_envs=2048, **options):
    session = make_trainer(
        make_env(get_task("cartpole"), num_envs=num_envs, device="cuda", seed=2), cfg, seed=3, **options
    )
    if in_turn:
        recorded = session.collector.recorded
        session.rollouts.ahead._executor = InTurn(session.device, lambda: recorded.is_recorded)
    return session


def farthest(one, two):
    """The largest difference of a number between two sessions, relative to the numbers of its tensor."""
    found = {**two.networks(), **two.env.state_dict()}
    pairs = [(found[name], tensor) for name, tensor in {**one.networks(), **one.env.state_dict()}.items()]
    return max(
        float((there - here).abs().max() / here.abs().mean().clamp(min=1e-3))
        for there, here in pairs
        if here.is_floating_point() and here.numel()
    )


@pytest.mark.parametrize("cfg", [PPO, FLASHSAC], ids=["ppo", "flashsac"])
def test_during_the_update_is_as_before_it(cfg):
    """Races would show: what one side reads is overwritten by the other, or its memory is given out again.

    The device adds up in any order, which two runs without overlap show.
    """
    during, before, again = make(cfg), make(cfg, in_turn=True), make(cfg, in_turn=True)
    for session in (during, before, again):
        session.train(4)
        assert session.collector.recorded.problem == ""
        assert session.collector.recorded.is_recorded
    assert farthest(before, during) <= 1e-3 + 10.0 * farthest(before, again)


def test_a_resumed_run_is_the_run(tmp_path):
    rows, parts = [], []
    make(run_dir=tmp_path / "whole", observer=rows.append).train(4)
    make(run_dir=tmp_path / "parts", observer=parts.append).train(2)
    resumed = make(run_dir=tmp_path / "parts", observer=parts.append)
    resumed.load(latest_checkpoint(tmp_path / "parts"))
    resumed.train(4)
    assert [row["iteration"] for row in parts] == [row["iteration"] for row in rows]
    assert [row["loss/value"] for row in parts] == pytest.approx([row["loss/value"] for row in rows], rel=1e-2)


def test_both_sides_run_at_a_time():
    """The update begins while the rollout is in the air."""
    session = make(num_envs=8192)
    session.train(3)
    flights = []
    submit = session.rollouts.ahead._executor.submit

    def note(work):
        flights.append(submit(work))
        flights[-1].is_over = flights[-1].end.query()
        return flights[-1]

    session.rollouts.ahead._executor.submit = note
    session.train(5)
    assert not any(flight.is_over for flight in flights)


def test_a_rollout_by_launches_is_refused():
    with pytest.raises(UserError, match="only a rollout in one CUDA graph can overlap: graph=off"):
        make(replace(PPO, graph="off"))

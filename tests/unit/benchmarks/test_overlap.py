"""Trainings with overlap against those without: the table and the file."""

import functools
import json

import overlap
import pytest

from robot_rl.learn.algorithms.ppo.config import PPOCfg, PPOLearnerCfg


@pytest.mark.long
def test_both_kinds_of_worlds_are_measured(monkeypatch, tmp_path):
    # Small networks and two steps of the optimizer in an iteration: how long they take is not checked.
    brief = functools.partial(PPOLearnerCfg, num_steps=4, ppo=PPOCfg(epochs=1, minibatches=2))
    monkeypatch.setattr(overlap, "SIZES", ((8,), (8,)))
    monkeypatch.setattr(overlap, "PPOLearnerCfg", brief)
    small, out = ["actor.hidden=[8]", "critic.hidden=[8]", "ppo.epochs=1", "ppo.minibatches=2"], tmp_path / "b.json"
    overlap.main(["task=cartpole", "num_envs=4", "iterations=2", "repeats=2", *small, f"out={out}"])
    found = json.loads(out.read_text())
    assert [one["worlds"] for one in found["comparisons"]] == ["that wait", "of cartpole"]
    assert [one["count"] for one in found["simulators"]] == [1, 1, 2, 2, 4, 4]
    assert all(one[key] > 0.0 for one in found["comparisons"] for key in ("sync_s", "async_s", "ratio"))

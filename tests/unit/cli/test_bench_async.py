"""robot-rl bench async: the table, the file, and what it refuses."""

import functools
import json

import pytest

from robot_rl.bench import overlap
from robot_rl.learn.algorithms.ppo.config import PPOCfg, PPOLearnerCfg


@pytest.mark.long
def test_both_kinds_of_worlds_are_measured(run, in_tmp, monkeypatch):
    # Small networks and two steps of the optimizer in an iteration: how long they take is not checked.
    brief = functools.partial(PPOLearnerCfg, num_steps=4, ppo=PPOCfg(epochs=1, minibatches=2))
    monkeypatch.setattr(overlap, "SIZES", ((8,), (8,)))
    monkeypatch.setattr(overlap, "PPOLearnerCfg", brief)
    small = ("actor.hidden=[8]", "critic.hidden=[8]", "ppo.epochs=1", "ppo.minibatches=2")
    words = ("task=cartpole", "num_envs=4", "iterations=2", "repeats=2", *small, "out=b.json")
    code, out, err = run("bench", "async", *words)
    assert code == 0, err
    assert "that wait" in out
    found = json.loads((in_tmp / "b.json").read_text())
    assert [one["worlds"] for one in found["comparisons"]] == ["that wait", "of cartpole"]
    assert [(one["count"], one["staleness"]) for one in found["simulators"]] == [
        (k, s) for k in (1, 2, 4) for s in (0, 1)
    ]
    for one in found["comparisons"]:
        assert one["sync_s"] > 0.0
        assert one["async_s"] > 0.0
        assert one["ratio"] > 0.0


@pytest.mark.parametrize(
    ("word", "why"), [("repeats=1", "repeats=1: must be at least 2"), ("task=cartpol", "did you mean 'cartpole'")]
)
def test_what_cannot_be_measured_is_refused(run, in_tmp, word, why):
    code, _, err = run("bench", "async", word)
    assert code == 2
    assert why in err

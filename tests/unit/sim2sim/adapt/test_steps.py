"""The steps of a robot, joined from its log and its plant, and the segments that are made of them."""

import numpy as np
import pytest
import torch

from robot_rl.sim2sim.adapt.source import fill, metrics_of
from robot_rl.sim2sim.adapt.steps import PATIENCE, Joiner


def acted(sequence, action=0.5, **more):
    return {
        "topic": "/policy",
        "state_sequence": sequence,
        "action": np.full(2, action, np.float32),
        "observation": np.full(3, float(sequence), np.float32),
        "command": np.zeros(0, np.float32),
        "ok": True,
        **more,
    }


def sent(sequence, q=0.5, from_policy=True):
    q = np.full(2, q, np.float32)
    return {
        "topic": "/command",
        "state_sequence": sequence,
        "from_policy": from_policy,
        "q": q,
        "dq": 0 * q,
        "tau": 0 * q,
    }


def row(sequence, **more):
    return {
        "sequence": sequence,
        "phase": "POLICY",
        "critic": [float(sequence)] * 4,
        "after": [float(sequence + 10)] * 4,
        "reward": 0.25,
        "ended": False,
        "timed_out": False,
        "valid": True,
        "errors": {"lin_vel_error": 0.1},
        **more,
    }


@pytest.fixture
def joiner():
    return Joiner(read_action=lambda q, dq, tau, command: q, version_of={"a": 0, "b": 1}, identity="a")


def steps(joiner, *rows):
    for one in rows:
        joiner.add_row(one)
    return joiner.take()


def test_a_step_has_what_the_log_and_the_plant_know(joiner):
    joiner.add_events([acted(10), sent(10)])
    (step,) = steps(joiner, row(10))
    assert (step.sequence, step.version, step.reward, step.is_limited) == (10, 0, 0.25, False)
    assert step.observation.tolist() == [10.0] * 3
    assert step.critic.tolist() == [10.0] * 4


def test_the_action_is_the_one_that_was_sent(joiner):
    """The safety layer moved the target; what the writer repeats later is not the step's."""
    joiner.add_events([acted(10, action=0.9), sent(10, q=0.7), sent(10, q=0.2), sent(10, q=0.1, from_policy=False)])
    (step,) = steps(joiner, row(10))
    assert step.action == pytest.approx([0.7, 0.7])
    assert step.is_limited


def test_a_row_waits_until_the_log_has_its_step(joiner):
    assert steps(joiner, row(10), row(20)) == []
    joiner.add_events([acted(10), sent(10)])
    assert [step.sequence for step in joiner.take()] == [10]
    joiner.add_events([acted(20), sent(20)])
    assert [step.sequence for step in joiner.take()] == [20]


def test_steps_after_a_swap_are_those_of_the_new_bundle(joiner):
    swap = {"topic": "/event", "bundle": "b", "text": "swap"}
    joiner.add_events([acted(10), sent(10), swap, acted(20), sent(20)])
    assert [step.version for step in steps(joiner, row(10), row(20))] == [0, 1]


def test_what_is_not_the_policys_is_left_out(joiner):
    """Standing up, a quarantined step, a network that did not run, and a state that no step of the log began with."""
    joiner.add_events(event for sequence in (10, 20, 40) for event in (acted(sequence), sent(sequence)))
    joiner.add_events([acted(30, ok=False), sent(30), acted(50 + PATIENCE), sent(50 + PATIENCE)])
    rows = [row(10, phase="STAND"), row(20, valid=False), row(30), row(40), row(45)]
    assert [step.sequence for step in steps(joiner, *rows)] == [40]
    assert joiner.skipped == 4


def test_a_segment_is_cut_where_steps_are_missing(joiner):
    """Steps 10, 20, a fall in 30, then 70 (it stood up), and 80: no return reaches across the gap."""
    sequences = (10, 20, 30, 70, 80, 120)
    joiner.add_events(event for sequence in sequences for event in (acted(sequence), sent(sequence)))
    rows = [row(sequence, ended=sequence == 30) for sequence in sequences]
    tensors = fill(steps(joiner, *rows))
    assert tensors["done"][:, 0].tolist() == [False, False, True, False, True, False]
    assert tensors["time_out"][:, 0].tolist() == [False, False, False, False, True, False]
    assert tensors["critic_obs"][:, 0, 0].tolist() == [10, 20, 30, 70, 80, 120, 130]
    assert tensors["final_obs"][4, 0].tolist() == [90.0] * 4
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == {
        "actor_obs": (6, 1, 3),
        "critic_obs": (7, 1, 4),
        "final_obs": (6, 1, 4),
        "action": (6, 1, 2),
        "noise": (6, 1, 2),
        "reward": (6, 1),
        "done": (6, 1),
        "time_out": (6, 1),
        "valid": (6, 1),
        "version": (6, 1),
    }
    assert tensors["version"].dtype == torch.int64


def test_the_row_has_the_errors_and_what_the_safety_layer_did(joiner):
    joiner.add_events([acted(10), sent(10), acted(20), sent(20, q=0.0)])
    found = metrics_of(steps(joiner, row(10, errors={}), row(20, ended=True)))
    assert found == {"robot/reward": 0.25, "robot/limited": 0.5, "robot/falls": 1.0, "robot/lin_vel_error": 0.1}

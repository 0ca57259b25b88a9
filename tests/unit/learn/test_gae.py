"""Generalized advantage estimates by hand and against the recurrence in float64."""

import math

import pytest
import torch

from robot_rl.learn.gae import advantages, timeout_bonus


def recurrence(rewards, values, dones, gamma, lam):
    rewards, values, alive = rewards.double(), values.double(), 1.0 - dones.double()
    result, following = torch.zeros_like(rewards), torch.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + gamma * alive[t] * values[t + 1] - values[t]
        following = delta + gamma * lam * alive[t] * following
        result[t] = following
    return result


def test_three_steps_by_hand():
    rewards = torch.tensor([[1.0], [2.0], [3.0]])
    values = torch.tensor([[0.5], [1.0], [1.5], [4.0]])
    # gamma 0.5, lambda 0.5: delta = (1 + 0.5 - 0.5, 2 + 0.75 - 1, 3 + 2 - 1.5) = (1, 1.75, 3.5)
    found = advantages(rewards, values, torch.zeros(3, 1, dtype=torch.bool), 0.5, 0.5)
    assert found.squeeze(1).tolist() == [1.0 + 0.25 * 2.625, 1.75 + 0.25 * 3.5, 3.5]


def test_an_end_cuts_both_value_and_advantage():
    rewards = torch.tensor([[1.0], [2.0], [3.0]])
    values = torch.tensor([[0.5], [1.0], [1.5], [4.0]])
    dones = torch.tensor([[False], [True], [False]])
    found = advantages(rewards, values, dones, 0.5, 0.5)
    assert found.squeeze(1).tolist() == [1.0 + 0.25 * 1.0, 1.0, 3.5]


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 24, 64, 100])
def test_agrees_with_the_recurrence_in_float64(steps):
    generator = torch.Generator().manual_seed(steps)
    rewards = torch.randn(steps, 50, generator=generator)
    values = torch.randn(steps + 1, 50, generator=generator)
    dones = torch.rand(steps, 50, generator=generator) < 0.1
    found = advantages(rewards, values, dones, 0.99, 0.95)
    expected = recurrence(rewards, values, dones, 0.99, 0.95)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=0.0, atol=2e-5)


def test_timeouts_add_the_discounted_final_value_and_nothing_elsewhere():
    final = torch.tensor([[3.0, math.nan], [math.nan, 5.0]])
    time_outs = torch.tensor([[True, False], [False, True]])
    assert timeout_bonus(final, time_outs, 0.9).tolist() == [[pytest.approx(2.7), 0.0], [0.0, pytest.approx(4.5)]]

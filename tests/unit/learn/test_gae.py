"""Generalized advantage estimates by hand and against the recurrence in float64."""

import math

import pytest
import torch

from robot_rl.learn.algorithms.ppo.gae import advantages, timeout_bonus


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


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 1.0])
@pytest.mark.parametrize(("gamma", "lam"), [(0.99, 0.95), (1.0, 1.0), (0.9, 0.0), (0.0, 0.5)])
def test_agrees_whatever_the_ends_and_the_decay(share, gamma, lam):
    """Ends at the first and the last step, two in a row, none at all; undiscounted, and without a look ahead."""
    generator = torch.Generator().manual_seed(2)
    rewards = torch.randn(37, 64, generator=generator)
    values = 10.0 + torch.randn(38, 64, generator=generator)  # Far from zero: what leaks over an end shows.
    dones = torch.rand(37, 64, generator=generator) < share
    dones[0, :8], dones[-1, 8:16], dones[5:7, 16:24] = share > 0, share > 0, share > 0
    found = advantages(rewards, values, dones, gamma, lam)
    expected = recurrence(rewards, values, dones, gamma, lam)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=2e-5)


def test_in_float64_it_is_the_recurrence():
    generator = torch.Generator().manual_seed(4)
    rewards = torch.randn(50, 30, generator=generator, dtype=torch.float64)
    values = torch.randn(51, 30, generator=generator, dtype=torch.float64)
    dones = torch.rand(50, 30, generator=generator) < 0.1
    found = advantages(rewards, values, dones, 0.99, 0.95)
    torch.testing.assert_close(found, recurrence(rewards, values, dones, 0.99, 0.95), rtol=0.0, atol=1e-13)


@pytest.mark.parametrize("critics", [2, 3])
def test_several_critics_are_as_many_estimates(critics):
    """Values and rewards (T, N, K), ends (T, N, 1): each critic's estimate is that of a single critic."""
    generator = torch.Generator().manual_seed(critics)
    rewards = torch.randn(24, 40, critics, generator=generator)
    values = torch.randn(25, 40, critics, generator=generator)
    dones = torch.rand(24, 40, generator=generator) < 0.1
    found = advantages(rewards, values, dones[..., None], 0.99, 0.95)
    assert found.shape == (24, 40, critics)
    for k in range(critics):
        expected = recurrence(rewards[..., k], values[..., k], dones, 0.99, 0.95)
        torch.testing.assert_close(found[..., k].double(), expected, rtol=0.0, atol=2e-5)
        assert torch.equal(found[..., k], advantages(rewards[..., k], values[..., k], dones, 0.99, 0.95))


def test_nothing_passes_over_an_end_however_large():
    """What another episode was worth must not get back: a huge value after an end stays there."""
    rewards, values = torch.zeros(4, 1), torch.zeros(5, 1)
    values[3:] = 1e30
    dones = torch.tensor([[False], [False], [True], [False]])
    found = advantages(rewards, values, dones, 0.99, 0.95)
    assert found[:3].tolist() == [[0.0], [0.0], [0.0]]


def test_timeouts_add_the_discounted_final_value_and_nothing_elsewhere():
    final = torch.tensor([[3.0, math.nan], [math.nan, 5.0]])
    time_outs = torch.tensor([[True, False], [False, True]])
    assert timeout_bonus(final, time_outs, 0.9).tolist() == [[pytest.approx(2.7), 0.0], [0.0, pytest.approx(4.5)]]

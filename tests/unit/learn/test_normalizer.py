"""The observation normalizer."""

import copy

import torch

from robot_rl.learn.networks.normalizer import EPSILON, Normalizer
from robot_rl.learn.networks.symmetry import reflect


def test_starts_as_the_identity():
    obs = torch.randn(5, 3)
    assert torch.equal(Normalizer(3)(obs), obs)


def test_statistics_of_all_batches_together():
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randn(n, 3, generator=generator) * 4.0 + 2.0 for n in (7, 100, 31)]
    normalizer = Normalizer(3)
    for batch in batches:
        normalizer.update(batch)
    everything = torch.cat(batches).double()
    # The identity it starts as counts for nothing.
    torch.testing.assert_close(normalizer.mean.double(), everything.mean(0), atol=1e-5, rtol=0.0)
    torch.testing.assert_close(normalizer.var.double(), everything.var(0, correction=0), atol=1e-4, rtol=0.0)
    assert int(normalizer.count) == 138
    expected = (batches[0] - normalizer.mean) / (normalizer.var.sqrt() + EPSILON)
    torch.testing.assert_close(normalizer(batches[0]), expected)


def test_by_hand():
    normalizer = Normalizer(1)
    normalizer.update(torch.tensor([[1.0], [3.0]]))
    normalizer.update(torch.tensor([[5.0], [7.0]]))
    assert normalizer.mean.tolist() == [4.0]
    assert normalizer.var.tolist() == [5.0]


def test_invalid_rows_count_for_nothing():
    obs = torch.randn(20, 2)
    valid = torch.arange(20) % 3 != 0
    with_mask, without = Normalizer(2), Normalizer(2)
    with_mask.update(obs, valid)
    without.update(obs[valid])
    torch.testing.assert_close(with_mask.mean, without.mean)
    torch.testing.assert_close(with_mask.var, without.var)
    assert int(with_mask.count) == int(without.count)


def test_survives_saving():
    normalizer = Normalizer(2)
    normalizer.update(torch.randn(30, 2) * 3.0)
    other = Normalizer(2)
    other.load_state_dict(normalizer.state_dict())
    obs = torch.randn(4, 2)
    assert torch.equal(other(obs), normalizer(obs))
    assert torch.equal(copy.deepcopy(normalizer)(obs), normalizer(obs))


def test_mirrored_statistics_commute_with_the_mirror_to_the_bit():
    mirror = (torch.tensor([1, 0, 2, 3]), torch.tensor([-1.0, -1.0, 1.0, -1.0]))
    normalizer = Normalizer(4, mirror)
    for _ in range(3):
        normalizer.update(torch.randn(50, 4) * 3.0 + 1.0)
    obs = torch.randn(9, 4)
    assert torch.equal(normalizer(reflect(obs, mirror)), reflect(normalizer(obs), mirror))
    assert float(normalizer.mean[3]) == 0.0

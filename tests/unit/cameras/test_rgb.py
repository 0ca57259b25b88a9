"""Colour images: the right colours in the right places."""

import numpy as np
import pytest

pytestmark = pytest.mark.slow


def test_colours_are_those_of_mujocos_renderer(rig, gl):
    r = rig(kind="rgb", body="world", pos=(0, -4, 3), forward=(0.6, 1, -0.6), up=(0, 0, 1), width=64, height=48)
    image = r.step()
    assert image.shape == (1, 3, 48, 64)
    assert image.dtype == np.float32
    other = r.gl().transpose(2, 0, 1)
    red = (image[0, 0] > 0.4) & (image[0, 1] < 0.3) & (image[0, 2] < 0.3)
    red_there = (other[0] > 0.4) & (other[1] < 0.3) & (other[2] < 0.3)
    assert red_there.sum() > 50
    assert (red ^ red_there).sum() < 0.15 * red_there.sum()
    seen = ~red_there & (other.sum(0) > 0.3)
    assert np.abs(image[0] - other)[:, seen].mean() < 0.06


def test_noise_stays_in_range(rig):
    plain, noisy = (rig(kind="rgb", pos=(0, -4, 0), noise=noise, num_envs=2).step() for noise in (0.0, 0.1))
    spread = noisy - plain
    assert 0.05 < spread.std() < 0.11
    assert abs(spread.mean()) < 0.02
    assert noisy.min() >= 0.0
    assert noisy.max() <= 1.0

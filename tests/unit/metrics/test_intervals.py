"""The interquartile mean and its interval against figures worked out by hand, and against what normal values have."""

import numpy as np
import pytest

from robot_rl.metrics.intervals import interquartile_mean, interval


@pytest.mark.parametrize(
    ("values", "mean"),
    [([3.0], 3.0), ([1.0, 3.0], 2.0), ([5.0, 1.0, 100.0, 2.0], 3.5), ([9.0, -9.0, 1.0, 2.0, 3.0], 2.0)],
)
def test_a_quarter_is_cut_off_at_either_end(values, mean):
    assert interquartile_mean(values) == pytest.approx(mean)


def test_the_interval_holds_the_mean_as_often_as_it_says():
    generator = np.random.default_rng(1)
    draws = [interval(generator.normal(size=20)) for _ in range(200)]
    assert 0.88 <= np.mean([low <= 0.0 <= high for low, high in draws]) <= 0.99


def test_it_is_the_same_every_time_and_a_point_for_equal_values():
    assert interval([1.0, 2.0, 5.0]) == interval([1.0, 2.0, 5.0])
    assert interval([2.0, 2.0, 2.0]) == (2.0, 2.0)

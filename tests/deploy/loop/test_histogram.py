"""Histograms of durations against NumPy's percentiles."""

import json

import numpy as np
import pytest


@pytest.mark.parametrize("seed", range(5))
def test_percentiles_are_those_of_the_durations(rt, seed):
    rng = np.random.default_rng(seed)
    durations = np.concatenate([rng.lognormal(11, 1.5, 5000), rng.integers(0, 100, 50)]).astype(np.int64)
    histogram = rt.Histogram()
    for duration in durations:
        histogram.add(int(duration))
    for share in (0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0):
        exact = np.sort(durations)[max(int(np.ceil(share * len(durations))) - 1, 0)]
        assert histogram.quantile_ns(share) == pytest.approx(exact, rel=0.016, abs=1)


def test_json_holds_every_duration(rt):
    histogram = rt.Histogram()
    for duration in (0, 1, 31, 32, 63, 64, 1000, 10**6, 10**9, 2**40 - 1):
        histogram.add(duration)
    got = json.loads(histogram.json())
    assert got["unit"] == "us"
    assert got["count"] == 10 == sum(count for _, _, count in got["buckets"])
    assert got["min"] == 0
    assert got["max"] == pytest.approx((2**40 - 1) / 1000)
    edges = [edge for low, high, _ in got["buckets"] for edge in (low, high)]
    assert edges == sorted(edges)
    for duration in (31, 64, 1000, 10**6, 10**9):
        assert sum(low <= duration / 1000 < high for low, high, _ in got["buckets"]) == 1


def test_out_of_range_and_empty(rt):
    histogram = rt.Histogram()
    assert histogram.quantile_ns(0.5) == 0
    assert json.loads(histogram.json())["count"] == 0
    histogram.add(-5)
    histogram.add(2**62)
    assert histogram.count == 2
    assert histogram.quantile_ns(0.5) == 0
    assert json.loads(histogram.json())["max"] == pytest.approx(2**62 / 1000)

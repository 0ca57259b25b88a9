"""Figures of a few runs: the interquartile mean and its bootstrap interval (Agarwal et al. 2021, arXiv 2108.13264).

As in their library rliable a quarter of the values, rounded down, is cut off at either end.
`wilson` is the interval of a share.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

DRAWS = 5_000
"""Bootstrap samples of an interval."""


def interquartile_mean(values: Sequence[float]) -> float:
    """Return the mean of the middle half of some values (n,)."""
    return float(_middle(np.sort(np.asarray(values, float))[None])[0])


def interval(values: Sequence[float], level: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the interquartile mean of some values (n,); the same every time."""
    data = np.asarray(values, float)
    draws = np.random.default_rng(seed).integers(0, len(data), (DRAWS, len(data)))
    middles = _middle(np.sort(data[draws], axis=1))
    low, high = np.quantile(middles, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def bands(
    table: np.ndarray, level: float = 0.95, seed: int = 0, most: int = 20_000_000
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the interquartile mean of curves at each point, and both ends of its percentile bootstrap interval.

    Curves are drawn whole: a sample has the same ones at all points at which the same ones have a value. There are 1000
    samples, fewer for many curves, but at least 100.

    Args:
        table: Values (n, points); NaN if a curve has none.
        level: Share of the samples between both ends.
        seed: Of the samples.
        most: Most values in all samples together, which bounds the time.

    Returns:
        Three arrays (points,): NaN if no curve has a value, the ends also if fewer than two have.
    """
    middle, low, high = (np.full(table.shape[1], np.nan) for _ in range(3))
    patterns, pattern_of = np.unique(np.isfinite(table), axis=1, return_inverse=True)
    for index in range(patterns.shape[1]):
        points = np.flatnonzero(pattern_of.reshape(-1) == index)
        values = table[patterns[:, index]][:, points].T
        if (count := values.shape[1]) == 0:
            continue
        middle[points] = _middle(np.sort(values, axis=1))
        if count < 2:
            continue
        samples = int(np.clip(most // (count * table.shape[1]), 100, 1000))
        draws = np.random.default_rng(seed).integers(0, count, (samples, count))
        for part in np.array_split(np.arange(len(points)), 1 + values.size * samples // 4_000_000):
            drawn = np.sort(values[part][:, draws], axis=2).reshape(-1, count)
            ends = np.quantile(_middle(drawn).reshape(len(part), samples), [(1 - level) / 2, (1 + level) / 2], axis=1)
            low[points[part]], high[points[part]] = ends
    return middle, low, high


def wilson(count: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """Return the interval of a share of which `count` of `total` were seen (Wilson 1927, JASA 22:209)."""
    if not total:
        return 0.0, 1.0
    share, extra = count / total, z * z / total
    middle, width = share + extra / 2, z * (share * (1 - share) / total + extra / (4 * total)) ** 0.5
    return max(0.0, (middle - width) / (1 + extra)), min(1.0, (middle + width) / (1 + extra))


def _middle(ordered: np.ndarray) -> np.ndarray:
    """Return the mean of the middle half of each row (m, n) of ordered values."""
    count = ordered.shape[1]
    return ordered[:, count // 4 : count - count // 4].mean(axis=1)

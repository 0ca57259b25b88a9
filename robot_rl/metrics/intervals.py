"""Figures of a few runs: the interquartile mean and its bootstrap interval (Agarwal et al. 2021, arXiv 2108.13264).

As in their library rliable a quarter of the values, rounded down, is cut off at either end.
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


def _middle(ordered: np.ndarray) -> np.ndarray:
    """Return the mean of the middle half of each row (m, n) of ordered values."""
    count = ordered.shape[1]
    return ordered[:, count // 4 : count - count // 4].mean(axis=1)

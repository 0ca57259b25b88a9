"""The margin of a property: how far it may be from the nominal value, from episodes at some values.

Success falls from the nominal value outwards. Shares and means at neighboring values are therefore pooled by isotonic
regression, and the margin is the place at which the pooled curve falls below its bound. Its interval comes from curves
that are drawn from the posterior of each share (Jeffreys) and the sampling error of each mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from robot_rl.certify.worlds import Episodes, Goal

DRAWS = 400
"""Curves of which the interval is taken."""
LEVEL = 0.95
FAILURE = "failure"
"""The name of the limit of success, next to that of a metric."""


@dataclass(slots=True)
class Point:
    """A value of a property, and its episodes.

    Attributes:
        share: Place between the nominal value (0) and the end of the search (1).
        value: The value.
        successes: Episodes without failure.
        episodes: All.
        metric: Their values of the metric, those that have it.
    """

    share: float
    value: float
    successes: int
    episodes: int
    metric: NDArray[np.float64] = field(repr=False)

    @classmethod
    def of(cls, share: float, value: float, found: Episodes) -> Point:
        """Return the point of some episodes."""
        known = found.metric[~np.isnan(found.metric)]
        return cls(share, value, int(found.success.sum()), len(found.success), known)

    @property
    def success(self) -> float:
        """The share of episodes without failure."""
        return self.successes / self.episodes

    @property
    def mean(self) -> float:
        """The mean of the metric; NaN if no episode has it."""
        return float(self.metric.mean()) if len(self.metric) else math.nan

    def worth(self, goal: Goal | None) -> float:
        """Return a number that is less at worse points, also among those at which all episodes succeed."""
        slack = _slack(goal, self.mean)
        return self.success + (slack if math.isfinite(slack) else 0.0)

    def slack(self, bound: float, goal: Goal | None) -> float:
        """Return how far success and metric are within their bounds, the lesser one."""
        return min(self.success - bound, _slack(goal, self.mean))


@dataclass(frozen=True, slots=True)
class Margin:
    """Where a curve falls below its bounds, as shares of the way to the end of the search.

    Attributes:
        share: The estimate; 1 if the whole way holds.
        lo: Lower end of its 95 % interval.
        hi: Upper end.
        holds_to_end: Whether nothing failed up to the end.
        limit: `FAILURE`, or the metric that leaves its bound first; "" at the end.
    """

    share: float
    lo: float
    hi: float
    holds_to_end: bool
    limit: str


def find_margin(points: list[Point], bound: float, goal: Goal | None, seed: int = 0) -> Margin:
    """Return the margin of a curve whose first point is the nominal value.

    Args:
        points: In order of their shares.
        bound: Least success.
        goal: The metric with its bound.
        seed: Of the draws.
    """
    shares = np.array([point.share for point in points])
    counts = np.array([float(point.episodes) for point in points])
    success = np.array([point.success for point in points])
    metric = np.array([_slack(goal, point.mean) for point in points])
    curves = [_pooled(success, counts) - bound, _pooled(np.where(np.isfinite(metric), metric, 1.0), counts)]
    places = [crossing(shares, curve) for curve in curves]
    share = min(places)
    limit = "" if share >= 1.0 and min(curve[-1] for curve in curves) >= 0 else FAILURE
    if limit and goal is not None and places[1] < places[0]:
        limit = goal.name
    rng, drawn = np.random.default_rng(seed), np.empty(DRAWS)
    wins = np.array([point.successes for point in points])
    spread = np.array([_error(goal, point) for point in points])
    for draw in range(DRAWS):
        chance = rng.beta(wins + 0.5, counts - wins + 0.5)
        worth = np.where(np.isfinite(metric), metric, 1.0) + spread * rng.standard_normal(len(points))
        drawn[draw] = min(crossing(shares, _pooled(chance, counts) - bound), crossing(shares, _pooled(worth, counts)))
    lo, hi = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Margin(share, min(float(lo), share), max(float(hi), share), not limit, limit)


def next_shares(points: list[Point], bound: float, goal: Goal | None, count: int) -> list[float]:
    """Return `count` shares inside the pair of points between which the curve falls below its bounds; [] if none."""
    margin = find_margin(points, bound, goal)
    if margin.holds_to_end or margin.share <= 0.0:
        return []
    after = next((k for k, point in enumerate(points) if point.share > margin.share), len(points) - 1)
    low, high = points[after - 1].share, points[after].share
    return [low + (high - low) * (k + 1) / (count + 1) for k in range(count)]


def crossing(shares: NDArray[np.float64], slack: NDArray[np.float64]) -> float:
    """Return the first place at which a curve falls below 0, linear between points; 0 if the first one is, else 1."""
    below = np.flatnonzero(slack < 0)
    if not len(below):
        return 1.0
    k = int(below[0])
    if k == 0:
        return 0.0
    before, after = slack[k - 1], slack[k]
    return float(shares[k - 1] + (shares[k] - shares[k - 1]) * before / (before - after))


def _pooled(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the nearest falling curve to some values (pool adjacent violators; Ayer et al. 1955)."""
    blocks: list[list[float]] = []
    for value, weight in zip(values, weights, strict=True):
        blocks.append([value, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] < blocks[-1][0]:
            last = blocks.pop()
            total = blocks[-1][1] + last[1]
            mean = (blocks[-1][0] * blocks[-1][1] + last[0] * last[1]) / total
            blocks[-1] = [mean, total, blocks[-1][2] + last[2]]
    return np.concatenate([np.full(int(count), value) for value, _, count in blocks])


def _slack(goal: Goal | None, mean: float) -> float:
    if goal is None or goal.bound is None:
        return math.inf
    return -1.0 if math.isnan(mean) else goal.slack(mean)


def _error(goal: Goal | None, point: Point) -> float:
    """Return the standard error of a point's slack by its metric."""
    if goal is None or goal.bound is None or len(point.metric) < 2:
        return 0.0
    return float(point.metric.std(ddof=1)) / math.sqrt(len(point.metric)) / (abs(goal.bound) or 1.0)

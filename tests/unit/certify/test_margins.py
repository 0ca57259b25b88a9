"""Margins by curves that are made by hand."""

import numpy as np
import pytest

from robot_rl.certify.margins import FAILURE, Point, crossing, find_margin, next_shares
from robot_rl.certify.worlds import Goal
from robot_rl.metrics.intervals import wilson

ERROR = Goal(name="error", unit="m/s", better="smaller", bound=0.2)


def curve(*rows, episodes=100):
    """Points of (share, success) or (share, success, metric)."""
    return [
        Point(row[0], row[0], round(row[1] * episodes), episodes, np.full(episodes, row[2] if len(row) > 2 else 0.1))
        for row in rows
    ]


def test_a_margin_is_where_success_falls_below_its_bound():
    """From 1.0 at 0.4 to 0.6 at 0.8 the line is at 0.9 a quarter of the way."""
    margin = find_margin(curve((0, 1.0), (0.4, 1.0), (0.8, 0.6), (1.0, 0.0)), 0.9, None)
    assert margin.share == pytest.approx(0.5)
    assert margin.lo <= 0.5 <= margin.hi
    assert (margin.holds_to_end, margin.limit) == (False, FAILURE)


def test_more_episodes_give_a_narrower_interval():
    rows = ((0, 1.0), (0.4, 0.96), (0.8, 0.6))
    few, many = (find_margin(curve(*rows, episodes=n), 0.9, None) for n in (25, 1000))
    assert many.hi - many.lo < 0.5 * (few.hi - few.lo)


def test_the_metric_limits_where_nothing_fails():
    margin = find_margin(curve((0, 1.0, 0.1), (0.5, 1.0, 0.1), (1.0, 1.0, 0.3)), 0.9, ERROR)
    assert margin.share == pytest.approx(0.75)
    assert margin.limit == "error"


def test_a_chance_failure_on_the_way_is_pooled_with_better_points_beyond_it():
    """20 of 24 at one value, and 24 of 24 at both next ones: it is not a margin."""
    margin = find_margin(curve((0, 1.0), (0.2, 20 / 24), (0.4, 1.0), (1.0, 1.0), episodes=24), 0.9, None)
    assert margin.holds_to_end
    assert margin.share == 1.0


def test_a_policy_that_fails_already_has_no_margin():
    points = curve((0, 0.5), (1.0, 0.4))
    margin = find_margin(points, 0.9, None)
    assert (margin.share, margin.holds_to_end) == (0.0, False)
    assert next_shares(points, 0.9, None, 3) == []


def test_the_next_values_are_between_the_last_that_holds_and_the_first_that_does_not():
    points = curve((0, 1.0), (0.4, 1.0), (0.8, 0.2), (1.0, 0.0))
    assert next_shares(points, 0.9, None, 3) == pytest.approx([0.5, 0.6, 0.7])


def test_a_curve_below_its_bound_from_the_start_crosses_there():
    assert crossing(np.array([0.0, 1.0]), np.array([-0.1, 1.0])) == 0.0


def test_wilsons_interval_of_none_and_of_half():
    """Of 0 of 10 it ends at z^2 / (10 + z^2); of a half it is symmetric."""
    z2 = 1.96**2
    assert wilson(0, 10) == pytest.approx((0.0, z2 / (10 + z2)))
    assert sum(wilson(5, 10)) == pytest.approx(1.0)
    assert wilson(0, 0) == (0.0, 1.0)

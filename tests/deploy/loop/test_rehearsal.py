"""When the network is rehearsed: shortly before the next state, whatever happened to those before."""

import numpy as np
import pytest

PERIOD = 2_000_000
COST = 150_000
NOW = 1_000_000_000 + 500 * PERIOD


@pytest.fixture
def rehearsal(rt):
    """One that received a second of states, each delayed by 0 to 100 us, the last one on time."""
    rng = np.random.default_rng(3)
    found = rt.Rehearsal()
    for number in range(500):
        found.on_state(NOW - (500 - number) * PERIOD + int(rng.integers(0, 100_000)))
        found.on_done(COST)
    found.on_state(NOW)
    return found


def test_begins_so_that_it_ends_before_the_next_state(rehearsal):
    assert abs(rehearsal.expected_ns - (NOW + PERIOD)) < 120_000
    assert rehearsal.expected_ns - 2.5 * COST < rehearsal.begin_ns < rehearsal.expected_ns - COST


@pytest.mark.parametrize("lost", [1, 3, 20])
def test_lost_states_put_it_off_by_whole_periods(rehearsal, lost):
    state = NOW + (lost + 1) * PERIOD
    rehearsal.on_state(state)
    assert abs(rehearsal.expected_ns - (state + PERIOD)) < 120_000


def test_a_state_that_was_held_up_is_followed_by_one_on_time(rehearsal):
    rehearsal.on_state(NOW + 2 * PERIOD - 100_000)
    rehearsal.on_state(NOW + 2 * PERIOD)
    assert abs(rehearsal.expected_ns - (NOW + 3 * PERIOD)) < 150_000


def test_after_a_pause_it_learns_anew(rehearsal):
    state = NOW + 3_000_000_000
    rehearsal.on_state(state)
    assert rehearsal.begin_ns == 0
    for number in range(1, 40):
        rehearsal.on_state(state + number * 2 * PERIOD)
    assert abs(rehearsal.expected_ns - (state + 40 * 2 * PERIOD)) < 50_000
    assert 0 < rehearsal.begin_ns < rehearsal.expected_ns


def test_no_rehearsal_where_there_is_no_room(rehearsal):
    for _ in range(100):
        rehearsal.on_done(PERIOD)
    assert rehearsal.begin_ns == 0

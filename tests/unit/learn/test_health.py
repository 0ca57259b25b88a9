"""A training that hardly any sample is left of ends; one bad iteration, or one bad world, ends nothing."""

import pytest

from robot_rl.errors import NotRetryableError
from robot_rl.learn.health import PATIENCE, QuarantineLimit


def row(iteration, bad):
    return {"iteration": iteration, "quarantined": bad, "quarantined/reward": bad - 1, "quarantined/state": 1.0}


def test_several_in_a_row_end_it_and_the_line_names_the_reason():
    limit = QuarantineLimit(0.5)
    limit.check(row(1, 3), 128)
    for iteration in range(2, PATIENCE + 1):
        limit.check(row(iteration, 100), 128)
    with pytest.raises(NotRetryableError) as caught:
        limit.check(row(PATIENCE + 1, 100), 128)
    line = str(caught.value)
    assert line.startswith("max_quarantined=0.5: 500 of 640 samples of iterations 2 to 6 were quarantined")
    assert "most for 'reward'" in line


def test_a_good_iteration_between_them_ends_nothing():
    limit = QuarantineLimit(0.5)
    for iteration in range(1, 40):
        limit.check(row(iteration, 128 if iteration % PATIENCE else 64), 128)
    limit.finish(40)


def test_a_short_training_of_bad_iterations_alone():
    limit = QuarantineLimit(0.5)
    limit.check(row(1, 128), 128)
    with pytest.raises(NotRetryableError, match="128 of 128 samples of iteration 1 were"):
        limit.finish(1)


def test_with_1_nothing_is_ended():
    limit = QuarantineLimit(1.0)
    for iteration in range(1, 40):
        limit.check(row(iteration, 128), 128)
    limit.finish(40)
    QuarantineLimit(0.5).finish(0)

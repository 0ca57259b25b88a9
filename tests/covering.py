"""What stands for all in the tests that every change needs: of a test's values some are short, the others are long."""

import pytest
from robot_rl_tasks.registry import get_task, list_tasks

COVERING = ("ant_v5", "cartpole", "g1_track", "go2_flat", "go2_team", "panda_lift_vision")
"""A model that is a whole scene, an effort task, motions, a legged robot, a team, objects with images."""


def chosen(values, *always):
    """Return values, or tuples of values, to parametrize by; all but `always` are for the long tests."""
    values = list(values)
    assert set(always) <= set(values)
    rows = {value: value if isinstance(value, tuple) else (value,) for value in values}
    return [value if value in always else pytest.param(*rows[value], marks=pytest.mark.long) for value in values]


def tasks(keep=lambda task: True, always=COVERING):
    """Return the tasks that `keep` accepts, to parametrize by; all but `always` are for the long tests."""
    names = [name for name in list_tasks() if keep(get_task(name))]
    return chosen(names, *(name for name in always if name in names))

"""The tasks that stand for all in the tests that every change needs: each feature of a task is in one of them."""

import pytest
from robot_rl_tasks.registry import get_task, list_tasks

COVERING = ("ant_v5", "cartpole", "g1_track", "go2_flat", "go2_team", "panda_lift_vision")
"""A model that is a whole scene, an effort task, motions, a legged robot, a team, objects with images."""


def tasks(keep=lambda task: True):
    """Return the tasks that `keep` accepts, to parametrize by; all but the covering ones are for the long tests."""
    names = [name for name in list_tasks() if keep(get_task(name))]
    return [name if name in COVERING else pytest.param(name, marks=pytest.mark.long) for name in names]

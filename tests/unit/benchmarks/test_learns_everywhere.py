"""What counts as learned, for any task that declares when it is solved."""

import pytest
from learns_everywhere import goal, has_learned, read_options
from robot_rl_tasks.registry import get_task, list_tasks

from robot_rl.errors import UserError

SOLVED = [name for name in list_tasks() if get_task(name).solved]


@pytest.mark.parametrize("name", [name for name in SOLVED if name != "cartpole"])
def test_a_task_is_judged_by_its_own_metric_in_its_direction(name):
    task = get_task(name)
    metric, bound = goal(task)
    sign = -1.0 if task.metrics[metric].info.better == "smaller" else 1.0
    for value, learned in ((bound, True), (bound + 0.01 * sign, True), (bound - 0.01 * sign, False), (None, False)):
        assert has_learned(task, {metric: value, "failure_rate": 0.0}) is learned


def test_a_go2_that_walks_may_hardly_fall_and_a_pole_is_judged_by_its_return():
    walk, pole = get_task("go2_flat"), get_task("cartpole")
    assert not has_learned(walk, {"lin_vel_error": 0.1, "failure_rate": 0.03})
    assert has_learned(walk, {"lin_vel_error": 0.1, "fall_rate": 0.02})
    assert has_learned(get_task("panda_reach"), {"success": 0.9, "failure_rate": 0.03})
    assert [has_learned(pole, {"return": r, "std": s}) for r, s in ((6.5, 0.5), (5.5, 0.5), (6.5, 1.5))] == [
        True,
        False,
        False,
    ]


def test_a_task_without_solved_is_refused():
    name = next(name for name in list_tasks() if not get_task(name).solved)
    with pytest.raises(UserError, match=f"task={name}: does not declare when it is solved; give it Task.solved"):
        read_options([f"task={name}"])
    with pytest.raises(UserError, match="panda_reach"):
        read_options(["task=panda_reech"])

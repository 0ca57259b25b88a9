"""Every task of the registry: a run in two pieces is the run, bit for bit."""

import pytest
from robot_rl_tasks.registry import get_task

from tests.covering import tasks
from tests.resuming import assert_same_run, in_two, learner


@pytest.mark.parametrize("name", tasks(always=("ant_v5", "cartpole", "go2_flat")))
def test_a_resumed_run_is_the_run(name, maker, tmp_path):
    task = get_task(name)
    own = {key: value for key, value in task.learner.items() if not key.endswith("hidden") and key != "num_steps"}
    whole, resumed = in_two(maker(task), learner(**own | {"ppo.epochs": 1}), tmp_path)
    assert_same_run(whole, resumed)
    assert sum(row["episodes"] for row in (whole.pop_metrics(),)) == 0  # Everything was read.

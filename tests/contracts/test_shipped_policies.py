"""The policies that come with the project, as bundles, do what their tasks are about."""

import pytest
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

from robot_rl.evaluation import evaluate, evaluation_task
from robot_rl.evaluation.policies import ExportedPolicy
from robot_rl.runs.policies import find_bundle
from tests.covering import chosen

ROBOTS = 80
"""At most so many take part; there are 40 worlds of one or of two."""
PROMISES = {
    "g1_flat": ("failure_rate", 0.0, 0.2),
    "g1_rough": ("failure_rate", 0.0, 0.2),
    "g1_track": ("joint_error", 0.0, 0.1),
    "go2_getup": ("standing", 0.9, 1.0),
    "go2_jump": ("on_box", 0.8, 1.0),
    "go2_team": ("failure_rate", 0.0, 0.1),
    "panda_drawer": ("success", 0.95, 1.0),
    "panda_lift": ("success", 0.75, 1.0),
    "panda_lift_vision": ("success", 0.4, 1.0),
    "panda_pair_lift": ("success", 0.8, 1.0),
    "panda_reach": ("success", 0.95, 1.0),
}
"""Task -> a metric, the least and the greatest mean of it over episodes."""


@pytest.mark.parametrize("name", chosen(PROMISES, "panda_reach"))
def test_a_shipped_policy_keeps_its_promise(name):
    metric, least, most = PROMISES[name]
    task = evaluation_task(get_task(name))
    env = make_env(task, num_envs=ROBOTS // max(2, len(task.robots)), seed=12)
    found = evaluate(env, ExportedPolicy(find_bundle(name), env), seconds=min(10.0, task.episode_length_s))
    assert least <= found[metric]["mean"] <= most
    env.close()

"""Every registered task, built once: a new folder under tasks/ is tested without a change here."""

import pytest
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

from tests.covering import tasks
from tests.resuming import maker, one_thread  # noqa: F401


def pytest_generate_tests(metafunc):
    if "task_name" in metafunc.fixturenames:
        metafunc.parametrize("task_name", tasks(always=("ant_v5", "cartpole", "go2_flat", "go2_team")), scope="session")


@pytest.fixture(scope="session")
def build(task_name):
    """build(num_envs=4, seed=0, ...): a fresh environment of the task."""

    def make(**options):
        return make_env(get_task(task_name), **{"num_envs": 4, "seed": 0, "num_threads": 1} | options)

    return make


@pytest.fixture(scope="session")
def env(build):
    """One environment of the task that tests share; they leave it stepped, and unchanged otherwise."""
    return build()

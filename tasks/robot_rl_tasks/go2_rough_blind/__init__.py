"""Unitree Go2 crosses rough ground blind: the task `go2_rough`, its actor without the height scan."""

from robot_rl_envs.task import Task

from robot_rl_tasks import go2_rough


def make_task() -> Task:
    """Build the task."""
    return go2_rough.make_task(sees=False)

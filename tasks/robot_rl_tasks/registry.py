"""Find tasks: folders here with a module that has ``make_task()``, plug-ins, and ``module:name`` of any package.

A module with a line ``REQUIRES = "package"`` is a task only if that package is installed; the extra of that name
brings it. An entry point in the group ``robot_rl.tasks`` names a function like ``make_task``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from robot_rl_assets import plugins

if TYPE_CHECKING:
    from robot_rl_envs.task import Task

REGISTRY = plugins.Registry(
    plugins.TASKS, "task", "robot_rl_tasks", Path(__file__).parent, "*/__init__.py", lambda module: module.make_task()
)


def list_tasks() -> list[str]:
    """Names of all tasks, those of other packages among them, sorted; whether each can be built is not tried."""
    return REGISTRY.names()


def get_task(name: str) -> Task:
    """Build a fresh copy of a task.

    Args:
        name: a name from `list_tasks`, or ``module:name`` of a function that returns a task.

    Raises:
        ValueError: no such task, and the line gives the nearest name; a package that it requires is not installed; its
            file is wrong, and the line names the place; or its function does not return a task of that name.
    """
    from robot_rl_envs.task import Task

    task = plugins.make(REGISTRY.get(name), Task, f"task={name}", "must lead to a function that returns a Task")
    if ":" not in name and task.name != name:
        raise ValueError(f"task={name}: its name is '{task.name}'; must be '{name}', as it is registered")
    if not plugins.NAME.fullmatch(task.name):
        raise ValueError(f"task={name}: its name is '{task.name}'; must be letters, digits, _, - and .")
    return task

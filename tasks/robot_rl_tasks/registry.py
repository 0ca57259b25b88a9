"""Find tasks: folders here with a module that has ``make_task()``, plug-ins, and ``module:name`` of any package.

A module with a line ``REQUIRES = "package"`` is a task only where that package is installed; the extra of that name
brings it. An entry point in the group ``robot_rl.tasks`` names a function like ``make_task``.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING

from robot_rl_assets import plugins
from robot_rl_assets.authored import run

if TYPE_CHECKING:
    from robot_rl_envs.task import Task

_REQUIRES = re.compile(r'^REQUIRES = "(\w+)"$', re.MULTILINE)


def own_tasks() -> list[str]:
    """Names of the tasks of this package that can be built here, sorted."""
    here = Path(__file__).parent
    return sorted(path.parent.name for path in here.glob("*/__init__.py") if not _missing(path))


def list_tasks() -> list[str]:
    """Names of all tasks, those of other packages among them, sorted; whether each can be built is not tried."""
    return sorted({*own_tasks(), *plugins.list_names(plugins.TASKS)})


def get_task(name: str) -> Task:
    """Build a fresh copy of a task.

    Args:
        name: a name from `list_tasks`, or ``module:name`` of a function that returns a task.

    Raises:
        ValueError: no such task, and the line gives the nearest name; a package that it requires is not installed; its
            file is wrong, and the line names the place; or what the name leads to returns no task of that name.
    """
    own = own_tasks()
    if name in own:
        return _checked(name, run(f"task={name!r}", f"robot_rl_tasks.{name}", lambda module: module.make_task()))
    path = Path(__file__).parent / name / "__init__.py"
    if name.isidentifier() and path.is_file() and (package := _missing(path)):
        raise ValueError(f"task={name!r}: needs the package {package}; pip install 'robot-rl[{package}]'")
    make = plugins.load(plugins.TASKS, name, "task", own)
    return _checked(name, make)


def _checked(name: str, make: object) -> Task:
    """What a plug-in's function returns, where that is a task of the registered name."""
    from robot_rl_envs.task import Task

    task = plugins.make(make, Task, f"task={name}", "must lead to a function that returns a Task")
    if ":" not in name and task.name != name:
        raise ValueError(f"task={name}: its name is '{task.name}'; must be '{name}', as it is registered")
    if not plugins.NAME.fullmatch(task.name):
        raise ValueError(f"task={name}: its name is '{task.name}'; must be letters, digits, _, - and .")
    return task


def _missing(path: Path) -> str:
    """The package that a task's module requires and that is not installed; empty where nothing is missing."""
    found = _REQUIRES.search(path.read_text(encoding="utf-8", errors="replace"))
    return found[1] if found and importlib.util.find_spec(found[1]) is None else ""

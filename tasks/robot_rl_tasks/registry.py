"""Find tasks: every folder here whose module has ``make_task()``.

A module with a line ``REQUIRES = "package"`` is a task only where that package is installed; the extra of that name
brings it.
"""

from __future__ import annotations

import difflib
import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING

from robot_rl_assets.authored import run

if TYPE_CHECKING:
    from robot_rl_envs.task import Task

_REQUIRES = re.compile(r'^REQUIRES = "(\w+)"$', re.MULTILINE)


def list_tasks() -> list[str]:
    """Names of all tasks that can be built here, sorted."""
    here = Path(__file__).parent
    return sorted(path.parent.name for path in here.glob("*/__init__.py") if not _missing(path))


def get_task(name: str) -> Task:
    """Build a fresh copy of the task ``name``.

    Raises:
        ValueError: no such task, and the line gives the nearest name; or a package that it requires is not installed;
            or its file is wrong, and the line names the place.
    """
    names = list_tasks()
    if name not in names:
        path = Path(__file__).parent / name / "__init__.py"
        package = _missing(path) if name.isidentifier() and path.is_file() else ""
        if package:
            raise ValueError(f"task={name!r}: needs the package {package}; pip install 'robot-rl[{package}]'")
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"task={name!r}: must be one of {', '.join(names)}{hint}")
    task = run(f"task={name!r}", f"robot_rl_tasks.{name}", lambda module: module.make_task())
    if type(task).__name__ != "Task":
        raise ValueError(
            f"task={name!r}: make_task() in robot_rl_tasks/{name} returned {task!r}; it must return a Task"
        )
    return task


def _missing(path: Path) -> str:
    """The package that a task's module requires and that is not installed; empty where nothing is missing."""
    found = _REQUIRES.search(path.read_text(encoding="utf-8", errors="replace"))
    return found[1] if found and importlib.util.find_spec(found[1]) is None else ""

"""Find tasks: every folder here whose module has ``make_task()``."""

from __future__ import annotations

import difflib
import importlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robot_rl_envs.task import Task


def list_tasks() -> list[str]:
    """Names of all tasks, sorted."""
    here = Path(__file__).parent
    return sorted(path.parent.name for path in here.glob("*/__init__.py"))


def get_task(name: str) -> Task:
    """Build a fresh copy of the task ``name``.

    Raises:
        ValueError: no such task; the line gives the nearest name.
    """
    names = list_tasks()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"task={name!r}: must be one of {', '.join(names)}{hint}")
    return importlib.import_module(f"robot_rl_tasks.{name}").make_task()

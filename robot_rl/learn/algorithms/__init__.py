"""Algorithms: each folder here whose package has a `Learner`, a subclass of `LearnerCfg`, and those of plug-ins."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from robot_rl.config import LearnerCfg, apply_overrides, from_dict
from robot_rl.errors import UserError, suggest
from robot_rl.learn.plugins import load_object

SHARED = ("actor_groups", "critic_groups")
"""Presets of a task that suit any learner."""
GROUP = "robot_rl.algorithms"
"""Entry points of this group name a subclass of `LearnerCfg`."""


def list_learners() -> list[str]:
    """Return the names of all learners, sorted: those of this package and those of plug-ins."""
    own = [module.name for module in pkgutil.iter_modules(__path__) if module.ispkg]
    return sorted({*own, *(point.name for point in entry_points(group=GROUP))})


def get_learner(name: str) -> type[LearnerCfg]:
    """Return the settings' class of a learner.

    Args:
        name: a folder's name here, an entry point's, or "module:Class" of what is not installed.

    Raises:
        UserError: there is none of that name (the nearest is offered), or it cannot be imported.
    """
    own = [module.name for module in pkgutil.iter_modules(__path__) if module.ispkg]
    points = [point for point in entry_points(group=GROUP) if point.name == name]
    if name in own:
        if points:
            raise UserError(f"learner={name}: {_distribution(points[0])} has one of that name, too; rename it there")
        return importlib.import_module(f"{__name__}.{name}").Learner
    if len(points) > 1:
        both = " and ".join(sorted(map(_distribution, points)))
        raise UserError(f"learner={name}: {both} both have one of that name; uninstall one")
    if not points and ":" not in name:
        raise UserError(
            f"learner={name}: must be one of {', '.join(list_learners())}, or module:Class; "
            f"{suggest(name, list_learners())}"
        )
    source = f" (of {_distribution(points[0])})" if points else ""
    value = points[0].value if points else name
    found = load_object(value, f"learner={name}{source}")
    if not (isinstance(found, type) and issubclass(found, LearnerCfg)):
        raise UserError(f"learner={name}{source}: is {found!r}, must be a subclass of robot_rl.config.LearnerCfg")
    return found


def preset_learner(name: str, presets: Mapping[str, Mapping[str, Any]]) -> LearnerCfg:
    """Return a learner's settings for a task before anything is overridden.

    Args:
        name: the learner.
        presets: the task's settings by learner. One that is not among them takes those named in SHARED from "ppo".

    Raises:
        UserError: an unknown learner, or presets that do not fit it.
    """
    cls = get_learner(name)
    mine = presets.get(name, presets.get(cls.presets) if cls.presets else None)
    if mine is None:
        mine = {key: value for key, value in presets.get("ppo", {}).items() if key in SHARED}
    return apply_overrides(read_learner({"name": name}), mine)


def read_learner(values: Mapping[str, Any]) -> LearnerCfg:
    """Return a learner's settings from plain values, "name" among them.

    Raises:
        UserError: an unknown learner or setting, or a value that does not fit.
    """
    cls, rest = get_learner(str(values.get("name", "ppo"))), dict(values)
    if "teacher" in rest and not hasattr(cls, "teacher"):  # Of runs of 0.1.0, where every learner had one.
        run = (rest.pop("teacher") or {}).get("run")
        if run:
            raise UserError(f"teacher.run: '{run}' is for learner=distill, this is learner={rest.get('name')}")
    try:
        return from_dict(cls, rest)
    except UserError:
        raise
    except Exception as error:
        line = f"{type(error).__name__}: {error}"
        raise UserError(f"learner={rest.get('name')}: its settings do not check, {line}") from error


def _distribution(point: Any) -> str:
    return point.dist.name if point.dist is not None else point.value

"""Algorithms: each folder here with an attribute `Learner`, a subclass of `LearnerCfg`, and those of plug-ins."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robot_rl.errors import UserError
from robot_rl.plugins import ALGORITHMS, Registry, named_here
from robot_rl.settings import LearnerCfg, apply_overrides, from_dict, to_dict

SHARED = ("actor_groups", "critic_groups")
"""Presets of a task that suit any learner."""
REGISTRY = Registry(
    ALGORITHMS, "learner", __name__, Path(__file__).parent, "*/__init__.py", lambda module: module.Learner
)
REPLACED = {
    "happo": "learner=examples.happo:HAPPOLearnerCfg in a checkout",
    "ippo": "learner=mappo view=own",
    "joint": "learner=mappo",
}
"""What to use instead of learners that were here."""


def get_learner(name: str) -> type[LearnerCfg]:
    """Return the settings' class of a learner: a folder's name here, an entry point's, or "module:Class".

    Raises UserError if there is none with that name (the nearest is offered), it was removed, or it cannot be imported.
    """
    if name in REPLACED and name not in REGISTRY.names():
        raise UserError("learner", name, "was removed", f"use {REPLACED[name]}")
    found = REGISTRY.get(name)
    if not (isinstance(found, type) and issubclass(found, LearnerCfg)):
        raise UserError("learner", name, f"is {found!r}, must be a subclass of robot_rl.settings.LearnerCfg")
    return found


def preset_learner(name: str, presets: Mapping[str, Mapping[str, Any]]) -> LearnerCfg:
    """Return a learner's settings for a task before overrides, from the task's presets by learner.

    A learner without presets takes those of the first in its `presets` that has some, else those named in SHARED from
    "ppo". Raises UserError for an unknown learner, or presets that do not fit it.
    """
    cls = get_learner(name)
    mine = next((presets[key] for key in (name, *cls.presets) if key in presets), None)
    if mine is None:
        mine = {key: value for key, value in presets.get("ppo", {}).items() if key in SHARED}
    return apply_overrides(read_learner({"name": name}), mine)


def read_learner(values: Mapping[str, Any]) -> LearnerCfg:
    """Return a learner's settings from plain values, "name" among them; raise UserError for an invalid one."""
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
        raise UserError("learner", rest.get("name"), f"its settings do not check, {line}") from error


def owners_of(key: str) -> list[str]:
    """Return the learners here that have a setting with this dotted name."""
    found = []
    for name in REGISTRY.files():
        node: Any = to_dict(get_learner(name)())
        for part in key.split("."):
            node = node.get(part) if isinstance(node, Mapping) else None
        if node is not None:
            found.append(name)
    return found


def learner_code(name: Any, settings: Mapping[str, Any]) -> list[str]:
    """Return each "module:name" that settings of a learner, with unchecked types, would import."""
    found = [name, settings.get("converter")]
    several = settings.get("auxiliaries")
    found += several if isinstance(several, list | tuple) else []
    named = [text for text in found if isinstance(text, str) and ":" in text]
    return named_here(ALGORITHMS, name, REGISTRY.files()) + named

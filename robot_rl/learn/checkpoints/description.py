"""A checkpoint's description, migrated to the current schema and checked before anything uses it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

SCHEMA = 3
"""Schema of the checkpoints that are written. 2: release 0.1.0; 3: auxiliary objectives instead of extras."""
OLDEST = 2
MAX_PROCESSES, MAX_SIZE = 65536, 2**24
Tensors = dict[str, "Tensor"]
Meta = dict[str, Any]


def migrate(tensors: Mapping[str, Tensor], meta: Mapping[str, Any], path: Path) -> tuple[Tensors, Meta]:
    """Return a checkpoint's tensors and description (without "schema") in the current schema.

    Raises UserError if it was made by a newer version, or its schema is not a number.
    """
    now = dict(meta)
    version = now.pop("schema", 1)
    if not _is_whole(version, 1):
        raise UserError(f"checkpoint {path}: schema {version!r}, must be a whole number of 1 to {SCHEMA}")
    if version > SCHEMA:
        raise UserError(f"checkpoint {path}: schema {version}, made by a newer robot-rl; this one reads up to {SCHEMA}")
    if version < OLDEST:
        raise UserError(f"checkpoint {path}: schema {version}, older than release 0.1.0; train it again")
    kept = dict(tensors)
    for step in range(version, SCHEMA):
        kept, now = STEPS[step](kept, now)
    return kept, now


def _to_3(tensors: Tensors, meta: Meta) -> tuple[Tensors, Meta]:
    """Rename the extras of 0.1.0: auxiliary objectives."""
    renamed = {re.sub(r"^extra\.", "auxiliary.", name): tensor for name, tensor in tensors.items()}
    if "extras" in meta:
        meta = {**{key: value for key, value in meta.items() if key != "extras"}, "auxiliaries": meta["extras"]}
    return renamed, meta


STEPS: dict[int, Callable[[Tensors, Meta], tuple[Tensors, Meta]]] = {2: _to_3}
"""By the schema that a step starts from: tensors and description in, those of the next schema out."""


def check_description(path: Path, meta: Mapping[str, Any]) -> None:
    """Raise UserError for a field of the wrong kind; a missing field is none."""
    for name, (is_right, right) in FIELDS.items():
        if name in meta and not is_right(meta[name]):
            shown = repr(meta[name])
            shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
            raise UserError(f"checkpoint {path}: damaged, '{name}' is {shown}, must be {right}")


def need(path: Path, meta: Mapping[str, Any], *names: str) -> None:
    """Raise UserError, with the name, for a missing field."""
    for name in names:
        if name not in meta:
            raise UserError(f"checkpoint {path}: damaged, its description has no '{name}'")


def read_counters(path: Path, meta: Mapping[str, Any]) -> tuple[int, int, float]:
    """Return iterations, control steps and seconds [s] of a checkpoint; raise UserError if one is missing."""
    need(path, meta, "iteration", "env_steps", "time_s")
    return meta["iteration"], meta["env_steps"], float(meta["time_s"])


def _is_whole(value: Any, least: int = 0, most: float = 2**62) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e18


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def _are_groups(value: Any) -> bool:
    return _is_mapping(value) and all(map(_is_mapping, value.values()))


def _is_learner(value: Any) -> bool:
    return _is_mapping(value) and (value.get("precision") is None or _is_mapping(value["precision"]))


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _are_sizes(value: Any, least: int = 0) -> bool:
    return _is_list(value) and all(_is_whole(size, least, MAX_SIZE) for size in value)


def _is_metrics(value: Any) -> bool:
    return value is None or (_is_mapping(value) and all(_is_whole(value.get(name)) for name in ("bytes", "rows")))


def _are_dims(value: Any) -> bool:
    """Whether sizes are those of `robot_rl.learn.dims.EnvSpec`."""
    known = {*SIZES, *SHAPES, *TEAM, "choices"}
    if not _is_mapping(value) or not set(value) <= known or not set(value) >= set(SIZES[:3]):
        return False
    if not _is_team(value.get("agents", ()), value.get("roles", ()), value.get("role_sizes", {})):
        return False
    shapes = [value[name] for name in SHAPES if name in value]
    return (
        all(_is_whole(value[name], 0, MAX_SIZE) for name in SIZES if name in value)
        and _are_sizes(value.get("choices", ()))
        and all(_is_mapping(shape) and all(_are_sizes(part) for part in shape.values()) for shape in shapes)
    )


def _is_team(agents: Any, roles: Any, sizes: Any) -> bool:
    """Whether these are robots, the role of each, and sizes of every role."""
    names = [agents, roles]
    if not all(_is_list(each) and all(isinstance(name, str) for name in each) for each in names):
        return False
    return (
        len(agents) == len(roles)
        and _is_mapping(sizes)
        and set(sizes) == set(roles)
        and all(_are_sizes(pair, 1) and len(pair) == 2 for pair in sizes.values())
    )


def _is_mirror(value: Any) -> bool:
    if not _is_mapping(value) or not _are_sizes(value.get("permutation")) or not _is_list(value.get("sign")):
        return False
    perm, sign = value["permutation"], value["sign"]
    return len(sign) == len(perm) and set(perm) == set(range(len(sign))) and all(s in (-1, 1) for s in sign)


def _are_mirrors(value: Any) -> bool:
    if value is None:
        return True
    return _is_mapping(value) and set(value) == {"actor", "critic", "action"} and all(map(_is_mirror, value.values()))


SIZES = ("actor", "critic", "action", "num_values")
SHAPES = ("actor_shapes", "critic_shapes", "terms")
TEAM = ("agents", "roles", "role_sizes")
COUNT = (_is_whole, "a whole number of at least 0")
SETTINGS = (_is_mapping, "a group of settings")
FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "iteration": COUNT,
    "env_steps": COUNT,
    "time_s": (_is_time, "a number of at least 0"),
    "worlds": COUNT,
    "processes": (lambda value: _is_whole(value, 1, MAX_PROCESSES), f"a whole number of 1 to {MAX_PROCESSES}"),
    "threads": (
        lambda value: _are_sizes(value, 1),
        "the learner's threads in each process, whole numbers of at least 1",
    ),
    "learner": (_is_learner, "a group of settings, with precision as a group"),
    "auxiliaries": (_are_groups, "a group for each auxiliary objective"),
    "settings": SETTINGS,
    "dims": (_are_dims, "the sizes of observations and actions"),
    "mirror": (_are_mirrors, "nothing, or permutations and signs for actor, critic and action"),
    "metrics": (_is_metrics, "nothing, or bytes and rows"),
}

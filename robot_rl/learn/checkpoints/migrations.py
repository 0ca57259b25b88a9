"""Checkpoints of older versions, brought to today's schema one step at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from robot_rl.errors import UserError

SCHEMA = 3
"""Schema of the checkpoints that are written. 2: release 0.1.0; 3: auxiliary objectives instead of extras."""
OLDEST = 2
Tensors = dict[str, Tensor]
Meta = dict[str, Any]


def migrate(tensors: Mapping[str, Tensor], meta: Mapping[str, Any], path: Path) -> tuple[Tensors, Meta]:
    """Bring a checkpoint to today's schema.

    Args:
        tensors: its networks and learner by name.
        meta: its description.
        path: where it lies, for messages.

    Returns:
        Tensors and description as a checkpoint of today has them, the description without "schema".

    Raises:
        UserError: it was made by a newer version, or its schema is no number.
    """
    now = dict(meta)
    version = now.pop("schema", 1)
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
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
    """Rename what 0.1.0 called extras: auxiliary objectives."""
    renamed = {re.sub(r"^extra\.", "auxiliary.", name): tensor for name, tensor in tensors.items()}
    if "extras" in meta:
        meta = {**{key: value for key, value in meta.items() if key != "extras"}, "auxiliaries": meta["extras"]}
    return renamed, meta


STEPS: dict[int, Callable[[Tensors, Meta], tuple[Tensors, Meta]]] = {2: _to_3}
"""By the schema that a step starts from: tensors and description in, those of the next schema out."""

"""Checkpoints of older versions, brought to today's schema one step at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from robot_rl.errors import UserError

SCHEMA = 2
"""Schema of the checkpoints that are written. 1: those without a "schema"; 2: the worlds in a file of their own."""
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
    kept = dict(tensors)
    for step in range(version, SCHEMA):
        kept, now = STEPS[step](kept, now)
    return kept, now


def _to_2(tensors: Tensors, meta: Meta) -> tuple[Tensors, Meta]:
    """Deviations moved into the distribution; what was known of each world goes, since the worlds were not kept."""
    tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("worlds.")}
    if "actor.log_std" in tensors:
        tensors = _with_distribution(tensors)
        dims, learner = dict(meta.get("dims", {})), meta.get("learner", {})
        for part in ("actor", "critic"):  # One group each was all that there was.
            groups = learner.get(f"{part}_groups", ())
            if f"{part}_shapes" not in dims and part in dims and len(groups) == 1:
                dims[f"{part}_shapes"] = {groups[0]: [dims[part]]}
        meta = meta | {"dims": dims}
    return tensors, meta


def _with_distribution(tensors: Tensors) -> Tensors:
    """Rename the actor's deviation. It was the first of the actor's parameters and is the last, in the moments, too."""
    size = tensors["actor.log_std"].numel()
    body = sum(tensor.numel() for name, tensor in tensors.items() if name.startswith("actor.body."))
    renamed = {
        "actor.distribution.log_std" if name == "actor.log_std" else name: tensor for name, tensor in tensors.items()
    }
    for name in ("optimizer.exp_avg", "optimizer.exp_avg_sq"):
        if (moments := renamed.get(name)) is not None and len(moments) >= size + body:
            first, middle, rest = moments[:size], moments[size : size + body], moments[size + body :]
            renamed[name] = torch.cat((middle, first, rest))
    return renamed


STEPS: dict[int, Callable[[Tensors, Meta], tuple[Tensors, Meta]]] = {1: _to_2}
"""By the schema that a step starts from: tensors and description in, those of the next schema out."""

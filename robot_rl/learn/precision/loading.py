"""Weights that were trained in another precision than the network that takes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from robot_rl.errors import UserError
from robot_rl.settings import to_dict
from robot_rl.settings.precision import PrecisionCfg

GRID = re.compile(r"\.arithmetic\.\d+\.(step|fitted)$")
"""Names of the tensors that only a quantized layer has."""


def check_precision(path: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise UserError if a run would continue in another precision than its checkpoint's.

    Args:
        path: The checkpoint.
        before: The learner's settings of the checkpoint.
        now: Those of this run.
    """
    plain = to_dict(PrecisionCfg())
    old, new = plain | dict(before.get("precision") or {}), plain | dict(now.get("precision") or {})
    for name, value in new.items():
        if value != old[name]:
            shown = "precision" if name == PrecisionCfg.SHORT else f"precision.{name}"
            raise UserError(
                shown,
                _text(value),
                f"checkpoint {path.name} was trained with {_text(old[name])}",
                "continue with that, or begin another run from its weights by init_from=",
            )


def with_grids(tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a checkpoint's tensors with the grids that a network wants and they lack, and without those it does not.

    Grids are measured again after the first rollout.
    """
    kept = {name: tensor for name, tensor in tensors.items() if name in wanted or not GRID.search(name)}
    return kept | {name: tensor for name, tensor in wanted.items() if name not in kept and GRID.search(name)}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "[" + ",".join(map(str, value)) + "]" if isinstance(value, list | tuple) else str(value) or "''"

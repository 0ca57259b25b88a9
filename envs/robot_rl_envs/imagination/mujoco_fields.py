"""MuJoCo's own fields in imagined steps: further columns of a change, and of a world's row.

After a step a field is the predicted value, as of the actuators' forces. Places [m] have moved by the predicted
distance, in the world frame, so that a prediction knows no place. qpos and qvel are those of the imagined state.
"""

from __future__ import annotations

from dataclasses import dataclass

import warp as wp
from torch import Tensor

from robot_rl_envs.entity.mujoco_fields import STATE
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.imagination.compiling import IMAGINED

ENGINE = "engine_"
"""What the names of these fields begin with in ``s``."""
PLACES = frozenset({"xpos", "xipos", "subtree_com"})
"""Fields of places in the world."""
ZERO = frozenset({"xpos", "xipos", "cinert", "cvel", "cfrc_ext"})
"""Fields of bodies in which the first row, of the world itself, is always zero."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A field (num_envs, ..., columns) of ``s``, of which rows from `first` on have columns in a world's row.

    Attributes:
        name: in ``s``.
        is_place: predicted is how far it moves.
        first: the first row that is not always zero.
        rows: how many there are from it on.
        columns: numbers of a row.
    """

    name: str
    is_place: bool
    first: int
    rows: int
    columns: int

    @property
    def size(self) -> int:
        """Numbers in a world's row."""
        return self.rows * self.columns

    @property
    def kind(self) -> tuple[type, int, int]:
        """Type, dimensions and numbers of a world, as of the other fields of ``s``; the type is the CPU engine's."""
        return wp.float64, 3, self.size

    @property
    def element(self) -> str:
        """Component j of world i's numbers, as Warp's text."""
        return f"[i, {self.first} + j // {self.columns}, j % {self.columns}]"

    def part(self, view: Tensor) -> Tensor:
        """Return the numbers (B, rows, columns) of the whole field's."""
        return view[:, self.first :]


def watched_parts(scene: Scene) -> dict[str, Watched]:
    """Return the predicted parts of the watched fields, by the name in ``s``."""
    import mujoco

    data, found = mujoco.MjData(scene.model), {}
    for field in scene.mujoco_fields:
        if field not in STATE:
            rows, *inner = getattr(data, field).shape
            first, name = int(field in ZERO), f"{ENGINE}{field}"
            found[name] = Watched(name, field in PLACES, first, rows - first, inner[0] if inner else 1)
    return found


def fill_watched(section: str, scene: Scene, parts: dict[str, slice]) -> str:
    """Return the lines between row i's watched fields and the columns of its change, in a section's direction."""
    rows = (
        {
            "field": name,
            "first": field.first,
            "is_place": field.is_place,
            "column": f"{parts[name].start - field.first * field.columns} + j * {field.columns} + k",
        }
        for name, field in watched_parts(scene).items()
    )
    return IMAGINED.fill_each(section, rows)

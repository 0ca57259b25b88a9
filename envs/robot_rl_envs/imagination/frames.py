"""Memory of imagined steps: the struct ``s`` of every step, with the gradients of all of them in one block."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import warp as wp

from robot_rl_envs.buffers import extra_fields, model_fields, struct_name
from robot_rl_envs.entity.state import CONSTANTS
from robot_rl_envs.task import Task

ALIGNED = 4
"""Numbers that an array begins at a multiple of."""
DERIVED = ("base_", "projected_gravity", "joint_pos", "joint_vel", "joint_torque", "foot_pos", "foot_vel")
DERIVED += ("foot_height", "object_", "site_", "engine_qpos", "engine_qvel")
"""What the names of fields begin with that the kernel itself fills."""
PROBE = 977
"""A number of worlds that no other length of an array is."""
WITHOUT_GRADIENT = ("command", "env_origin_w", "command_range")
"""Fields of numbers that nothing of an imagined step changes but a clock."""


def fields_of(env: Any) -> dict[str, Any]:
    """Return the arrays of an environment's ``s`` that have a row for each world, by name."""
    parts = env.operands()
    # An array of as many geoms, or frames of a motion, as there are worlds is not one of worlds.
    sized = extra_fields(env.cfg, env.scene, parts.layout, PROBE)
    shared = {*CONSTANTS} | {name for name, (_, _, shape) in sized.items() if shape[:1] != (PROBE,)}
    found = {}
    for name in parts.struct._cls.vars:
        array = getattr(parts.struct, name)
        if name in parts.arrays and name not in shared and array.ndim and array.shape[0] == env.num_envs:
            found[name] = array
    return found


class Frames:
    """``s`` before the first and after each of several imagined steps.

    Attributes:
        structs: ``s`` by step.
        notes: ``s`` by step, but with the next one's arrays for values that rewards keep from before a step.
        views: by step torch views (B, ...) of its arrays, and `grads` of their gradients.
    """

    def __init__(self, env: Any, rows: int, steps: int, more: dict[str, tuple[int, ...]]) -> None:
        """Allocate.

        Args:
            env: A `robot_rl_envs.env.Env`.
            rows: Rows B.
            steps: Imagined steps.
            more: Shapes of arrays of numbers with gradients that each step has besides ``s``, by name.
        """
        parts, self._rows, self._device = env.operands(), rows, env.device
        fields = fields_of(env)
        self._shared = {name: array for name, array in parts.arrays.items() if name not in fields}
        for name in (struct_name(field) for field in model_fields(env.cfg)):
            nominal = parts.arrays[f"{name}_nominal"].numpy()
            self._shared[name] = wp.array(nominal[None].repeat(rows, 0), dtype=wp.float32, device=env.device)
            fields.pop(name, None)
        self._fields, self._source = fields, parts.struct
        without = {*WITHOUT_GRADIENT, *moving_fields(env.cfg)}
        kinds: dict[str, tuple[Any, tuple[int, ...]]] = {
            name: (array.dtype, (rows, *array.shape[1:]))
            for name, array in fields.items()
            if name not in without and _scalar_of(array.dtype) in (wp.float32, wp.float64)
        }
        kinds |= {name: (wp.float32, shape) for name, shape in more.items()}
        # Fields in float64 in the simulator are in a separate block.
        self._places: dict[str, tuple[int, int]] = {}
        self._blocks = {}
        for scalar, dtype in ((wp.float32, torch.float32), (wp.float64, torch.float64)):
            places, size = _lay_out({name: kind for name, kind in kinds.items() if _scalar_of(kind[0]) is scalar})
            self._places |= places
            self._blocks[scalar] = torch.zeros((2, steps + 1, size), dtype=dtype, device=env.device)
        self.structs, self.arrays, self.notes = [], [], []
        self.views: list[dict[str, torch.Tensor]] = []
        self.grads: list[dict[str, torch.Tensor]] = []
        for t in range(steps + 1):
            self._add(t, kinds, list(more))
        for before, after in pairwise(self.structs):
            self.notes.append(self._note(before, after, noted_fields(env.cfg)))

    def _note(self, before: Any, after: Any, noted: list[str]) -> Any:
        note = self._source._cls()
        for name in note._cls.vars:
            setattr(note, name, getattr(after if name in noted else before, name))
        return note

    def _add(self, t: int, kinds: dict[str, tuple[Any, tuple[int, ...]]], more: list[str]) -> None:
        arrays, views, grads = {}, {}, {}
        for name, (dtype, shape) in kinds.items():
            at, size = self._places[name]
            inner = getattr(dtype, "_shape_", ())
            block = self._blocks[_scalar_of(dtype)]
            values, grad = (block[k, t, at : at + size].view(*shape, *inner) for k in range(2))
            arrays[name] = wp.from_torch(values, dtype=dtype, requires_grad=True, grad=grad)
            # Of the arrays, not of the block: torch would take a write to one for a change of all the others.
            views[name] = wp.to_torch(arrays[name], requires_grad=False)
            grads[name] = wp.to_torch(arrays[name].grad, requires_grad=False)
        for name, array in self._fields.items():
            if name not in arrays:
                arrays[name] = wp.zeros((self._rows, *array.shape[1:]), dtype=array.dtype, device=self._device)
                views[name] = wp.to_torch(arrays[name])
        struct = self._source._cls()
        for name in struct._cls.vars:
            setattr(struct, name, arrays.get(name, self._shared.get(name, getattr(self._source, name))))
        self.structs.append(struct)
        self.arrays.append({name: arrays[name] for name in more})
        self.views.append(views)
        self.grads.append(grads)

    def clear(self) -> None:
        """Set every gradient to 0."""
        for block in self._blocks.values():
            block[1].zero_()


def noted_fields(task: Task) -> list[str]:
    """Return the fields of ``s`` that rewards keep from before a step."""
    return [name for term in task.rewards.values() if term.info.before is not None for name in term.info.fields]


def moving_fields(task: Task) -> set[str]:
    """Return the fields of ``s`` that commands move on; no gradient goes through them."""
    moving = [term for term in task.commands.values() if term.info.update is not None]
    return {"command", *(field for term in moving for field in term.info.fields)} if moving else set()


def _scalar_of(dtype: Any) -> Any:
    return getattr(dtype, "_wp_scalar_type_", dtype)


def numbers_of(dtype: Any, shape: tuple[int, ...]) -> int:
    """Return how many numbers an array of a shape has."""
    size = 1
    for length in (*shape, *getattr(dtype, "_shape_", ())):
        size *= length
    return size


def _lay_out(kinds: dict[str, tuple[Any, tuple[int, ...]]]) -> tuple[dict[str, tuple[int, int]], int]:
    """Return the place and the size of each array in a block of numbers, and the block's size."""
    places, end = {}, 0
    for name, (dtype, shape) in kinds.items():
        size = numbers_of(dtype, shape)
        places[name] = (end, size)
        end += -(-size // ALIGNED) * ALIGNED
    return places, end

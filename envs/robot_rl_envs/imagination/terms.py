"""The terms of a task on rows of states, as one kernel with its adjoint.

A row is a world of the simulator: the same struct ``s``, with arrays that have a gradient. The kernel derives
the quantities that follow from qpos and qvel and computes every term that returns a number; contacts, torques and other
quantities of an engine are inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import warp as wp

from robot_rl_envs.codegen import Numbers
from robot_rl_envs.codegen.writer import KernelWriter
from robot_rl_envs.entity.mujoco_fields import STATE
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.imagination.compiling import IMAGINED, compile_kernel
from robot_rl_envs.imagination.frames import fields_of
from robot_rl_envs.imagination.kinematics import fill_feet, fill_sites
from robot_rl_envs.task import Task, TorchTerm

FLOATS = (wp.float32, wp.float64)


@dataclass(frozen=True, slots=True)
class Column:
    """One number that the kernel computes in each row.

    Attributes:
        path: of its term, "rewards.track" or "observations.actor.gyro".
        element: of an observation's components; 0 of another term.
    """

    path: str
    element: int = 0


def written_terms(task: Task) -> dict[str, Any]:
    """Return the terms of a task that return a number, by path: rewards, terminations, observations."""
    found = {f"rewards.{name}": term for name, term in task.rewards.items()}
    found |= {f"terminations.{name}": term for name, term in task.terminations.items()}
    for group, terms in task.vectors.items():
        found |= {f"observations.{group}.{name}": term for name, term in terms.terms.items()}
    return {path: term for path, term in found.items() if not isinstance(term, TorchTerm)}


def torch_terms(task: Task) -> list[str]:
    """Return the paths of the terms that are torch functions, which torch differentiates."""
    found = [f"rewards.{name}" for name, term in task.rewards.items() if isinstance(term, TorchTerm)]
    for group, terms in task.vectors.items():
        found += [f"observations.{group}.{k}" for k, term in terms.terms.items() if isinstance(term, TorchTerm)]
    return found


def derive_values(w: KernelWriter, scene: Scene) -> dict[str, Any]:
    """Return the slots of the quantities that follow from qpos and qvel of a row."""
    fields = ({"field": name} for name in scene.mujoco_fields if name in STATE)
    return {
        "engine_state": IMAGINED.fill_each("engine_field", fields),
        "base": bool(scene.base),
        "objects": bool(scene.objects),
        "object_joints": bool(scene.elements.joints),
        "feet": fill_feet(scene),
        "sites": fill_sites(scene) if scene.elements.sites else "",
        "sensors_derived": w.runs(scene.sensing.derived),
    }


def fill_terms(w: KernelWriter, scene: Scene, task: Task) -> tuple[str, list[Column]]:
    """Return the text of the kernel, and the columns that it computes."""
    columns: list[Column] = []
    rows = []
    slots = {f"observations.{group}.{slot.name}": slot for group, of in w.layout.groups.items() for slot in of}
    for path, term in written_terms(task).items():
        row = {"at": len(columns), "is_observation": path in slots}
        if path not in slots:
            row["call"] = w.call(path, term, "s, i")
            columns.append(Column(path))
        else:
            slot = slots[path]
            row["size"] = slot.size
            row["call"] = w.call(path, slot.term, "s, i, j", slot.term.info.source.clean, "clean")
            columns += [Column(path, element) for element in range(slot.size)]
        rows.append(row)
    values = derive_values(w, scene) | {"terms_out": IMAGINED.fill_each("term_out", rows)}
    return IMAGINED.fill("terms", values), columns


class Terms:
    """The terms of an environment's task on rows of states.

    Attributes:
        arrays: every array of ``s`` with a row each, by name; those of floats have a gradient.
        columns: what `values` has in each column.
        struct: ``s`` of the rows.
    """

    def __init__(self, env: Any, rows: int) -> None:
        """Allocate rows and compile the kernel.

        Args:
            env: A `robot_rl_envs.env.Env`.
            rows: Number of rows B.
        """
        self.rows, self._device = rows, env.device
        parts = env.operands()
        known, w = len(parts.layout.values), KernelWriter(parts.layout)
        text, self.columns = fill_terms(w, env.scene, env.cfg)
        if len(parts.layout.values) != known:
            raise ValueError(f"terms of {env.cfg.name} have parameters that the simulator's kernels do not have")
        self.struct = parts.struct._cls()
        self._kernel = compile_kernel(env.cfg.name, "terms", text, self.struct._cls, w.sensors | w.functions)
        self.arrays: dict[str, Any] = {}
        for name in self.struct._cls.vars:
            setattr(self.struct, name, getattr(parts.struct, name))
        for name, given in fields_of(env).items():
            self.arrays[name] = self._allocate(given)
            setattr(self.struct, name, self.arrays[name])
        self._numbers = parts.numbers
        self._out = wp.zeros((rows, len(self.columns)), dtype=wp.float32, device=env.device)

    def _allocate(self, like: Any) -> Any:
        scalar = getattr(like.dtype, "_wp_scalar_type_", like.dtype)
        shape = (self.rows, *like.shape[1:])
        return wp.zeros(shape, dtype=like.dtype, device=self._device, requires_grad=scalar in FLOATS)

    def take(self, arrays: dict[str, Any], worlds: np.ndarray) -> None:
        """Fill the rows with those of an environment's worlds (B,); `arrays` are its own."""
        for name, array in self.arrays.items():
            array.assign(arrays[name].numpy()[worlds])

    def values(self) -> np.ndarray:
        """Return the values of the terms in the current rows, (B, columns)."""
        wp.launch(self._kernel, dim=self.rows, inputs=self._inputs(), device=self._device)
        return self._out.numpy().copy()

    def gradients(self, weight: np.ndarray, names: list[str]) -> dict[str, np.ndarray]:
        """Return the gradient of the sum of `weight` (B, columns) times the values, by array, (B, ...) each.

        `values` has run on the rows as they are.
        """
        for array in self.arrays.values():
            if array.requires_grad:
                array.grad.zero_()
        adjoint = wp.array(weight, dtype=wp.float32, device=self._device)
        empty = [self.struct._cls(), Numbers(), adjoint]
        wp.launch(
            self._kernel, dim=self.rows, inputs=self._inputs(), adj_inputs=empty, adjoint=True, device=self._device
        )
        return {name: self.arrays[name].grad.numpy().copy() for name in names}

    def _inputs(self) -> list[Any]:
        return [self.struct, self._numbers, self._out]

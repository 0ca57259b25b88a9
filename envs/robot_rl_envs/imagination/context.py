"""What differs from world to world: the numbers of MuJoCo's model that a task's events draw, as a model's context.

An imagined step does not change them; the model takes them as further inputs. Which numbers an event draws is found by
calling it on the CPU with several random numbers. Of numbers that change by the same factor, such as the frictions of
all feet or the gains of one motor, there is one. The draws of actuators and sensors are not part of it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import warp as wp

from robot_rl_envs.buffers import struct_name
from robot_rl_envs.codegen.layout import make_layout
from robot_rl_envs.entity.mirrors import POLAR, Mirror, partners
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.imagination.mirror import mirror_actuators
from robot_rl_envs.task import Task

CONTEXT = "context"
"""Name of the columns in a world's row."""
DRAWS = 5
"""How often an event is called to find the numbers that it changes."""
TINY = 1e-9
"""A nominal value that nothing is multiplied by."""
AXES = frozenset({"body_ipos", "body_pos", "gravity"})
"""Fields of vectors, of which y changes its sign in the mirror."""


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a model field that has a value for each world: ``s.<field>[i, row, column]``."""

    field: str
    row: int
    column: int


def drawn_numbers(task: Task, scene: Scene) -> dict[Number, int]:
    """Return the numbers of MuJoCo's model that the task's events draw, each with its column of the context.

    Those that follow from one another have the same column, of the first of them. An event that reads more of ``s``
    than MuJoCo's model, feet and joints is omitted.
    """
    found: dict[Number, int] = {}
    columns: dict[tuple[float, ...], int] = {}
    resolved, generator = make_layout(task, scene).resolved, np.random.default_rng(0)
    for path, event in task.events.items():
        if not event.info.model_fields:
            continue
        params = {name: resolved.get(f"events.{path}.{name}", value) for name, value in event.params.items()}
        try:
            values = _call(event, params, scene, generator)
        except (AttributeError, IndexError, TypeError):
            continue
        for name, drawn in values.items():
            nominal = _nominal(scene, name)
            for row, column in zip(*np.nonzero((drawn != nominal).any(0)), strict=True):
                rest = nominal[row, column]
                series = drawn[:, row, column] / (rest if abs(rest) > TINY else 1.0)
                at = columns.setdefault(tuple(np.round(series, 5)), len(columns))
                found[Number(name, int(row), int(column))] = at
    return found


def representatives(numbers: dict[Number, int]) -> list[Number]:
    """Return the first number of each column."""
    first: dict[int, Number] = {}
    for number, column in numbers.items():
        first.setdefault(column, number)
    return [first[column] for column in range(len(first))]


def _nominal(scene: Scene, name: str) -> np.ndarray:
    """Return a field as the array (rows, columns) that ``s`` has of each world."""
    value = np.asarray(scene.model.opt.gravity if name == "gravity" else getattr(scene.model, name), np.float32)
    return value.reshape(len(value), -1)


def _call(event: Any, params: dict[str, Any], scene: Scene, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Return the model fields (DRAWS, rows, columns) of an event after as many calls."""
    feet, joints, ctrl = scene.entity.foot_geoms, scene.entity.joint_dof, np.zeros((DRAWS, scene.model.nu))
    s, values = SimpleNamespace(foot_geoms=feet, joint_dof=joints, ctrl=ctrl, step_dt=scene.sim.step_dt), {}
    for name in (struct_name(field) for field in event.info.model_fields):
        nominal = _nominal(scene, name)
        values[name] = np.repeat(nominal[None], DRAWS, 0)
        setattr(s, name, values[name])
        setattr(s, f"{name}_nominal", nominal)
    # Called from Python, Warp's own would give the same number each time.
    uniform = patch.object(wp, "randf", lambda state, lo=0.0, hi=1.0: float(generator.uniform(lo, hi)))
    with uniform, patch.object(wp, "randn", lambda state: float(generator.normal())):
        for i in range(DRAWS):
            event.fn.func(s, i, wp.uint32(0), **params)
    return values


def mirror_numbers(scene: Scene, numbers: dict[Number, int]) -> Mirror | None:
    """Return permutation and sign of the context's columns under the mirror y -> -y; None if one lacks its partner."""
    rows = _mirrored_rows(scene)
    perm, sign = [], []
    for number in representatives(numbers):
        kind = number.field.partition("_")[0]
        if number.field != "gravity" and kind not in rows:
            return None
        row = number.row if number.field == "gravity" else rows[kind].get(number.row, number.row)
        partner = numbers.get(Number(number.field, row, number.column))
        if partner is None:
            return None
        perm.append(partner)
        axis = number.row if number.field == "gravity" else number.column
        sign.append(POLAR[axis] if number.field in AXES else 1.0)
    return perm, sign


def _mirrored_rows(scene: Scene) -> dict[str, dict[int, int]]:
    """Return the row on the other side for the rows of fields that begin with "body", "actuator", "dof" and "geom"."""
    robot, entity = scene.robot, scene.entity
    permutation, signs = robot.joint_mirror()
    joints = list(permutation), list(signs)
    found = {"dof": {int(entity.joint_dof[k]): int(entity.joint_dof[j]) for k, j in enumerate(joints[0])}}
    feet = entity.foot_geoms
    found["geom"] = {int(feet[k]): int(feet[f]) for k, f in enumerate(robot.foot_mirror)}
    with contextlib.suppress(ValueError):
        found["body"] = dict(enumerate(partners(scene.model)))
    if (actuators := mirror_actuators(scene.model, robot.joint_names, joints)) is not None:
        found["actuator"] = dict(enumerate(actuators[0]))
    return found

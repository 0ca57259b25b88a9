"""The observation group "world": the numbers that a world's next step depends on, for learning through a model.

:func:`with_world` adds it on demand; no task lists it and no other run pays for it.
"""

from __future__ import annotations

import dataclasses
import linecache
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import warp as wp

from robot_rl_envs.buffers import extra_fields, model_fields, struct_name
from robot_rl_envs.codegen.layout import make_layout
from robot_rl_envs.entity.scene import Scene, make_scene
from robot_rl_envs.entity.state import CONSTANTS, FIELDS
from robot_rl_envs.imagination.context import CONTEXT, Number, drawn_numbers, representatives
from robot_rl_envs.imagination.frames import DERIVED, PROBE, noted_fields, numbers_of
from robot_rl_envs.imagination.mujoco_fields import Watched, watched_parts
from robot_rl_envs.imagination.parts import FIXED_POSE, fixed_objects
from robot_rl_envs.imagination.terms import torch_terms
from robot_rl_envs.task import Observation, ObservationGroup, Task
from robot_rl_envs.terms import observation

WORLD = "world"
OWN = ("ctrl", "sensordata", "overflow", "last_joint_vel", "prev_prev_action", "foot_touchdown", "reward", "dirty")
OWN += ("terminated", "time_out", "quarantined", "fault_term", "episode_return", "reward_sums", "metric_values")
OWN += ("termination_bits", "interval_left_s", "command_left_s", "command_hold", "measured", "reward_parts")
"""Fields that a step writes before anything reads them, or that no term reads."""
UNKNOWN = ("imu_acc", "joint_pos_late", "clip", "partner", "message")
"""What the names of fields begin with that nothing here predicts yet."""
UNBOUNDED = 1e30
"""No number of a world is larger."""
Kind = tuple[Any, int, int]
"""Type of an array, its dimensions, and the numbers of a row."""


def kept_fields(scene: Scene) -> set[str]:
    """Return the fields that are part of a world though the state gives the most of them: where fixed objects are."""
    return set(FIXED_POSE) if fixed_objects(scene) else set()


def carried(kinds: Mapping[str, Kind], left: set[str], kept: set[str]) -> dict[str, slice]:
    """Return the columns of a world's row by field of ``s``.

    Args:
        kinds: Of each field.
        left: Fields that are not part of a row.
        kept: Fields that are, though their names are those of derived ones.
    """
    found, end = {}, 0
    for name in sorted(kinds):
        size = kinds[name][2]
        if size and name not in OWN and name not in left and (name in kept or not name.startswith(DERIVED)):
            found[name], end = slice(end, end + size), end + size
    return found


def left_fields(task: Task) -> set[str]:
    """Return the fields that an imagined step does not need: those of MuJoCo's model, and the notes of a step."""
    return {struct_name(name) for name in model_fields(task)} | set(noted_fields(task))


def kinds_of(task: Task, scene: Scene) -> dict[str, Kind]:
    """Return the fields that an environment's ``s`` has of each world."""
    layout, model = make_layout(task, scene), scene.model
    sizes = {"nj": scene.sizes["joints"], "na": scene.sizes["actions"], "nf": scene.sizes["feet"]}
    found = {name: (wp.float32, 2, size) for name, size in (("qpos", model.nq), ("qvel", model.nv))}
    found["actuator_force"] = (wp.float32, 2, model.nu)
    for name, (dtype, shape, _) in FIELDS.items():
        if all(part in sizes for part in shape):
            found[name] = (dtype, 1 + len(shape), numbers_of(dtype, tuple(sizes[str(part)] for part in shape)))
    for name, (dtype, ndim, shape) in extra_fields(task, scene, layout, PROBE).items():
        if shape and shape[0] == PROBE and name not in CONSTANTS:
            found[name] = (dtype, ndim, numbers_of(dtype, shape[1:]))
    return found | {name: of.kind for name, of in watched_parts(scene).items()}


def why_not_imagined(task: Task, fields: Iterable[str]) -> str:
    """Return in a line why the steps of a task, with these fields in ``s``, cannot be imagined; empty if they can."""
    name = f"task={task.name}"
    if task.robots:
        return f"{name}: is for several robots, and the steps of one depend on the others"
    if found := torch_terms(task):
        return f"{name}: {found[0]} is a function of torch on whole states"
    if set(task.observations) != set(task.vectors):
        return f"{name}: observes images"
    for field in fields:
        if field.startswith(UNKNOWN):
            return f"{name}: its terms read {field}, which the model does not predict yet"
    return ""


def with_world(task: Task) -> Task:
    """Return a copy of a task that has the group, without noise; the task itself if it has one of that name.

    Raises:
        ValueError: The task has something that nothing predicts; the line names it.
    """
    if WORLD in task.observations:
        return task
    scene = make_scene(task)
    kinds = kinds_of(task, scene)
    if line := why_not_imagined(task, kinds):
        raise ValueError(line)
    columns, mujoco_fields = carried(kinds, left_fields(task), kept_fields(scene)), watched_parts(scene)
    terms = {
        name: Observation(_reader(name, *kinds[name], mujoco_fields.get(name)), clip=UNBOUNDED) for name in columns
    }
    if numbers := representatives(drawn_numbers(task, scene)):
        terms[CONTEXT] = Observation(_context_reader(numbers), clip=UNBOUNDED)
    group = ObservationGroup(terms=terms, noise=False)
    return dataclasses.replace(task, observations={**task.observations, WORLD: group})


def _reader(name: str, dtype: Any, ndim: int, size: int, mujoco_fields: Watched | None) -> Any:
    """Return the observation term that reads a field as it is."""
    is_vector = bool(getattr(dtype, "_shape_", ()))
    if mujoco_fields is not None:
        value = f"s.{name}{mujoco_fields.element}"
    elif ndim == 1:
        value = f"s.{name}[i][j]" if is_vector else f"s.{name}[i]"
    elif ndim == 2 and not is_vector:
        value = f"s.{name}[i, j]"
    elif ndim == 2:
        length = dtype._shape_[0]
        value = f"s.{name}[i, j // {length}][j % {length}]"
    else:
        raise ValueError(f"the field {name} has too many dimensions for a row of numbers")
    return _term(name, [f"return float({value})"], size)


def _context_reader(numbers: Sequence[Number]) -> Any:
    """Return the observation term that reads the numbers of MuJoCo's model which events draw."""
    lines = [
        f"if j == {j}: return float(s.{number.field}[i, {number.row}, {number.column}])"
        for j, number in enumerate(numbers)
    ]
    return _term(CONTEXT, [*lines, "return float(0.0)"], len(numbers))


def _term(name: str, lines: Sequence[str], size: int) -> Any:
    """Return an observation term of these lines."""
    body = "\n".join(f"    {line}" for line in lines)
    text = f'def world_{name}(s: Any, i: int, j: int) -> float:\n    """The field {name}."""\n{body}\n'
    filename = f"<robot_rl world {name} {zlib.crc32(text.encode())}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {"Any": Any, "__name__": __name__}
    exec(compile(text, filename, "exec"), namespace)
    return observation(size=size, mirror=(1.0,) * size)(namespace[f"world_{name}"])

"""The arrays of an environment: which there are, how large they are, and what they start with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import warp as wp

from robot_rl_envs.entity.scene import make_sensing
from robot_rl_envs.entity.state import CONSTANTS, FIELDS
from robot_rl_envs.entity.watched import field_of
from robot_rl_envs.fuse.actuating import actuator_fields, native_model_fields
from robot_rl_envs.fuse.layout import resolve_size
from robot_rl_envs.fuse.observing import pipe_shapes

if TYPE_CHECKING:
    from robot_rl_envs.engines import Engine
    from robot_rl_envs.entity.scene import Scene
    from robot_rl_envs.fuse import Layout
    from robot_rl_envs.task import Task

Extra = dict[str, tuple[Any, int, tuple[int, ...]]]
"""Name -> dtype, number of dimensions, shape (empty: the array is the engine's) of a field beyond the fixed ones."""

ENGINE_ARRAYS = ("qpos", "qvel", "ctrl", "sensordata", "actuator_force", "overflow")


def field_sizes(scene: Scene, layout: Layout) -> dict[str, int]:
    """The widths that :data:`~robot_rl_envs.entity.state.FIELDS` names, by name."""
    return {
        "nj": scene.sizes["joints"],
        "na": scene.sizes["actions"],
        "nf": scene.sizes["feet"],
        "nc": len(layout.commands),
        "ni": len(layout.intervals),
        "nr": len(layout.rewards),
    }


def model_fields(task: Task) -> list[str]:
    """MuJoCo model fields that get per-world values, because an event or an actuator of ``task`` randomizes them."""
    drawn = {name for event in task.events.values() for name in event.info.model_fields}
    return sorted(drawn | set(native_model_fields(task)) | set(make_sensing(task).model_fields()))


def extra_fields(task: Task, scene: Scene, layout: Layout, num_envs: int) -> Extra:
    """Fields that the task's terms declare, those that its sensors remember, and those of the randomized model."""
    declared: dict[str, Any] = {"command": ("command",)}
    for section in (task.commands, task.events, task.curricula, task.rewards):
        for term in section.values():
            declared |= term.info.fields if hasattr(term, "info") else {}
    extra: Extra = actuator_fields(task, scene, num_envs) | scene.entity.sensing.fields(scene.sizes, num_envs)
    extra |= {name: (wp.float32, 2, (num_envs, columns)) for name, columns in pipe_shapes(layout).items()}
    if layout.reward_groups:
        extra["reward_parts"] = (wp.float32, 2, (num_envs, len(layout.reward_groups)))
    for name, shape in declared.items():
        if not isinstance(shape, tuple):
            extra[name] = (shape, 1, (num_envs,))
            continue
        sizes = tuple(resolve_size(n, scene, f"state field {name!r}") for n in shape)
        if sizes == (3,) or name == "command":
            vector = wp.vec3 if sizes == (3,) else wp.types.vector(length=sizes[0], dtype=wp.float32)
            extra[name] = (vector, 1, (num_envs,))
        else:
            extra[name] = (wp.float32, 1 + len(sizes), (num_envs, *sizes))
    if any(term.info.writes == "wrench" for term in task.events.values()):
        extra["xfrc_applied"] = (wp.float32, 3, ())
    for name in model_fields(task):
        extra[struct_name(name)] = (wp.float32, 3, ())
        extra[f"{struct_name(name)}_nominal"] = (wp.float32, 2, ())
    return extra


def watched_arrays(engine: Engine, scene: Scene) -> dict[str, wp.array]:
    """The engine's own fields that terms read, by their name in ``s``."""
    return {field_of(name): engine.watch(name) for name in scene.watched}


def struct_name(model_field: str) -> str:
    """The field of ``s`` that holds a model field: an option such as ``opt.gravity`` goes by its last name."""
    return model_field.rpartition(".")[2]


def constants(scene: Scene) -> dict[str, np.ndarray]:
    """The values of :data:`~robot_rl_envs.entity.state.CONSTANTS`."""
    entity, terrain = scene.entity, scene.terrain
    robot = entity.robot
    return {
        "default_joint_pos": np.array(robot.default_pos()),
        "joint_lower": entity.joint_range[:, 0],
        "joint_upper": entity.joint_range[:, 1],
        "effort_limit": np.array([joint.effort_limit for joint in robot.joints]),
        "default_qpos": scene.default_qpos,
        "joint_qpos": entity.joint_qpos,
        "joint_dof": entity.joint_dof,
        "joint_ctrl": entity.joint_ctrl,
        "foot_geoms": entity.foot_geoms,
        "terrain_heights": np.zeros((1, 1)) if terrain is None else terrain.heights,
        "terrain_origins": np.zeros((1, 1, 3)) if terrain is None else terrain.origins,
    }


def allocate(engine: Engine, scene: Scene, layout: Layout, extra: Extra, fields: list[str]) -> dict[str, wp.array]:
    """Every array of ``s`` by name; those of the engine are its own, live.

    Args:
        engine: the physics.
        scene: the compiled scene.
        layout: the task's layout.
        extra: what :func:`extra_fields` returned.
        fields: what :func:`model_fields` returned.
    """
    n, device = engine.num_envs, engine.device
    sizes = field_sizes(scene, layout)
    arrays = {name: getattr(engine.data, name) for name in ENGINE_ARRAYS}
    for name, (dtype, shape, _) in FIELDS.items():
        full = (n, *(sizes[k] if isinstance(k, str) else k for k in shape))
        arrays[name] = wp.zeros(full, dtype=dtype, device=device)
    values = constants(scene)
    for name, (dtype, _, _) in CONSTANTS.items():
        arrays[name] = wp.array(values[name], dtype=dtype, device=device)
    for field in fields:
        name = struct_name(field)
        arrays[name] = engine.expand(field)
        arrays[f"{name}_nominal"] = wp.clone(arrays[name][0])
    if "history" in extra:
        arrays["history"] = engine.history()
    if "xfrc_applied" in extra:
        arrays["xfrc_applied"] = engine.wrenches()
    for name, (dtype, _, shape) in extra.items():
        if shape:
            arrays[name] = wp.zeros(shape, dtype=dtype, device=device)
    scene.entity.sensing.fill(arrays, scene.model, scene.robot.feet)
    return arrays


def group_arrays(layout: Layout, num_envs: int, device: str) -> dict[str, wp.array]:
    """A float32 array (num_envs, width) for every observation group."""
    return {name: wp.zeros((num_envs, width), dtype=wp.float32, device=device) for name, width in layout.widths.items()}

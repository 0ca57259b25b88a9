"""The arrays of an environment: names, sizes and initial values; and the buffers for the results of a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import warp as wp
from tensordict import TensorDict

from robot_rl_envs.codegen.actuating import actuator_fields, native_model_fields
from robot_rl_envs.codegen.layout import TaskLayout, resolve_size
from robot_rl_envs.engines import Engine
from robot_rl_envs.entity import crews
from robot_rl_envs.entity.scene import Scene, make_sensing
from robot_rl_envs.entity.state import CONSTANTS, FIELDS, State
from robot_rl_envs.task import Task

Extra = dict[str, tuple[Any, int, tuple[int, ...]]]
"""Name -> dtype, number of dimensions, shape (empty: the array is the engine's) of a field beyond the fixed ones."""

MAX_VECTOR = 16
"""Components of a command that is one vector of Warp's; a wider one is a row of a matrix, read alike: [i][j]."""

ENGINE_ARRAYS = ("qpos", "qvel", "ctrl", "sensordata", "actuator_force", "overflow")


def model_fields(task: Task) -> list[str]:
    """List the MuJoCo model fields with per-world values: those that events, actuators and sensors randomize."""
    drawn = {name for event in task.events.values() for name in event.info.model_fields}
    return sorted(drawn | set(native_model_fields(task)) | set(make_sensing(task).model_fields()))


def extra_fields(task: Task, scene: Scene, layout: TaskLayout, num_envs: int) -> Extra:
    """Return the fields of ``s`` that the task's terms, actuators and sensors add, and the randomized model fields."""
    declared: dict[str, Any] = {"command": ("command",)}
    for section in (task.commands, task.events, task.curricula, task.rewards):
        for term in section.values():
            declared |= term.info.fields if hasattr(term, "info") else {}
    extra: Extra = actuator_fields(task, scene, num_envs) | scene.entity.sensing.fields(scene.sizes, num_envs)
    extra |= (
        scene.elements.fields(num_envs)
        | scene.reference_motions.fields(num_envs)
        | crews.crew_fields(scene.crew, num_envs)
    )
    extra |= {f"pipe_{group}": (wp.float32, 2, (num_envs, columns)) for group, columns in layout.pipes.items()}
    if layout.measured:
        extra["measured"] = (wp.float32, 2, (num_envs, sum(size for _, size in layout.measured.values())))
    if layout.reward_groups:
        extra["reward_parts"] = (wp.float32, 2, (num_envs, len(layout.reward_groups)))
    for name, shape in declared.items():
        if not isinstance(shape, tuple):
            extra[name] = (shape, 1, (num_envs,))
            continue
        sizes = tuple(resolve_size(n, scene, f"state field {name!r}") for n in shape)
        if sizes == (3,) or (name == "command" and sizes[0] <= MAX_VECTOR):
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


def struct_name(model_field: str) -> str:
    """Return the field of ``s`` that holds a model field; ``opt.gravity`` is "gravity"."""
    return model_field.rpartition(".")[2]


def constants(scene: Scene) -> dict[str, np.ndarray]:
    """Return the values of :data:`~robot_rl_envs.entity.state.CONSTANTS`."""
    entity, terrain = scene.entity, scene.terrain
    robot = entity.robot
    return {
        "default_joint_pos": np.array(robot.default_pos()),
        "joint_lower": entity.joint_range[:, 0],
        "joint_upper": entity.joint_range[:, 1],
        "effort_limit": np.array([joint.effort_limit for joint in robot.joints]),
        "velocity_limit": np.array([joint.velocity_limit for joint in robot.joints]),
        "default_qpos": scene.default_qpos,
        "joint_qpos": entity.joint_qpos,
        "joint_dof": entity.joint_dof,
        "joint_ctrl": entity.joint_ctrl,
        "joint_follows": entity.joint_follows,
        "foot_geoms": entity.foot_geoms,
        "foot_phase": entity.foot_phase,
        "terrain_heights": np.zeros((1, 1)) if terrain is None else terrain.heights,
        "terrain_origins": np.zeros((1, 1, 3)) if terrain is None else terrain.origins,
    }


def allocate(engine: Engine, scene: Scene, layout: TaskLayout, extra: Extra, fields: list[str]) -> dict[str, wp.array]:
    """Return every array of ``s`` by name, the engine's own live ones among them.

    ``extra`` is the result of :func:`extra_fields`, ``fields`` that of :func:`model_fields`.
    """
    n, device = engine.num_envs, engine.device
    sizes = {"nj": scene.sizes["joints"], "na": scene.sizes["actions"], "nf": scene.sizes["feet"]}
    sizes |= {"nc": len(layout.commands), "ni": len(layout.intervals), "nr": len(layout.rewards)}
    sizes["nm"] = sum(name.startswith("tracking/") for name in layout.log)
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
    arrays |= getattr(engine, "shared", {})
    for name, (dtype, _, shape) in extra.items():
        if shape and name not in arrays:
            arrays[name] = wp.zeros(shape, dtype=dtype, device=device)
    scene.entity.sensing.fill(arrays)
    scene.elements.fill(arrays)
    scene.reference_motions.fill(arrays)
    crews.fill(arrays, scene.crew)
    return arrays


class StepResults:
    """Two sets of buffers for the results of a step, filled in turn: the last step's stay valid during the next one.

    A group without an array in ``final`` (images) repeats in ``final_obs`` the images of the step before: rendering the
    state before the reset would cost a second image a step.

    Args:
        written: observation group -> the array that a step writes.
        final: observation group -> the array of the last observations of episodes.
        reward_groups: number of reward groups, 0 if their sums are not returned.
        device: torch device of the results.
        is_team: whether a row may be of a robot that took no part in the step: it is not valid then, and ``extras``
            have "acted" and "ended".
    """

    def __init__(
        self,
        written: dict[str, wp.array],
        final: dict[str, wp.array],
        reward_groups: int,
        device: str,
        *,
        is_team: bool = False,
    ):
        self._is_team = is_team
        n = next(iter(written.values())).shape[0]

        def tensors(arrays: dict[str, wp.array]) -> TensorDict:
            views = {name: wp.to_torch(array) for name, array in arrays.items()}
            return TensorDict(views, batch_size=[n], device=device)

        self._written = written
        self._copies = [{name: wp.zeros_like(array) for name, array in written.items()} for _ in range(2)]
        self._observations = [tensors(copies) for copies in self._copies]
        self._final_obs = [tensors(final) for _ in range(2)]
        for name in (name for name in written if name not in final):
            for turn in range(2):
                self._final_obs[turn][name] = self._observations[1 - turn][name]
        kinds = (torch.float32, *[torch.bool] * (5 if is_team else 3))
        self._flags = [[torch.zeros(n, dtype=kind, device=device) for kind in kinds] for _ in range(2)]
        self._parts = [torch.zeros(n, reward_groups, device=device) for _ in range(2)] if reward_groups else []
        self._turn = 0

    @property
    def current(self) -> TensorDict:
        """The observation groups returned last."""
        return self._observations[self._turn]

    def restart(self) -> None:
        """Begin with the same buffers as a new environment."""
        self._turn = 0

    def rewind(self) -> TensorDict:
        """Return the current observations in the first buffers; the next step writes to the second ones."""
        if self._turn:
            for name, array in self._copies[0].items():
                wp.copy(array, self._copies[1][name])
        self._turn = 0
        return self.current

    def skip(self, steps: int) -> TensorDict:
        """Return the observations after ``steps`` steps from :meth:`rewind` that only a replay made."""
        self._turn = steps % 2
        return self.current

    def fill(self, state: State) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Copy the results of the step that ``state`` is after; see :meth:`robot_rl_envs.env.Env.step`."""
        self._turn = 1 - self._turn
        # By Warp: torch would wake its thread pool for arrays of this size, which costs more than the copy.
        for name, array in self._copies[self._turn].items():
            wp.copy(array, self._written[name])
        rewards, dones, time_outs, valid, *of_team = self._flags[self._turn]
        rewards.copy_(state.reward)
        time_outs.copy_(state.time_out)
        torch.logical_or(state.terminated, state.time_out, out=dones)
        torch.logical_not(state.quarantined, out=valid)
        extras = {"time_outs": time_outs, "final_obs": self._final_obs[self._turn], "valid": valid, "log": {}}
        if self._is_team:
            for name, flag, value in zip(("acted", "ended"), of_team, (state.acted, state.restart), strict=True):
                extras[name] = flag.copy_(value)
            valid.logical_and_(extras["acted"])
        if self._parts:
            extras["rewards"] = self._parts[self._turn].copy_(state.reward_parts)
        return self.current, rewards, dones, extras

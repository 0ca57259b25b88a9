"""Imagined control steps: a model predicts the changes by the physics, and the task's own terms do the rest.

A world is a row of the numbers that its next step depends on and an observation does not tell (`Imagination.carried`).
From there an imagined step takes an action and predicted changes, and returns as a step of the environment the
observations, with their noise and delays, the reward and whether the episode ends. All of it is one Warp kernel a step
with its adjoint, so torch's gradients go from the rewards of later steps back to the actions and to the predictions.

Random events do not happen in it: no reset, no push, no new command. Terrain is that of the task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import warp as wp
from torch import Tensor

from robot_rl_envs.codegen import Numbers
from robot_rl_envs.codegen.observing import fill_group
from robot_rl_envs.codegen.step_kernels import action_clip, array_arguments
from robot_rl_envs.codegen.writer import KernelWriter
from robot_rl_envs.entity import mirrors
from robot_rl_envs.entity.mujoco_fields import STATE
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.imagination.compiling import IMAGINED, compile_kernel
from robot_rl_envs.imagination.context import drawn_numbers, mirror_numbers, representatives
from robot_rl_envs.imagination.frames import Frames, fields_of, moving_fields, numbers_of
from robot_rl_envs.imagination.mirror import mirror_changes
from robot_rl_envs.imagination.mujoco_fields import ENGINE, fill_watched, watched_parts
from robot_rl_envs.imagination.parts import (
    FIXED_POSE,
    change_parts,
    first_of_objects,
    fixed_objects,
    frame_of,
    gates_of,
    moved,
)
from robot_rl_envs.imagination.terms import derive_values
from robot_rl_envs.imagination.worlds import WORLD, carried, kept_fields, left_fields, why_not_imagined
from robot_rl_envs.task import Task
from robot_rl_envs.term_config import CLIP

COMMANDS = "_commands"
"""Name of the function that moves commands, after that of the groups."""
STEPPED = ("qpos", "qvel", "action", "prev_action", "foot_contact", "foot_air_time_s", "foot_contact_time_s")
STEPPED += ("foot_peak_height_w", "foot_force", "actuator_force", "contact_force", *FIXED_POSE)
STEPPED += ("step_count", "episode_length", "counter")
"""Fields that a step moves on; others that a world carries stay as they are."""


@dataclass(frozen=True, slots=True)
class Imagined:
    """What an imagined step gives for B rows.

    Attributes:
        obs: observation groups, (B, D) each.
        reward: (B,).
        ended: (B,) 1.0 if a termination other than a time-out holds; without a gradient.
        speeds: (B, S) generalized velocities after it that observations do not tell (`Imagination.speeds`).
        token: () an argument of the next step, so that gradients are computed in the reverse order of the steps.
    """

    obs: dict[str, Tensor]
    reward: Tensor
    ended: Tensor
    speeds: Tensor
    token: Tensor


def seen_groups(task: Task) -> list[str]:
    """Return the observation groups that an imagined step has."""
    return [name for name in task.vectors if name != WORLD]


def fill_step(w: KernelWriter, scene: Scene, task: Task, ranks: dict[str, int]) -> tuple[str, list[str]]:
    """Return the text of the kernel of a step, and the names of further functions in it.

    `ranks` are the carried fields and their dimensions.
    """
    groups, moving, parts = seen_groups(task), moving_fields(task), change_parts(scene)
    values = {"groups": "\n".join(fill_group(w, name, task.vectors[name], onward=True) for name in groups)}
    values |= derive_values(w, scene) | {
        "src_arrays": array_arguments("src", groups),
        "dst_arrays": array_arguments("dst", groups),
        "observe_calls": IMAGINED.fill_each("observe_call", ({"group": name} for name in groups)),
        "moves_commands": bool(moving),
        "command_fields": _fill_constant(sorted(moving.intersection(ranks)), ranks),
        "command_updates": w.calls("commands", task.commands, "update"),
        "clip": action_clip(w, scene, task),
        "constant_fields": _fill_constant(
            [name for name in ranks if name not in STEPPED and not name.startswith(("pipe_", ENGINE))], ranks
        ),
        "rewards_before_step": w.calls("rewards", task.rewards, "before", "before", "n, i"),
        "frame": frame_of(scene),
        "advance": _fill_moved("advance", scene, parts),
        "fixed_objects": IMAGINED.fill_each("fixed_object", ({"k": k} for k in fixed_objects(scene))),
        "watched": fill_watched("watched_field", scene, parts),
        "contacts": "contacts" in parts,
        "contacts_at": parts["contacts"].start if "contacts" in parts else None,
    }
    ends = (
        {"call": w.call(f"terminations.{name}", term, "s, i")}
        for name, term in task.terminations.items()
        if not term.time_out
    )
    values["terminations"] = IMAGINED.fill_each("termination", ends)
    rewards = (
        {
            "k": k,
            "weight": w.layout.param(f"rewards.{name}.weight", term.weight),
            "call": w.call(f"rewards.{name}", term, "s, i"),
        }
        for k, (name, term) in enumerate(task.rewards.items())
    )
    values["rewards"] = IMAGINED.fill_each("reward", rewards)
    values["total"] = " + ".join(f"r{k}" for k in range(len(task.rewards))) or "0.0"
    return IMAGINED.fill("step", values), [*groups, *([COMMANDS] if moving else [])]


def _fill_constant(fields: Sequence[str], ranks: dict[str, int]) -> str:
    """Return the lines with which fields stay as they are."""
    rows = ({"field": name} | {f"is_{n}d": ranks[name] == n for n in range(1, 5)} for name in fields)
    return IMAGINED.fill_each("constant_field", rows)


def _fill_moved(direction: str, scene: Scene, parts: dict[str, slice]) -> str:
    return "\n".join(f"{direction}_{name}({arguments})" for name, arguments in moved(scene, parts))


class Imagination:
    """Imagined steps of an environment's task in B rows.

    The memory of a step is written again by the next imagination: what `begin` and `step` return is valid until then,
    and gradients are computed once.

    Attributes:
        carried: columns of a world's row by field of ``s``.
        context: its further columns: numbers of MuJoCo's model that events draw, which no step changes.
        width: how many columns there are in all.
        parts: columns of the changes by part; `change_width` is how many there are.
        gates: groups of columns of the changes that are zero where nothing touches what they are of.
        speeds: columns of qvel that a model has to see besides observations: all where these stop at a bound, those of
            objects, mostly none.
        widths: components of each observation group, in the order that steps return them.
        mirror: (permutation, sign) of the changes under the left-right mirror, and `context_mirror` and `speeds_mirror`
            those of the context and the speeds; None for a task without one.
    """

    def __init__(self, env: Any, rows: int, steps: int) -> None:
        """Compile the kernel and allocate the steps.

        Args:
            env: A `robot_rl_envs.env.Env`.
            rows: Rows B.
            steps: The most steps that are imagined on end.

        Raises:
            ValueError: The task has something that nothing predicts; the line names it.
        """
        fields = {} if env.cfg.robots else fields_of(env)
        if line := why_not_imagined(env.cfg, fields):
            raise ValueError(line)
        self.rows, self.steps, self.device = rows, steps, env.device
        parts, scene, task = env.operands(), env.scene, env.cfg
        kinds = {name: (a.dtype, a.ndim, numbers_of(a.dtype, a.shape[1:])) for name, a in fields.items()}
        self._watched = watched_parts(scene)
        kinds |= {name: of.kind for name, of in self._watched.items()}
        self.carried = carried(kinds, left_fields(task), kept_fields(scene))
        first = 6 if scene.base else 0
        self.speeds = slice(first if _is_bounded(task) else first_of_objects(scene), scene.model.nv)
        drawn = drawn_numbers(task, scene)
        self._drawn = representatives(drawn)
        end = max(columns.stop for columns in self.carried.values())
        self.context = slice(end, end + len(self._drawn))
        self.width = self.context.stop
        self.parts = change_parts(scene)
        self.gates = gates_of(scene, self.parts)
        self.change_width = max(part.stop for part in self.parts.values())
        mirror = mirror_changes(scene, self.parts) if task.mirror else None
        self.mirror = None if mirror is None else (torch.tensor(mirror[0]), torch.tensor(mirror[1]))
        mirror = mirrors.without(first, mirrors.velocities(scene)) if task.mirror and _is_bounded(task) else ([], [])
        self.speeds_mirror = torch.tensor(mirror[0], dtype=torch.int64), torch.tensor(mirror[1])
        mirror = mirror_numbers(scene, drawn) if task.mirror else None
        self.context_mirror = None if mirror is None else (torch.tensor(mirror[0]), torch.tensor(mirror[1]))
        self._state, self._copied = env.state, STATE.intersection(scene.mujoco_fields)
        self._is_floored = task.only_positive_rewards
        self.widths = {name: parts.layout.widths[name] for name in seen_groups(task)}
        more = {"actions": (rows, env.num_actions), "change": (rows, self.change_width)}
        more |= {"rewards": (rows,), "ended": (rows,)} | {f"obs {k}": (rows, n) for k, n in self.widths.items()}
        self._frames = Frames(env, rows, steps, more)
        known, w = len(parts.layout.values), KernelWriter(parts.layout)
        ranks = {name: fields[name].ndim for name in self.carried}
        text, helpers = fill_step(w, scene, task, ranks)
        if len(parts.layout.values) != known:
            raise ValueError(f"task={task.name}: imagined steps have parameters that the simulator's have not")
        self._kernel = compile_kernel(
            task.name, "imagine", text, parts.struct._cls, w.sensors | w.functions, groups=helpers
        )
        self._difference = _compile_difference(task.name, scene, self.parts, parts.struct._cls)
        self._numbers = parts.numbers
        self._launches = [self._record(t, adjoint=False) for t in range(steps)]
        self._adjoints = [self._record(t, adjoint=True) for t in range(steps)]

    def _record(self, t: int, *, adjoint: bool) -> Any:
        """Record the launch of the step from frame t to the one after it."""
        frames, groups = self._frames, list(self.widths)
        before, after = frames.arrays[t], frames.arrays[t + 1]
        given = [frames.structs[t], frames.structs[t + 1], frames.notes[t], self._numbers]
        arrays = [after["actions"], after["change"], after["rewards"], after["ended"]]
        arrays += [before[f"obs {name}"] for name in groups] + [after[f"obs {name}"] for name in groups]
        extra: dict[str, Any] = {}
        if adjoint:
            cls = type(frames.structs[t])
            empty = [cls(), cls(), cls(), Numbers()]
            extra = {"adj_inputs": [*empty, *(array.grad for array in arrays)], "adjoint": True}
        return wp.launch(
            self._kernel, dim=self.rows, inputs=[*given, *arrays], device=self.device, record_cmd=True, **extra
        )

    def read_worlds(self) -> Tensor:
        """Return the rows (N, width) of the environment's worlds as they are now."""
        views = [self._part(name, getattr(self._state, name)) for name in self.carried]
        views += [getattr(self._state, of.field)[:, of.row, of.column] for of in self._drawn]
        return torch.cat([view.reshape(view.shape[0], -1).float() for view in views], 1)

    def begin(self, worlds: Tensor, obs: dict[str, Tensor]) -> Tensor:
        """Set where imagination begins, and return the token for the first step.

        Args:
            worlds: (B, width) rows as of `read_worlds`.
            obs: Observation groups there, (B, D) each, to which terms with a history append.
        """
        self._frames.clear()
        self._load(0, worlds)
        for name, value in obs.items():
            self._frames.views[0][f"obs {name}"].copy_(value)
        return torch.zeros((), device=worlds.device, requires_grad=True)

    def _load(self, t: int, worlds: Tensor) -> None:
        views = self._frames.views[t]
        for name, columns in self.carried.items():
            part = self._part(name, views[name])
            part.copy_(worlds[:, columns].reshape(part.shape))
        for name in self._copied:
            views[f"engine_{name}"].copy_(views[name][..., None])

    def _part(self, name: str, view: Tensor) -> Tensor:
        """Return the columns of a field in a world's row."""
        return self._watched[name].part(view) if name in self._watched else view

    def step(self, t: int, action: Tensor, change: Tensor, token: Tensor) -> Imagined:
        """Imagine step t.

        Args:
            t: 0 for the first step, and so on.
            action: (B, A) as the environment takes it.
            change: (B, change_width) the predictions of the model, by `parts`.
            token: That of the step before, or of `begin`.
        """
        token, reward, ended, speeds, *obs = _Step.apply(token, action, change, self, t)  # type: ignore[misc]
        return Imagined(dict(zip(self.widths, obs, strict=True)), reward, ended, speeds, token)

    def speeds_of(self, worlds: Tensor) -> Tensor:
        """Return the speeds (B, S) of worlds (B, width)."""
        return worlds[:, self.carried["qvel"]][:, self.speeds]

    def measure_changes(self, before: Tensor, after: Tensor) -> Tensor:
        """Return the changes (B, change_width) from worlds (B, width) to those after them; it takes a step's memory."""
        frames = self._frames
        self._load(0, before)
        self._load(1, after)
        out = frames.arrays[1]["change"]
        wp.launch(self._difference, dim=self.rows, inputs=[*frames.structs[:2], out], device=self.device)
        return frames.views[1]["change"].clone()

    def run(self, t: int, action: Tensor, change: Tensor) -> tuple[Tensor, ...]:
        """Compute step t without autograd; return reward, end, speeds and observations in the order of `widths`."""
        views = self._frames.views[t + 1]
        views["actions"].copy_(action)
        views["change"].copy_(change)
        self._launches[t].launch()
        # The gradient is that of the sum, or a policy that is far from any reward would have none.
        reward = views["rewards"].clamp(min=0.0) if self._is_floored else views["rewards"].detach()
        speeds = views["qvel"][:, self.speeds].detach()
        return (reward, views["ended"].detach(), speeds, *(views[f"obs {name}"].detach() for name in self.widths))

    def run_back(
        self, t: int, reward: Tensor, obs: Sequence[Tensor | None], speeds: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the gradients of step t's action and change.

        Args:
            t: The step; those after it have gone back.
            reward: (B,) the gradient of its reward.
            obs: Of its observation groups, (B, D) each, None for zero.
            speeds: Of its speeds, (B, S), likewise.
        """
        own = self._frames.grads[t + 1]
        own["rewards"].copy_(reward)
        if speeds is not None and speeds.shape[1]:
            own["qvel"][:, self.speeds] += speeds
        for name, grad in zip(self.widths, obs, strict=True):
            if grad is not None:
                own[f"obs {name}"].add_(grad)  # A history of the step after it has its own part.
        self._adjoints[t].launch()
        return own["actions"].clone(), own["change"].clone()


class _Step(torch.autograd.Function):
    """A step; its values in Warp's arrays go to the next one with their gradient, for which the token stands."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, ...]:
        token, action, change, imagination, t = given
        ctx.imagination, ctx.t = imagination, t
        return (token.clone(), *imagination.run(t, action, change))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        action, change = ctx.imagination.run_back(ctx.t, grads[1], grads[4:], grads[3])
        return grads[0], action, change, None, None


def _is_bounded(task: Task) -> bool:
    """Whether a task observes a velocity within a narrower bound than the default, which none reaches."""
    groups = [task.vectors[name] for name in seen_groups(task)]
    return any("/s" in term.info.unit and term.clip < CLIP for group in groups for term in group.terms.values())


def _compile_difference(task: str, scene: Scene, parts: dict[str, slice], struct: Any) -> Any:
    """Return the kernel that measures changes."""
    values = {
        "frame": frame_of(scene),
        "differences": _fill_moved("difference", scene, parts),
        "contacts": "contacts" in parts,
        "contacts_at": parts["contacts"].start if "contacts" in parts else None,
        "watched_differences": fill_watched("watched_difference", scene, parts),
    }
    return compile_kernel(task, "difference", IMAGINED.fill("difference", values), struct, {}, backward=False)

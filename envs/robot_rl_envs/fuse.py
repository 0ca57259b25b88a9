"""Write a task's terms as three flat Warp kernels: act, after-physics, observe (and one for startup events).

The kernels are generated as text, one call a term, and compiled once; Warp caches them by their content. Weights,
parameters, scales and ranges are not in the text: they lie in one device array, so a sweep or a curriculum changes them
without a recompile or a new CUDA graph.
"""

from __future__ import annotations

import hashlib
import linecache
import math
from dataclasses import dataclass, field
from typing import Any

import warp as wp

from robot_rl_envs import derive as derive_module
from robot_rl_envs.engines.base import DIRTY_MODEL, DIRTY_STATE, DIRTY_VELOCITY
from robot_rl_envs.rng import salt_of, stream
from robot_rl_envs.scene import Scene
from robot_rl_envs.task import Observation, ObservationGroup, Task, TorchTerm

LOG_EPISODES, LOG_RETURN, LOG_LENGTH, LOG_QUARANTINED, LOG_STEPS, LOG_TERMS = range(6)

GROUP = "observe$"
"""Stands for the name of a group's function until the text's digest is known; no term can be called so."""

_DIRTY = {"state": DIRTY_STATE, "velocity": DIRTY_VELOCITY, "model": DIRTY_MODEL}


@dataclass(slots=True)
class ObservationSlot:
    """Where one observation term lies in its group: ``offset`` .. ``offset + size * history``, oldest value first."""

    name: str
    term: Any
    offset: int
    size: int
    history: int


@dataclass(slots=True)
class Layout:
    """Indices that the generated kernels and the environment share.

    Attributes:
        params: parameter path ("rewards.track.weight") -> index in the parameter array.
        values: the parameter array's initial content.
        groups: observation group -> its slots.
        widths: observation group -> width.
        log: log name -> index in the log array.
        rewards: names of the reward terms, in the order of ``episode_sums``.
        commands, intervals: names, in the order of their timers.
    """

    params: dict[str, int] = field(default_factory=dict)
    values: list[float] = field(default_factory=list)
    groups: dict[str, list[ObservationSlot]] = field(default_factory=dict)
    widths: dict[str, int] = field(default_factory=dict)
    log: dict[str, int] = field(default_factory=dict)
    rewards: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    intervals: list[str] = field(default_factory=list)

    def param(self, path: str, value: float) -> str:
        """Reserve a place for a parameter, once for all stages; return the expression that reads it."""
        if path not in self.params:
            self.params[path] = len(self.values)
            self.values.append(float(value))
        return f"p[{self.params[path]}]"


def resolve_size(size: int | str, scene: Scene) -> int:
    """Turn a declared width ("joints", "actions", "feet" or a number) into a number."""
    if isinstance(size, int):
        return size
    return {"joints": len(scene.robot.joints), "actions": len(scene.actuated), "feet": len(scene.robot.feet)}[size]


def _check_indices(task: Task, scene: Scene) -> None:
    """Refuse a term's ``joint`` or ``body`` that the robot does not have: on the device nothing would notice."""
    counts = {"joint": len(scene.robot.joints), "body": scene.model.nbody}
    sections = {name: getattr(task, name) for name in ("rewards", "terminations", "commands", "events", "metrics")}
    sections |= {f"observations.{name}": group.terms for name, group in task.observations.items()}
    for section, terms in sections.items():
        for name, term in terms.items():
            for param, value in getattr(term, "params", {}).items():
                count = counts.get(param, math.inf)
                if param in counts and not (0 <= value < count and value == int(value)):
                    raise ValueError(
                        f"{section}.{name}.{param}={value!r}: {scene.robot.name!r} has {param} indices 0 to {count - 1}"
                    )


def make_layout(task: Task, scene: Scene) -> Layout:
    """Reserve a place for every observation, reward, timer and log entry of ``task``.

    Raises:
        ValueError: a term names a joint or a body by an index that the robot does not have.
    """
    _check_indices(task, scene)
    layout = Layout()
    for group_name, group in task.observations.items():
        slots, offset = [], 0
        for name, term in group.terms.items():
            torch_term = isinstance(term, TorchTerm)
            size = term.size if torch_term else resolve_size(term.info.size, scene)
            history = 1 if torch_term else term.history
            slots.append(ObservationSlot(name, term, offset, size, history))
            offset += size * history
        layout.groups[group_name], layout.widths[group_name] = slots, offset
    layout.rewards = list(task.rewards)
    layout.commands = list(task.commands)
    layout.intervals = [name for name, event in task.events.items() if event.mode == "interval"]
    names = [f"reward/{name}" for name in task.rewards]
    names += [f"termination/{name}" for name in ("time_limit", *task.terminations)]
    names += [f"tracking/{name}" for name in task.metrics]
    layout.log = {name: LOG_TERMS + k for k, name in enumerate(names)}
    return layout


class _Writer:
    """Collects source lines, the functions they call and the parameters they read."""

    def __init__(self, layout: Layout):
        self.layout = layout
        self.lines: list[str] = []
        self.functions: dict[str, Any] = {}
        self.aliases: dict[str, str] = {}

    def add(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    def call(self, path: str, term: Any, arguments: str) -> str:
        """An expression that calls ``term`` with its parameters read from the parameter array."""
        alias = self.aliases.setdefault(path, f"t{len(self.aliases)}_{path.replace('.', '_')}")
        self.functions[alias] = term.fn
        params = [self.layout.param(f"{path}.{name}", value) for name, value in term.params.items()]
        return f"{alias}({', '.join([arguments, *params])})"

    def rng(self, indent: int, path: str) -> None:
        self.add(indent, f"rng = stream(s.seed, i + s.world_offset, s.counter[i], {salt_of(path)})")


def _write_act(w: _Writer, scene: Scene, task: Task) -> None:
    clip = w.layout.param("actions.clip", task.actions.clip)
    w.add(
        0, "def act(s: SceneState, p: wp.array(dtype=wp.float32), actions: wp.array2d(dtype=wp.float32), first: int):"
    )
    w.add(1, "i = first + wp.tid()")
    w.add(1, "s.dirty[i] = 0")
    for j, joint in enumerate(joint for joint in scene.robot.joints if not joint.passive):
        position = task.actions.kind == "position"
        offset = w.layout.param(f"actions.offset.{joint.name}", joint.default_pos if position else 0.0)
        scale = joint.action_scale * task.actions.scale * (1.0 if position else joint.effort_limit)
        scale = w.layout.param(f"actions.scale.{joint.name}", scale)
        w.add(1, f"s.prev_prev_action[i, {j}] = s.prev_action[i, {j}]")
        w.add(1, f"s.prev_action[i, {j}] = s.action[i, {j}]")
        # clamp makes a bound of NaN: what is not finite is kept, for the world to be quarantined
        kept = f"wp.where(wp.isfinite(actions[i, {j}]), wp.clamp(actions[i, {j}], -{clip}, {clip}), actions[i, {j}])"
        w.add(1, f"s.action[i, {j}] = {kept}")
        w.add(1, f"s.ctrl[i, {j}] = {offset} + {scale} * s.action[i, {j}]")


def _write_terminations(w: _Writer, task: Task) -> None:
    limit = w.layout.param("episode_length_s", task.episode_length_s)
    w.add(1, "terminated = int(0)")
    w.add(1, "time_out = int(0)")
    w.add(1, f"if float(s.episode_length[i]) * s.step_dt >= {limit} - 0.5 * s.step_dt:")
    w.add(2, "time_out = 1")
    w.add(2, f"wp.atomic_add(log, {w.layout.log['termination/time_limit']}, wp.float64(1.0))")
    for name, term in task.terminations.items():
        if isinstance(term, TorchTerm):
            continue
        w.add(1, f"if {w.call(f'terminations.{name}', term, 's, i')} != 0:")
        w.add(2, "time_out = 1" if term.time_out else "terminated = 1")
        w.add(2, f"wp.atomic_add(log, {w.layout.log[f'termination/{name}']}, wp.float64(1.0))")


def _write_rewards(w: _Writer, task: Task) -> None:
    # With torch terms the sum is not complete here: the environment floors it and adds it to the episode's.
    complete = not any(isinstance(term, TorchTerm) for term in task.rewards.values())
    w.add(1, "total = float(0.0)")
    for k, name in enumerate(w.layout.rewards):
        term = task.rewards[name]
        if isinstance(term, TorchTerm):
            continue
        weight = w.layout.param(f"rewards.{name}.weight", term.weight)
        w.add(1, f"r = {weight} * {w.call(f'rewards.{name}', term, 's, i')} * s.step_dt")
        w.add(1, "if not wp.isfinite(r):")
        w.add(2, "finite = 0")
        w.add(2, "r = 0.0")
        w.add(1, f"s.episode_sums[i, {k}] = s.episode_sums[i, {k}] + r")
        w.add(1, "total = total + r")
    if task.only_positive_rewards and complete:
        w.add(1, "total = wp.max(total, 0.0)")
    w.add(1, "if finite == 0:")
    w.add(2, "total = 0.0")
    w.add(2, "terminated = 1")
    w.add(2, f"wp.atomic_add(log, {LOG_QUARANTINED}, wp.float64(1.0))")
    w.add(1, "if terminated == 1:")
    w.add(2, "time_out = 0")
    w.add(1, "s.quarantined[i] = 1 - finite")
    w.add(1, "s.reward[i] = total")
    if complete:
        w.add(1, "s.episode_return[i] = s.episode_return[i] + total")
    w.add(1, "s.terminated[i] = terminated")
    w.add(1, "s.time_out[i] = time_out")


def _write_commands(w: _Writer, task: Task, indent: int, *, timed: bool) -> None:
    for k, (name, term) in enumerate(task.commands.items()):
        path = f"commands.{name}"
        if timed:
            w.add(indent, f"s.command_left_s[i, {k}] = s.command_left_s[i, {k}] - s.step_dt")
        condition = f"s.command_left_s[i, {k}] <= 0.0 and s.command_hold[i] == 0" if timed else "s.command_hold[i] == 0"
        lo, hi = (w.layout.param(f"{path}.resample_s.{n}", v) for n, v in enumerate(term.resample_s))
        w.add(indent, f"if {condition}:")
        w.rng(indent + 1, path)
        w.add(indent + 1, f"s.command_left_s[i, {k}] = {lo} + ({hi} - {lo}) * wp.randf(rng)")
        w.add(indent + 1, w.call(path, term, "s, i, rng"))


def _write_interval_events(w: _Writer, task: Task) -> None:
    for k, name in enumerate(w.layout.intervals):
        term = task.events[name]
        path = f"events.{name}"
        lo, hi = (w.layout.param(f"{path}.interval_s.{n}", v) for n, v in enumerate(term.interval_s))
        w.add(1, f"s.interval_left_s[i, {k}] = s.interval_left_s[i, {k}] - s.step_dt")
        w.add(1, f"if s.interval_left_s[i, {k}] <= 0.0:")
        w.rng(2, path)
        w.add(2, f"s.interval_left_s[i, {k}] = {lo} + ({hi} - {lo}) * wp.randf(rng)")
        w.add(2, w.call(path, term, "s, i, rng"))
        w.add(2, f"s.dirty[i] = s.dirty[i] | {_DIRTY[term.info.writes]}")


def _write_after(w: _Writer, task: Task) -> None:
    w.add(0, "def after_physics(")
    w.add(1, "s: SceneState, c: Chain, p: wp.array(dtype=wp.float32), log: wp.array(dtype=wp.float64), first: int")
    w.add(0, "):")
    w.add(1, "i = first + wp.tid()")
    for name in ("counter", "step_count", "episode_length"):
        w.add(1, f"s.{name}[i] = s.{name}[i] + 1")
    w.add(1, "finite = world_is_finite(s, i)")
    w.add(1, "derive(s, c, i)")
    w.add(1, "update_contacts(s, c, i)")
    _write_terminations(w, task)
    _write_rewards(w, task)
    w.add(1, "if finite == 1:")
    w.add(2, f"wp.atomic_add(log, {LOG_STEPS}, wp.float64(1.0))")
    for name, term in task.metrics.items():
        index = w.layout.log[f"tracking/{name}"]
        w.add(2, f"wp.atomic_add(log, {index}, wp.float64({w.call(f'metrics.{name}', term, 's, i')}))")
    w.add(1, "for j in range(s.joint_vel.shape[1]):")
    w.add(2, "s.last_joint_vel[i, j] = s.joint_vel[i, j]")
    _write_commands(w, task, 1, timed=True)
    _write_interval_events(w, task)


def _write_group(w: _Writer, name: str, group: ObservationGroup) -> None:
    w.add(0, f"def {GROUP}{name}(")
    w.add(1, "s: SceneState, i: int, p: wp.array(dtype=wp.float32), fresh: int,")
    w.add(1, "src: wp.array2d(dtype=wp.float32), dst: wp.array2d(dtype=wp.float32),")
    w.add(0, "):")
    w.add(1, "v = float(0.0)")
    for slot in w.layout.groups[name]:
        if isinstance(slot.term, TorchTerm):
            continue
        path = f"observations.{name}.{slot.name}"
        term: Observation = slot.term
        noisy = group.noise and term.noise > 0
        scale = w.layout.param(f"{path}.scale", term.scale)
        clip = w.layout.param(f"{path}.clip", term.clip)
        noise = w.layout.param(f"{path}.noise", term.noise)
        if noisy:
            w.rng(1, path)
        w.add(1, f"for j in range({slot.size}):")
        w.add(2, f"v = {w.call(path, term, 's, i, j')}")
        if noisy:
            w.add(2, f"v = v + {noise} * (2.0 * wp.randf(rng) - 1.0)")
        w.add(2, f"v = wp.clamp(v, -{clip}, {clip}) * {scale}")
        last = slot.offset + (slot.history - 1) * slot.size
        for h in range(slot.history - 1):
            at = slot.offset + h * slot.size
            w.add(2, f"dst[i, {at} + j] = wp.where(fresh == 1, v, src[i, {at + slot.size} + j])")
        w.add(2, f"dst[i, {last} + j] = v")


def _write_observe(w: _Writer, task: Task) -> None:
    groups = list(task.observations)
    w.add(0, "def observe(")
    w.add(1, "s: SceneState, c: Chain, p: wp.array(dtype=wp.float32), log: wp.array(dtype=wp.float64),")
    w.add(1, "first: int, initial: int,")
    for kind in ("out", "final"):
        w.add(1, " ".join(f"{kind}_{name}: wp.array2d(dtype=wp.float32)," for name in groups))
    w.add(0, "):")
    w.add(1, "i = first + wp.tid()")
    w.add(1, "done = wp.max(s.terminated[i], s.time_out[i])")
    w.add(1, "if done == 1:")
    w.add(2, "if initial == 0:")
    for name in groups:
        w.add(3, f"{GROUP}{name}(s, i, p, 0, out_{name}, final_{name})")
        w.add(3, "if s.quarantined[i] == 1:")
        w.add(4, f"for j in range(final_{name}.shape[1]):")
        w.add(5, f"final_{name}[i, j] = 0.0")
    w.add(3, f"wp.atomic_add(log, {LOG_EPISODES}, wp.float64(1.0))")
    w.add(3, f"wp.atomic_add(log, {LOG_RETURN}, wp.float64(s.episode_return[i]))")
    w.add(3, f"wp.atomic_add(log, {LOG_LENGTH}, wp.float64(float(s.step_count[i]) * s.step_dt))")
    for k, name in enumerate(w.layout.rewards):
        w.add(3, f"wp.atomic_add(log, {w.layout.log[f'reward/{name}']}, wp.float64(s.episode_sums[i, {k}]))")
    w.add(2, f"s.dirty[i] = s.dirty[i] | {DIRTY_STATE}")
    w.add(2, "for k in range(s.qpos.shape[1]):")
    w.add(3, "s.qpos[i, k] = s.default_qpos[k]")
    w.add(2, "for k in range(s.qvel.shape[1]):")
    w.add(3, "s.qvel[i, k] = 0.0")
    for name, term in task.events.items():
        if term.mode == "reset":
            w.rng(2, f"events.{name}")
            w.add(2, w.call(f"events.{name}", term, "s, i, rng"))
            w.add(2, f"s.dirty[i] = s.dirty[i] | {_DIRTY[term.info.writes]}")
    w.add(2, "clear_world(s, i)")
    _write_commands(w, task, 2, timed=False)
    w.add(1, f"if done == 1 or (s.dirty[i] & {DIRTY_VELOCITY}) != 0:")
    w.add(2, "derive(s, c, i)")
    for name in groups:
        w.add(1, f"{GROUP}{name}(s, i, p, done, out_{name}, out_{name})")


def _write_startup(w: _Writer, task: Task) -> None:
    w.add(0, "def startup(s: SceneState, p: wp.array(dtype=wp.float32), first: int):")
    w.add(1, "i = first + wp.tid()")
    for k, name in enumerate(w.layout.intervals):
        lo, hi = (
            w.layout.param(f"events.{name}.interval_s.{n}", v) for n, v in enumerate(task.events[name].interval_s)
        )
        w.rng(1, f"events.{name}.first")
        w.add(1, f"s.interval_left_s[i, {k}] = {lo} + ({hi} - {lo}) * wp.randf(rng)")
    for name, term in task.events.items():
        if term.mode == "startup":
            w.rng(1, f"events.{name}")
            w.add(1, w.call(f"events.{name}", term, "s, i, rng"))
            w.add(1, f"s.dirty[i] = s.dirty[i] | {_DIRTY[term.info.writes]}")


@dataclass(slots=True)
class Kernels:
    """The compiled stages of one task."""

    act: wp.Kernel
    after_physics: wp.Kernel
    observe: wp.Kernel
    startup: wp.Kernel
    source: str


def make_kernels(task: Task, scene: Scene, layout: Layout, struct: Any, chain: Any) -> Kernels:
    """Generate the source for ``task``, fill ``layout``'s parameters and register the kernels (compiled on launch)."""
    writer = _Writer(layout)
    _write_act(writer, scene, task)
    _write_after(writer, task)
    for name, group in task.observations.items():
        _write_group(writer, name, group)
    _write_observe(writer, task)
    _write_startup(writer, task)
    body = "\n".join(writer.lines)
    names = "".join(f"{alias}={fn.module.name}.{fn.key};" for alias, fn in sorted(writer.functions.items()))
    digest = hashlib.sha256((body + names).encode()).hexdigest()[:12]
    filename = f"<robot_rl {task.name} {digest}>"
    namespace: dict[str, Any] = {"wp": wp, "SceneState": struct, "Chain": chain, "stream": stream, **writer.functions}
    for name in ("derive", "update_contacts", "clear_world", "world_is_finite"):
        namespace[name] = getattr(derive_module, name)
    renamed = body.replace(GROUP, f"observe_{digest}_")
    linecache.cache[filename] = (len(renamed), None, renamed.splitlines(keepends=True), filename)
    exec(compile(renamed, filename, "exec"), namespace)
    for name in task.observations:
        full = f"observe_{digest}_{name}"
        namespace[full] = wp.func(namespace[full], module=wp.get_module(f"robot_rl_{task.name}_{digest}"))
    options = {"enable_backward": False}
    kernels: dict[str, Any] = {
        name: wp.kernel(namespace[name], module="unique", enable_backward=False, module_options=options)
        for name in ("act", "after_physics", "observe", "startup")
    }
    return Kernels(**kernels, source=renamed)

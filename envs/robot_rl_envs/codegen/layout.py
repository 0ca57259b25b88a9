"""Indices of everything of a task in the arrays that kernels and environment share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.recorder.flight import REASONS
from robot_rl_envs.sensing.pipeline import Pipe, make_pipe
from robot_rl_envs.task import Task, TorchTerm
from robot_rl_envs.term_config import reference_kind
from robot_rl_envs.terms.checks import nearest
from robot_rl_envs.terms.declare import Size

LOG_EPISODES, LOG_RETURN, LOG_LENGTH, LOG_STEPS, LOG_FAULTS = range(5)
"""The log's first entries; from LOG_FAULTS on quarantined worlds by reason, from LOG_TERMS on those of the terms."""
LOG_TERMS = LOG_FAULTS + len(REASONS)


@dataclass(slots=True)
class ObservationSlot:
    """Where one observation term is in its group: ``offset`` .. ``offset + size * history``, oldest value first.

    ``pipe`` are the columns of its sensor's memory; None without a memory. With ``muted`` all figures of its sensor, as
    of noise, are 0.
    """

    name: str
    term: Any
    offset: int
    size: int
    history: int
    pipe: Pipe | None = None
    muted: bool = False


@dataclass(slots=True)
class TaskLayout:
    """Indices that the generated kernels and the environment share.

    Attributes:
        params: parameter path ("rewards.track.weight") -> index in the parameter array.
        values: the parameter array's initial content.
        groups: observation group -> its slots.
        widths: observation group -> width.
        pipes: observation group -> columns of the memory of its terms' sensors; only groups that need some.
        log: log name -> index in the log array.
        rewards: names of the reward terms, in the order of ``reward_sums``.
        reward_groups: groups of the reward terms in order; empty if there is only one.
        commands, intervals: names, in the order of their timers.
        resolved: path of a parameter given by a name ("events.load.body") -> its index.
        measured: name of a declared measurement -> its first column and its size.
    """

    params: dict[str, int] = field(default_factory=dict)
    values: list[float] = field(default_factory=list)
    groups: dict[str, list[ObservationSlot]] = field(default_factory=dict)
    widths: dict[str, int] = field(default_factory=dict)
    pipes: dict[str, int] = field(default_factory=dict)
    log: dict[str, int] = field(default_factory=dict)
    rewards: list[str] = field(default_factory=list)
    reward_groups: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    intervals: list[str] = field(default_factory=list)
    resolved: dict[str, float] = field(default_factory=dict)
    measured: dict[str, tuple[int, int]] = field(default_factory=dict)

    def received_size(self, scene: Scene, path: str) -> int:
        """Return the width of a term that receives the message of a parameter: its values, and whether there is one."""
        assert scene.crew is not None
        return list(scene.crew.messages.values())[int(self.resolved[path])] + 1

    @property
    def observations(self) -> list[str]:
        """Names of the observation terms, "group.term", in the order of all groups."""
        return [f"{group}.{slot.name}" for group, slots in self.groups.items() for slot in slots]

    def param(self, path: str, value: Any) -> str:
        """Reserve a place for a parameter, once for all stages; return the expression that reads it."""
        if path not in self.params:
            self.params[path] = len(self.values)
            number: Any = self.resolved.get(path, value)
            self.values.append(float(number))
        return f"p[{self.params[path]}]"


def message_sizes(task: Task, scene: Scene) -> dict[str, dict[str, int]]:
    """Return how many values each term of each message has.

    Raises:
        ValueError: A message is wider than declared, or narrower.
    """
    sizes_of = {}
    for name, message in task.messages.items():
        path = f"messages.{name}"
        sizes = {
            part: resolve_size(term.info.size, scene, f"{path}.terms.{part}") for part, term in message.terms.items()
        }
        total = sum(sizes.values())
        if total != message.width:
            given = ", ".join(f"{part} {size}" for part, size in sizes.items())
            raise ValueError(f"{path}.width={message.width}: its terms have {total} values ({given}); declare {total}")
        sizes_of[name] = sizes
    return sizes_of


def resolve_size(size: Size, scene: Scene, path: str) -> int:
    """Turn a declared width (a number, one of ``Scene.sizes``, or a function of the scene) into a number."""
    if isinstance(size, str) and size not in scene.sizes:
        raise ValueError(f"{path}: declares size={size!r}, which no scene has; {nearest(size, scene.sizes)}")
    return scene.sizes[size] if isinstance(size, str) else size if isinstance(size, int) else size(scene)


def _resolve(path: str, value: Any, kind: str, scene: Scene) -> float:
    """Return the index of ``value``, an index or a name, and check it: kernels do not."""
    known, owner = scene.index_of(kind)
    if isinstance(value, str):
        if value in known:
            return float(known[value])
        raise ValueError(f"{path}={value!r}: {owner} has no {kind} of that name; {nearest(value, known)}")
    if value not in known.values():
        right = f"has {kind} indices 0 to {len(known) - 1}" if known else f"has no {kind}"
        raise ValueError(f"{path}={value!r}: {owner} {right}")
    return value


def _check_terms(task: Task, scene: Scene) -> dict[str, float]:
    """Check every term's parameters against the robot; return the indices of those given by name, by path."""
    model = scene.model
    resolved = {}
    for section, terms in task.sections().items():
        for name, term in terms.items():
            params = dict(getattr(term, "params", {}))
            for param, value in params.items():
                if (kind := reference_kind(param)) is not None:
                    path = f"{section}.{name}.{param}"
                    params[param] = resolved[path] = _resolve(path, value, kind, scene)
            if isinstance(term, TorchTerm):
                continue
            reads, width = term.info.reads_command, scene.sizes["command"]
            if reads > width:
                line = f"{term.info.name} reads {reads} components of the command"
                raise ValueError(f"{section}.{name}: {line}, which has {width}; take a term for commands of that width")
            for model_field in term.info.model_fields:
                owner = model.opt if model_field.startswith("opt.") else model
                if not hasattr(owner, model_field.removeprefix("opt.")):
                    line = f"{term.info.name} declares model_fields={model_field!r}, which MuJoCo's model does not have"
                    raise ValueError(f"{section}.{name}: {line}; {nearest(model_field, dir(owner))}")
            check = term.info.check
            if check is not None:
                try:
                    check(params, scene)
                except ValueError as error:
                    raise ValueError(f"{section}.{name}.{error}") from None
    return resolved


def _check_overlaps(task: Task, resolved: dict[str, float]) -> None:
    """Refuse two events that draw the same of the model: each starts from the nominal, the second undoes the first."""
    owners: dict[str, list[tuple[float | None, str]]] = {}
    for name, event in task.events.items():
        targets = [resolved[f"events.{name}.{param}"] for param in event.params if reference_kind(param) is not None]
        target = targets[0] if targets else None
        for cover in event.info.covers:
            for other, before in owners.setdefault(cover, []):
                if other is None or target is None or other == target:
                    raise ValueError(
                        f"events.{name}: draws {cover}, which events.{before} also draws; keep one of them"
                    )
            owners[cover].append((target, name))


def make_layout(task: Task, scene: Scene) -> TaskLayout:
    """Reserve a place for every observation, reward, timer and log entry of ``task``.

    Raises:
        ValueError: a term's parameters are invalid for the robot, or two events draw the same of the model.
    """
    layout = TaskLayout(resolved=_check_terms(task, scene))
    _check_overlaps(task, layout.resolved)
    for group_name, group in task.vectors.items():
        slots, offset, columns = [], 0, 0
        for name, entry in group.terms.items():
            torch_term, term = isinstance(entry, TorchTerm), task.delivered(entry)
            size = term.size if torch_term else resolve_size(term.info.size, scene, f"observations.{group_name}.{name}")
            if not torch_term and term.message_param:
                size = layout.received_size(scene, f"observations.{group_name}.{name}.{term.message_param}")
            history = 1 if torch_term else term.history
            slot = ObservationSlot(name, term, offset, size, history, muted=group.muted)
            if not torch_term:
                pipe = make_pipe(f"observations.{group_name}.{name}", term, size, columns, task.sim.step_dt)
                slot.pipe = pipe if group.noise else None
            columns += slot.pipe.width if slot.pipe else 0
            if group_name == "actor" and getattr(term, "measured", ""):
                layout.measured[term.measured] = (sum(size for _, size in layout.measured.values()), size)
            slots.append(slot)
            offset += size * history
        if columns:
            layout.pipes[group_name] = columns
        layout.groups[group_name], layout.widths[group_name] = slots, offset
    layout.rewards = list(task.rewards)
    groups = list(dict.fromkeys(getattr(term, "group", "task") for term in task.rewards.values()))
    layout.reward_groups = groups if len(groups) > 1 else []
    layout.commands = list(task.commands)
    layout.intervals = [name for name, event in task.events.items() if event.mode == "interval"]
    names = [f"reward/{name}" for name in task.rewards]
    names += [f"termination/{name}" for name in ("time_limit", *task.terminations)]
    names += [f"tracking/{name}" for name in task.metrics]
    layout.log = {name: LOG_TERMS + k for k, name in enumerate(names)}
    return layout

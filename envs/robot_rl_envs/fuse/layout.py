"""Where everything of a task lies in the arrays that the generated kernels and the environment share."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from robot_rl_envs.scene import Scene
from robot_rl_envs.task import Task, TorchTerm

LOG_EPISODES, LOG_RETURN, LOG_LENGTH, LOG_QUARANTINED, LOG_STEPS, LOG_TERMS = range(6)


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
    """Turn a declared width (a number, or one of ``Scene.sizes``) into a number."""
    if isinstance(size, int):
        return size
    return scene.sizes[size]


def _check_indices(task: Task, scene: Scene) -> None:
    """Refuse a term's ``joint`` or ``body`` that the robot does not have: on the device nothing would notice."""
    counts = {"joint": len(scene.robot.joints), "body": scene.model.nbody}
    sections = {
        name: getattr(task, name) for name in ("rewards", "terminations", "commands", "events", "curricula", "metrics")
    }
    sections |= {f"observations.{name}": group.terms for name, group in task.vectors.items()}
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
    for group_name, group in task.vectors.items():
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

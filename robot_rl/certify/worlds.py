"""Many worlds of a task that step at once, each with its own values of the properties, and their episodes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import warp as wp
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.certify.axes import CONSTANTS, Axis, Fields, find_axes, kept_events, with_delay
from robot_rl.evaluation.policies import Loadable, load_policy
from robot_rl.evaluation.rollout import evaluation_task, measure
from robot_rl.metrics.description import judged

PUSHED_AT = (0.3, 0.6)
"""Shares of an episode after which a robot is pushed."""
AT_LIMIT = 0.99
"""Share of its effort limit from which a motor is at the limit."""

Plant = Mapping[str, float]
"""Values of properties by name; the others are nominal."""


@dataclass(kw_only=True, slots=True)
class Episodes:
    """The results of episodes in some worlds.

    Attributes:
        success: (n,) bool, episodes that ended neither by a failure nor in quarantine.
        metric: (n,) the task's metric; NaN if the episode does not have it.
        speed: (n, J) largest speed of each joint [rad/s or m/s].
        torque: (n, J) share of the time with the joint's torque at its limit.
        beyond: (n, J) how far each joint was beyond its range [rad or m].
        height: (n,) least height of the base above its start's ground [m]; NaN without a floating base.
        tilt: (n,) largest tilt of the base [rad]; NaN without a floating base.
    """

    success: NDArray[np.bool_]
    metric: NDArray[np.float64]
    speed: NDArray[np.float64]
    torque: NDArray[np.float64]
    beyond: NDArray[np.float64]
    height: NDArray[np.float64]
    tilt: NDArray[np.float64]

    def __getitem__(self, rows: Any) -> Episodes:
        """Return some of the worlds."""
        return Episodes(**{name: getattr(self, name)[rows] for name in self.__slots__})

    @classmethod
    def join(cls, parts: Sequence[Episodes]) -> Episodes:
        """Return the worlds of several as one."""
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__})


@dataclass(kw_only=True, slots=True)
class Goal:
    """The metric by which a task is solved, or its first one with better values; without a bound it is only reported.

    Attributes:
        name: The metric.
        unit: Its unit.
        better: "smaller" or "larger".
        bound: The task's bound; None without one.
    """

    name: str
    unit: str
    better: str
    bound: float | None

    def slack(self, mean: float) -> float:
        """Return how far a mean is within the bound, as a share of the bound; infinite without a bound."""
        if self.bound is None:
            return math.inf
        sign = 1.0 if self.better == "smaller" else -1.0
        return sign * (self.bound - mean) / (abs(self.bound) or 1.0)


class Worlds:
    """An environment that runs a policy's episodes with other values of the properties in each world.

    Attributes:
        axes: The properties by name.
        goal: The task's metric; None if it has none with better values.
        count: Worlds that step at once.
        seconds: Length of an episode [s].
        episodes: Episodes that have been run.
        slots: The same with those of worlds that were not needed.
    """

    def __init__(self, cfg: Any, acting: Loadable, count: int, seconds: float, seed: int) -> None:
        """Build the worlds of a `robot_rl.runs.settings.TrainCfg` and load a policy for them."""
        own = cfg.task
        task = with_delay(replace(evaluation_task(own), events=kept_events(own)))
        self._made = contextlib.ExitStack()
        options = replace(cfg.worlds(num_envs=count, seed=seed), num_threads=1)
        env = self._made.enter_context(contextlib.closing(cfg.source.make_env(task, options)))
        self.env, self.count, self.episodes, self.slots = env, count, 0, 0
        self.seconds = min(seconds, env.max_episode_length * env.step_dt)
        self.axes: dict[str, Axis] = {axis.name: axis for axis in find_axes(own, env.scene)}
        self.goal = find_goal(own, env)
        self.policy = load_policy(acting, env)
        names = sorted({name for axis in self.axes.values() for name in axis.fields})
        self._fields = Fields(env, {name: wp.to_torch(env.engine.expand(name)) for name in names})
        self._nominal = {name: live.clone() for name, live in self._fields.live.items()}
        self._directions = np.random.default_rng(seed)
        self._values: dict[str, Tensor] = {}

    def close(self) -> None:
        """End the environment."""
        self._made.close()

    def run(self, plants: Sequence[Plant]) -> Episodes:
        """Run an episode of each plant, `count` at once."""
        parts = []
        for first in range(0, len(plants), self.count):
            part = plants[first : first + self.count]
            padded = [*part, *({} for _ in range(self.count - len(part)))]
            parts.append(self._run([dict(plant) for plant in padded])[: len(part)])
            self.slots += self.count
        self.episodes += len(plants)
        return Episodes.join(parts)

    def _run(self, plants: list[dict[str, float]]) -> Episodes:
        self._values = {
            name: torch.tensor([plant.get(name, axis.nominal) for plant in plants], device=self.env.device)
            for name, axis in self.axes.items()
        }
        peaks = Peaks(self.env)
        pushed = {max(1, round(share * self.seconds / self.env.step_dt)) for share in PUSHED_AT}

        def disturb(env: Any, step: int) -> None:
            if step == 0:
                self.write()
            elif step in pushed and "push" in self._values:
                self._push()
            peaks.add(step)

        found = measure(self.env, self.policy, seconds=self.seconds, disturb=disturb)
        failed = found["failure_rate"].numpy()
        metric = found[self.goal.name].numpy() if self.goal else np.full(len(failed), np.nan)
        return Episodes(success=failed == 0.0, metric=metric, **peaks.values())

    def write(self) -> None:
        """Write the values of the worlds to the engine, over the nominal ones."""
        for name, live in self._fields.live.items():
            live.copy_(self._nominal[name])
        for name, values in self._values.items():
            if (write := self.axes[name].write) is not None:
                write(self._fields, values)
        from robot_rl_envs.engine import DIRTY_MODEL

        env = self.env
        env.state.dirty.fill_(DIRTY_MODEL)
        env.write_back()
        if any(name in CONSTANTS for name in self._fields.live):
            env.engine.set_const()
        env.state.dirty.zero_()

    def _push(self) -> None:
        angles = self._directions.uniform(-math.pi, math.pi, self.count)
        directions = np.stack([np.cos(angles), np.sin(angles), np.zeros(self.count)], axis=1)
        speeds = self._values["push"][:, None]
        self.env.push(speeds * torch.as_tensor(directions, dtype=torch.float32, device=self.env.device))


@dataclass(slots=True)
class Peaks:
    """Largest values of the first episode in every world of an environment."""

    env: Any
    speed: Tensor = field(init=False)
    at_limit: Tensor = field(init=False)
    beyond: Tensor = field(init=False)
    height: Tensor = field(init=False)
    tilt: Tensor = field(init=False)
    steps: Tensor = field(init=False)

    def __post_init__(self) -> None:
        """Start with nothing seen."""
        like = self.env.state.joint_vel
        self.speed, self.at_limit, self.beyond = (torch.zeros_like(like, dtype=torch.float64) for _ in range(3))
        self.steps = torch.zeros(len(like), dtype=torch.float64, device=like.device)
        self.height = torch.full_like(self.steps, math.inf if self.env.scene.base else math.nan)
        self.tilt = torch.full_like(self.steps, 0.0 if self.env.scene.base else math.nan)

    def add(self, step: int) -> None:
        """Add the state before a step, in the worlds that have not been reset since the first one."""
        state = self.env.state
        here = state.step_count == step
        each = here[:, None]
        self.speed = torch.where(each, torch.maximum(self.speed, state.joint_vel.double().abs()), self.speed)
        outside = torch.maximum(state.joint_lower - state.joint_pos, state.joint_pos - state.joint_upper).double()
        self.beyond = torch.where(each, torch.maximum(self.beyond, outside), self.beyond)
        if step == 0:  # Torques begin with the first step.
            return
        at_limit = (state.joint_torque.abs() >= AT_LIMIT * state.effort_limit) & (state.effort_limit > 0)
        self.at_limit += (at_limit & each).double()
        self.steps += here.double()
        if self.env.scene.base:
            height = (state.base_pos_w[:, 2] - state.env_origin_w[:, 2]).double()
            self.height = torch.where(here, torch.minimum(self.height, height), self.height)
            tilt = torch.acos((-state.projected_gravity_b[:, 2].double()).clamp(-1.0, 1.0))
            self.tilt = torch.where(here, torch.maximum(self.tilt, tilt), self.tilt)

    def values(self) -> dict[str, NDArray[np.float64]]:
        """Return them as fields of `Episodes`."""
        torque = self.at_limit / self.steps.clamp(min=1.0)[:, None]
        found = {"speed": self.speed, "torque": torque, "beyond": self.beyond}
        found |= {"height": self.height, "tilt": self.tilt}
        return {name: value.cpu().numpy() for name, value in found.items()}


def find_goal(task: Any, env: Any) -> Goal | None:
    """Return the metric by which a task is solved, or its first one with better values."""
    known = env.describe_metrics()
    name, bound = "", None
    if task.solved is not None:
        name, bound = str(task.solved[0]).removeprefix("tracking/"), float(task.solved[1])
    name = name or next(iter(judged(known)), "")
    return Goal(name=name, unit=known[name]["unit"], better=known[name]["better"], bound=bound) if name else None

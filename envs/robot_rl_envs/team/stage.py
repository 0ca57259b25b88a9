"""The stages of a step that the robots of a world share: ends of episodes, and the rows of all robots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import warp as wp

from robot_rl_envs.entity.crews import team_fields
from robot_rl_envs.entity.scene import make_scene
from robot_rl_envs.launch import BLOCK_THREADS
from robot_rl_envs.rows import RobotRows
from robot_rl_envs.task import Task
from robot_rl_envs.team.rows import RowEngine
from robot_rl_envs.team.scene import TeamScene
from robot_rl_envs.team.termination import WorldCounts, count_agents, end_episodes, make_row_fields
from robot_rl_envs.team.views import SHOWN, TEAM, merge_flags, merge_rows, see, seen_width, show, split_rows

_FLAGS = ("terminated", "time_out", "quarantined", "acted", "restart")


class TeamStage:
    """The stages of a team's step that several robots share; :class:`.env.Env` queues them.

    Attributes:
        scene: the scene of all robots.
        out, final: the observation groups of all robots, and those of episodes that ended, (N T, width) each.
        flags: torch views of reward, ends and faults of each row.
        actions: (N T, width of the widest role's).
        dirty: (N,) bits of the fields written in each world.
    """

    def __init__(self, task: Task, worlds: int, device: str):
        self._cfg, self._worlds, self._device = task, worlds, device
        self._count = len(task.robots)
        self._tasks = {crew.role: (crew, task.of_role(crew)) for crew in task.crews}
        self.scene = TeamScene([make_scene(own, crew) for crew, own in self._tasks.values()])
        self.dirty = wp.zeros(worlds, dtype=wp.int32, device=device)

    def make_crews(self, engine: Any, **options: Any) -> dict[str, RobotRows]:
        """Build the rows of each role on the worlds' engine; ``options`` are those of :class:`.rows.RobotRows`."""
        first, offset = self._cfg.crews[0], options.pop("world_offset")
        self._engine = engine
        shared = {
            name: wp.zeros(shape, dtype=dtype, device=self._device)
            for name, (dtype, _, shape) in team_fields(first, self._worlds).items()
        }
        crews = {}
        for (role, (crew, own)), scene, where in zip(
            self._tasks.items(), self.scene.crews, self.scene.maps, strict=True
        ):
            part = RowEngine(engine, scene, where, self.dirty, shared)
            rows = self._worlds * crew.size
            crews[role] = RobotRows(own, scene, part, num_envs=rows, world_offset=offset * crew.size, **options)
        self._crews = list(crews.values())
        self._fields = [make_row_fields(crew._arrays) for crew in self._crews]
        self._placed = [
            crew._arrays[name].numpy()
            for crew in self._crews
            for name in ("restart", "joining")
            if not engine.capturable
        ]
        self._end_episodes = self._record_termination(shared["team_active"])
        self._record_views()
        return crews

    def _launch(self, kernel: Any, dim: int, inputs: list[Any], outputs: list[Any]) -> Any:
        return wp.launch(
            kernel,
            dim=dim,
            inputs=inputs,
            outputs=outputs,
            device=self._device,
            record_cmd=True,
            block_dim=BLOCK_THREADS,
        )

    def _record_termination(self, active: wp.array) -> list[Any]:
        n, known, task = self._worlds, WorldCounts(), self._cfg
        for name in ("fault", "ends", "left", "count", "age"):
            setattr(known, name, wp.zeros(n, dtype=wp.int32, device=self._device))
        known.reward = wp.zeros(n, dtype=wp.float32, device=self._device)
        floors = int(task.only_positive_rewards)
        counts = [self._launch(count_agents, n, [rows, k, known], []) for k, rows in enumerate(self._fields)]
        settles = [
            self._launch(end_episodes, n, [rows, task.team.least, floors, known], [active]) for rows in self._fields
        ]
        return counts + settles

    # -- the rows of all robots --------------------------------------------------------------------------------------

    def _record_views(self) -> None:
        """Allocate the rows of all robots, and record the launches that fill them."""
        crews = self._crews
        groups = [group for group in crews[0].out if all(group in crew.out for crew in crews)]
        widths = {group: max(crew.out[group].shape[1] for crew in crews) for group in groups}
        self._merges: list[Any] = []
        self._splits: list[Any] = []
        self._seeing: list[Any] = []
        self.actions = crews[0].actions
        self.flags: Any = crews[0].state
        if len(crews) == 1:
            self.out, self.final = dict(crews[0].out), dict(crews[0].final)
        else:
            self.out, self.final = ({group: self._zeros(width) for group, width in widths.items()} for _ in range(2))
            self._merge(groups)
        self._see()

    def _zeros(self, width: int) -> wp.array:
        return wp.zeros((self._worlds * self._count, width), dtype=wp.float32, device=self._device)

    def _merge(self, groups: list[str]) -> None:
        """Record how the rows of several crews become those of all robots."""
        total = self._worlds * self._count
        self.actions = self._zeros(max(crew.num_actions for crew in self._crews))
        flags = {name: wp.zeros(total, dtype=wp.int32, device=self._device) for name in _FLAGS}
        reward = wp.zeros(total, dtype=wp.float32, device=self._device)
        for crew, rows in zip(self._crews, self._fields, strict=True):
            n, place = crew.num_envs, [rows.agents, self._count]
            for group in groups:
                for mine, all_rows in ((crew.out, self.out), (crew.final, self.final)):
                    self._merges.append(self._launch(merge_rows, n, [mine[group], *place], [all_rows[group]]))
            self._merges.append(self._launch(merge_flags, n, [rows, self._count], [reward, *flags.values()]))
            self._splits.append(self._launch(split_rows, n, [self.actions, *place], [crew.actions]))
        views = {name: wp.to_torch(flag) for name, flag in flags.items()}
        self.flags = SimpleNamespace(reward=wp.to_torch(reward), **views)

    def _see(self) -> None:
        """Record the launches that fill the group "team", if the robots show something."""
        crews, count = self._crews, self._count
        group = SHOWN if all(SHOWN in crew.out for crew in crews) else "critic"
        if not all(group in crew.out for crew in crews):
            return
        width = max(crew.out[group].shape[1] for crew in crews)
        shape = (self._worlds, count, width)
        for final in (0, 1):
            shown = wp.zeros(shape, dtype=wp.float32, device=self._device)
            present = wp.zeros(shape[:2], dtype=wp.float32, device=self._device)
            target = self.final if final else self.out
            seen = target[TEAM] = self._zeros(seen_width(width, count))
            for crew, rows in zip(crews, self._fields, strict=True):
                inputs = [crew.out[group], crew.final[group], rows, final]
                self._seeing.append(self._launch(show, crew.num_envs, inputs, [shown, present]))
            for crew, rows in zip(crews, self._fields, strict=True):
                n, inputs = crew.num_envs, [shown, present, rows, final]
                if len(crews) == 1:
                    self._seeing.append(self._launch(see, n, inputs, [seen]))
                    continue
                own = wp.zeros((n, seen.shape[1]), dtype=wp.float32, device=self._device)
                self._seeing.append(self._launch(see, n, inputs, [own]))
                self._seeing.append(self._launch(merge_rows, n, [own, rows.agents, count], [seen]))

    # -- stepping ----------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Reset every world, and observe."""
        for crew in self._crews:
            for name, value in (("terminated", 1), ("restart", 1), ("time_out", 0), ("joining", 0), ("acted", 0)):
                getattr(crew.state, name).fill_(value)
            crew.state.counter.add_(1)
            crew._observe_first.launch()
        self._place()
        for crew in self._crews:
            crew.state.terminated.zero_()
        self._show()

    def begin(self) -> None:
        """Queue the launches before the robots act: each gets its actions."""
        self.dirty.zero_()
        self._engine.data.overflow.zero_()
        for command in self._splits:
            command.launch()

    def step(self, substeps: int) -> None:
        """Queue steps of the worlds' physics."""
        for crew in self._crews:
            crew.engine.control()
        self._engine.step(substeps)
        for crew in self._crews:
            crew.engine.gather()

    def finish(self) -> None:
        """Queue the launches after the physics: rewards, ends of the worlds' episodes, resets and observations."""
        crews = self._crews
        for crew in crews:
            if crew._scan:
                crew._scan.look()
            crew._sense.launch()
        for crew in crews:
            crew._after.launch()
        for command in self._end_episodes:
            command.launch()
        for crew in crews:
            crew._observe.launch()
        self._place()
        self._show()

    def _place(self) -> None:
        """Put the robots that a reset placed into the worlds, show them to the others, and observe them there."""
        crews = self._crews
        for crew in crews:
            crew.engine.collect(crew._arrays["dirty"])
        if self._engine.capturable or any(map(np.count_nonzero, self._placed)):
            for crew in crews:
                crew._share.launch()
            for crew in crews:
                if crew._scan:
                    crew._scan.look_again(crew._arrays["dirty"])
                crew._observe_reset.launch()
        self._engine.write_back(self.dirty)

    def _show(self) -> None:
        """Fill the rows of all robots, and their critics' view of the others."""
        for command in (*self._merges, *self._seeing):
            command.launch()

    # -- commands ----------------------------------------------------------------------------------------------------

    def in_own_frames(self, crew: RobotRows, value: Any, worlds: int) -> torch.Tensor | None:
        """Return a command of worlds as one of a crew's rows: a position in the first robot's frame in their own."""
        if value is None:
            return None
        value, info = torch.as_tensor(value), crew.describe_command()
        if value.ndim == 2:
            return value.repeat_interleave(len(crew.agents), dim=0)
        if info is None or (info["draws"], info["frame"]) != ("position", "base") or crew.scene.base or value.ndim != 1:
            return value
        if len(value) != crew.scene.sizes["command"]:
            return value  # which is refused
        robots, points = list(self._cfg.robots.values()), []
        for agent in (robots[k] for k in crew.agents):
            x, y = _turned(value[:2].tolist(), robots[0].yaw)
            dx, dy, dz = (a - b for a, b in zip(robots[0].pos, agent.pos, strict=True))
            points.append([*_turned((x + dx, y + dy), -agent.yaw), value[2].item() + dz, *value[3:].tolist()])
        return torch.tensor(points).repeat(worlds, 1)


def _turned(vector: Sequence[float], yaw: float) -> tuple[float, float]:
    """Return a vector along the ground, turned by yaw [rad]."""
    c, n = math.cos(yaw), math.sin(yaw)
    return c * vector[0] - n * vector[1], n * vector[0] + c * vector[1]

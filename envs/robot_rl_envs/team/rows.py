"""The engine of a crew: rows of each robot's own state, copied from the worlds of the team's engine and back.

A row has the layout of the robot's own scene, so that terms, kernels and the flight recorder work on it as on a world
of one robot. Each copy is a recorded launch that nothing waits for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import warp as wp

from robot_rl_envs import engine
from robot_rl_envs.engine import Engine, EngineData
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.team import copies
from robot_rl_envs.team.scene import RowMap

PLACES = engine.DIRTY_STATE | engine.DIRTY_VELOCITY | engine.DIRTY_PLACED
"""Where positions or velocities were written."""


class RowRays:
    """Rays of every robot: the rays of its world, in turn; see :class:`robot_rl_envs.engine.Rays`."""

    def __init__(self, rays: Any, rows: int, count: int):
        self._rays = rays
        self.origins, self.directions, self.distances = (
            getattr(rays, name).reshape((rows, count)) for name in ("origins", "directions", "distances")
        )

    def cast(self) -> None:
        """Fill the distances."""
        self._rays.cast()


class RowEngine:
    """The rows of one crew in the worlds of a team; see :class:`robot_rl_envs.engine.Engine`.

    Attributes:
        world: the team's engine.
        size: robots A of the crew.
        shared: arrays that all crews of the team have in common, by their name in ``s``.
        dirty: (N,) bits of the fields written in each world, for the team's engine.
    """

    def __init__(self, world: Engine, scene: Scene, where: RowMap, dirty: wp.array, shared: dict[str, wp.array]):
        assert scene.crew is not None
        self.name, self.device, self.world, self.model = world.name, world.device, world, scene.model
        self.size, self.num_envs = scene.crew.size, scene.crew.size * world.num_envs
        self.num_threads = getattr(world, "num_threads", 1)
        self.shared, self.dirty, self._where = shared, dirty, where
        self._leads = int(scene.crew.index == 0)
        self.data = EngineData.zeros(scene.model, self.num_envs, self.device)
        self._at = {kind: self._index(places) for kind, places in where.at.items()}
        self._own = {kind: self._index(own) for kind, own in where.own.items()}
        self._history: wp.array | None = None
        self._mirrors: list[tuple[int, wp.array, wp.array, wp.array, wp.array]] = []
        self._gathers: list[Any] | None = None
        self._collects: list[Any] | None = None
        self._row_dirty: wp.array | None = None
        if scene.model.nu:
            self._controls = self._launch(
                copies.scatter_all, self.num_envs, [self.data.ctrl, self._at["actuator"]], [world.data.ctrl]
            )
        for name, kind in (("qpos", "qpos"), ("qvel", "dof")):
            self._mirror(PLACES, getattr(self.data, name), getattr(world.data, name), self._at[kind], self._own[kind])

    def _index(self, values: np.ndarray) -> wp.array:
        return wp.array(np.ascontiguousarray(values, dtype=np.int32), dtype=wp.int32, device=self.device)

    def _launch(self, kernel: Any, dim: int, inputs: list[Any], outputs: list[Any]) -> Any:
        return wp.launch(kernel, dim=dim, inputs=inputs, outputs=outputs, device=self.device, record_cmd=True)

    def _mirror(self, bits: int, rows: wp.array, worlds: wp.array, at: wp.array, own: wp.array) -> None:
        """Copy rows into the worlds wherever one of ``bits`` is set; both (n, k) or (n, k, components)."""
        flat = [array if array.ndim == 3 else array.reshape((*array.shape, 1)) for array in (rows, worlds)]
        self._mirrors.append((bits, flat[0], flat[1], at, own))
        self._collects = None

    @property
    def capturable(self) -> bool:
        """Whether steps may be recorded in a CUDA graph."""
        return self.world.capturable

    # -- a step of the team ------------------------------------------------------------------------------------------

    def control(self) -> None:
        """Put the robots' controls into the worlds."""
        if self.model.nu:
            self._controls.launch()

    def gather(self) -> None:
        """Fill the rows after a step of the worlds."""
        if self._gathers is None:
            data, own = self.world.data, self.data
            pairs = [("qpos", "qpos"), ("qvel", "dof"), ("sensordata", "sensordata"), ("actuator_force", "actuator")]
            self._gathers = [
                self._launch(copies.gather, self.num_envs, [getattr(data, name), self._at[kind]], [getattr(own, name)])
                for name, kind in pairs
                if getattr(own, name).shape[1]
            ]
            if self._where.more:
                inputs = [data.sensordata, self._index(np.array(self._where.more)), self.size]
                self._gathers.append(self._launch(copies.gather_more, self.world.num_envs, inputs, [own.sensordata]))
            if self._history is not None:
                inputs = [self.world.history(), self._at["history"]]
                self._gathers.append(self._launch(copies.gather, self.num_envs, inputs, [self._history]))
            inputs, outputs = [data.overflow, data.needed, self.size], [own.overflow, own.needed]
            self._gathers.append(self._launch(copies.gather_faults, self.num_envs, inputs, outputs))
        for command in self._gathers:
            command.launch()

    def collect(self, dirty: wp.array) -> None:
        """Copy fields that events and resets wrote in rows (R,) ``dirty`` into the worlds' arrays; mark these dirty.

        The team's engine has to write them back. Rows that join get their world's own fields as they are there.
        """
        if self._collects is None or self._row_dirty is not dirty:
            self._row_dirty = dirty
            self._collects = [
                self._launch(copies.scatter, self.world.num_envs, [dirty, bits, self._leads, rows, at, own], [worlds])
                for bits, rows, worlds, at, own in self._mirrors
            ]
            self._collects.append(
                self._launch(copies.merge_dirty, self.world.num_envs, [dirty, self.size], [self.dirty])
            )
            for name, kind in (("qpos", "qpos"), ("qvel", "dof")):
                inputs = [dirty, engine.DIRTY_PLACED, getattr(self.world.data, name), self._at[kind], self._own[kind]]
                self._collects.append(
                    self._launch(copies.gather_shared, self.num_envs, inputs, [getattr(self.data, name)])
                )
        if self.name == "mujoco" and not np.bitwise_or.reduce(dirty.numpy()):
            return
        for command in self._collects:
            command.launch()

    # -- the protocol of an engine -----------------------------------------------------------------------------------

    def step(self, substeps: int) -> None:
        """Refuse: the worlds step for all crews together, see :class:`.team.stage.TeamStage`."""
        raise RuntimeError(f"step({substeps}): the worlds of a team step for all its robots together")

    def explain(self, world: int, overflow: int, needed: tuple[int, int]) -> str:
        """Return one line about the failure in a row's world; see the protocol."""
        return self.world.explain(world // self.size, overflow, needed)

    def write_back(self, dirty: wp.array) -> None:
        """Write changed rows back at once; see the protocol."""
        self.collect(dirty)
        self.world.write_back(self.dirty)
        self.dirty.zero_()

    def expand(self, field: str) -> wp.array:
        """Give a model field values of each row; see the protocol."""
        values = self.world.expand(field)
        places = self._where.of_field(field)
        if places is None:
            at, own = np.tile(np.arange(values.shape[1]), (self.size, 1)), np.zeros(values.shape[1])
        else:
            at, own = places
        rows = values.numpy()[:, at].reshape(self.num_envs, at.shape[1], values.shape[2])
        mine = wp.array(np.ascontiguousarray(rows), dtype=wp.float32, device=self.device)
        self._mirror(engine.DIRTY_MODEL, mine, values, self._index(at), self._index(own))
        return mine

    def set_const(self, *, again: bool = False) -> None:
        """Recompute derived constants in every world; see the protocol."""
        self.world.set_const(again=again)

    def wrenches(self) -> wp.array:
        """Return the forces on the bodies of each row; see the protocol."""
        mine = wp.zeros((self.num_envs, self.model.nbody, 6), dtype=wp.float32, device=self.device)
        at, own = self._at["body"], self._own["body"]
        self._mirror(engine.DIRTY_WRENCH | engine.DIRTY_STATE, mine, self.world.wrenches(), at, own)
        return mine

    def watch(self, field: str) -> wp.array:
        """Refuse: terms that read MuJoCo's own fields are for a task of one robot."""
        raise ValueError(f"data={field!r}: terms that read MuJoCo's own fields are for a task of one robot")

    def look(self, dirty: wp.array) -> bool:
        """Return True: the rows themselves are all there is to look at."""
        return True

    def make_rays(self, count: int, *, ground_only: bool = False) -> RowRays:
        """Allocate rays of every row; see the protocol."""
        rays = self.world.make_rays(self.size * count, ground_only=ground_only)
        return RowRays(rays, self.num_envs, count)

    def history(self) -> wp.array:
        """Return the buffers of past values of every row; see the protocol."""
        if self._history is None:
            self._history = wp.zeros((self.num_envs, self.model.nhistory), dtype=wp.float32, device=self.device)
            self._gathers = None
        return self._history

    def get_state(self) -> np.ndarray:
        """Return no state: it is the worlds'."""
        return np.zeros((self.num_envs, 0))

    def set_state(self, state: np.ndarray) -> None:
        """Do nothing: the rows are restored with the state that terms read."""

    def close(self) -> None:
        """Do nothing: only arrays are held."""

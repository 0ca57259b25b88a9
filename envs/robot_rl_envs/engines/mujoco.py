"""Native MuJoCo on all CPU cores: ``mujoco.batch.Batch`` with float32 mirrors of the fields that terms read.

The state stays float64 inside. At each step only ``ctrl`` and the rows that an event or a reset changed are copied
back: an unchanged world is never rounded through float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import warp as wp
from mujoco import mj_isSparse, mjtJacobian, mjtSolver, mjtStage
from mujoco.batch import Batch, SimulationError

from robot_rl_envs import engine
from robot_rl_envs.engine import EngineData
from robot_rl_envs.engines.mujoco_warnings import omit_warnings
from robot_rl_envs.engines.post_constraint import add_post_constraint
from robot_rl_envs.engines.rows import RowLister, RowWriter, aliased
from robot_rl_envs.entity.mujoco_fields import FORCES, POST_CONSTRAINT
from robot_rl_envs.entity.scene import Scene

# MuJoCo's counters of warnings that its arena was full, next to each other: mjWARN_CONTACTFULL, mjWARN_CNSTRFULL.
_FULL = slice(1, 3)
_FULL_BITS = (engine.OVERFLOW_CONTACTS, engine.OVERFLOW_CONSTRAINTS)


def _zeros(*shape: int) -> wp.array:
    return wp.zeros(shape, dtype=wp.float32, device="cpu")


def _avoid_sparse_newton(model: Any) -> None:
    """Have Newton's method work on dense matrices if it would on sparse ones.

    From 60 degrees of freedom on MuJoCo takes sparse ones by itself. With these (MuJoCo 4.0) forces of 10 kN come out
    now and then where several robots touch, with any number of iterations; dense Newton, CG and PGS find the right
    ones in the same states.
    """
    if model.opt.solver == mjtSolver.mjSOL_NEWTON and mj_isSparse(model):
        model.opt.jacobian = mjtJacobian.mjJAC_DENSE


class MujocoRays:
    """Rays of every world by ``Batch.ray``, which allocates its results; see :class:`robot_rl_envs.engine.Rays`."""

    def __init__(self, batch: Batch, num_envs: int, count: int, *, ground_only: bool):
        self._batch = batch
        self._group = np.array([ground_only is False or k == engine.GROUND_GROUP for k in range(6)], dtype=np.uint8)
        self.origins = wp.zeros((num_envs, count), dtype=wp.vec3, device="cpu")
        self.directions = wp.zeros((num_envs, count), dtype=wp.vec3, device="cpu")
        self.distances = _zeros(num_envs, count)
        self._given = [array.numpy() for array in (self.origins, self.directions)]
        self._exact = [np.zeros((num_envs, count, 3)) for _ in range(2)]
        self._found = self.distances.numpy()

    def cast(self) -> None:
        """Fill the distances."""
        for exact, given in zip(self._exact, self._given, strict=True):
            exact[...] = given
        self._found[...] = self._batch.ray(*self._exact, geomgroup=self._group)[0]


class MujocoEngine:
    """The CPU engine; see :class:`robot_rl_envs.engine.Engine`."""

    name = "mujoco"
    device = "cpu"
    capturable = False

    def __init__(self, scene: Scene, *, num_envs: int, num_threads: int = 0):
        self.model = scene.model
        self.num_envs = num_envs
        post = POST_CONSTRAINT.intersection(scene.mujoco_fields)
        stepped = scene.compile(add_post_constraint) if post else scene.model
        _avoid_sparse_newton(stepped)
        # To take them in each step would cost 2 % of one of 4 cartpoles.
        omit_warnings()  # Quarantine and overflow report the same.
        self.batch = Batch(stepped, num_envs, num_threads)
        self.num_threads = self.batch.nthread
        model = scene.model
        self.data = EngineData.zeros(model, num_envs, "cpu")
        self._overflow = self.data.overflow.numpy()
        self._full = self.batch.warning.reshape(num_envs, -1, 2)[:, _FULL, 1]
        self._seen = self._full.copy()
        self._errors: dict[int, str] = {}
        self._mirrors = {name: getattr(self.data, name).numpy() for name in ("qpos", "qvel")}
        self._rows = {name: self.batch.bind(name) for name in ("qpos", "qvel", "ctrl")}
        self._ctrl = self.data.ctrl.numpy()
        self._outputs = [
            (self.batch.bind(name), getattr(self.data, name).numpy())
            for name in ("sensordata", "actuator_force")
            if getattr(self.data, name).size
        ]
        if model.nhistory:
            self.batch.bind("history")[...] = scene.initial_history()
        self._fresh = self.batch.state[0].copy()
        self._expanded: dict[str, tuple[np.ndarray, wp.array, np.ndarray]] = {}
        self._wrenches: wp.array | None = None
        self._history: wp.array | None = None
        self._again = False
        # What write_back copies, recorded at its first call: again when a field was expanded since.
        self._writer: RowWriter | None = None
        self._watched: dict[str, np.ndarray] = {}
        self._looker: tuple[RowLister, RowWriter] | None = None
        self._mirror_state()

    def _mirror_state(self) -> None:
        for name, mirror in self._mirrors.items():
            mirror[...] = self._rows[name]

    def step(self, substeps: int) -> None:
        """Apply ``data.ctrl`` and advance every world by ``substeps`` physics steps.

        A world in which MuJoCo raised keeps its state; ``data.overflow`` marks it, and worlds with a full arena.
        """
        self._rows["ctrl"][...] = self._ctrl
        try:
            self.batch.step(nstep=substeps)
        except SimulationError as error:
            self._note(error)
        # The count first: it allocates nothing, and no world has ever been full as a rule.
        if np.count_nonzero(self._full) and not np.array_equal(self._full, self._seen):
            for k, bit in enumerate(_FULL_BITS):
                self._overflow[self._full[:, k] > self._seen[:, k]] |= bit
            self._seen[...] = self._full
        self._mirror_state()
        for source, mirror in self._outputs:
            mirror[...] = source

    def _note(self, error: SimulationError) -> None:
        """Mark the worlds in which MuJoCo raised."""
        self._overflow[error.ids] |= engine.OVERFLOW_RAISED
        self._errors |= {int(world): self.batch.error(int(world)) for world in error.ids}

    def explain(self, world: int, overflow: int, needed: tuple[int, int]) -> str:
        """Return one line about the failure in a world; see the protocol."""
        arena = self.model.narena
        advice = f"sim.memory={arena} bytes are too few for its contacts and constraints: set sim.memory={2 * arena}"
        if not overflow & engine.OVERFLOW_RAISED:
            return advice
        message = " ".join(self._errors.get(world, "MuJoCo raised").split())
        return f"{message}; {advice}" if "memory" in message else message

    def write_back(self, dirty: wp.array) -> None:
        """Copy the rows that events and resets wrote; see the protocol."""
        rows = self._writer
        if rows is None or not rows.covers(dirty):
            rows = self._writer = self._record(dirty)
        found = rows.any()
        if not found:
            return
        rows.launch(found)
        if self._again and found & engine.DIRTY_CONST:
            self.batch.set_const(np.flatnonzero(dirty.numpy() & engine.DIRTY_CONST))

    def _record(self, dirty: wp.array) -> RowWriter:
        rows = RowWriter(dirty)
        rows.start(engine.DIRTY_STATE, self._fresh, self.batch.state)
        for name in self._mirrors:
            rows.copy(engine.DIRTY_STATE, engine.DIRTY_STATE, getattr(self.data, name), self._rows[name])
        placed = engine.DIRTY_PLACED | engine.DIRTY_STATE
        for name in self._mirrors:
            rows.copy(placed, engine.DIRTY_PLACED, getattr(self.data, name), self._rows[name])
        rows.copy(engine.DIRTY_VELOCITY | engine.DIRTY_STATE, engine.DIRTY_VELOCITY, self.data.qvel, self._rows["qvel"])
        for values, mirror, _ in self._expanded.values():
            rows.copy(engine.DIRTY_MODEL, engine.DIRTY_MODEL, mirror, values)
        if self._wrenches is not None:
            rows.copy(engine.DIRTY_WRENCH, engine.DIRTY_WRENCH, self._wrenches, self._rows["xfrc_applied"])
        return rows

    def expand(self, field: str) -> wp.array:
        """Give a model field per-world values; return the (num_envs, n, k) float32 mirror."""
        if field not in self._expanded:
            values = self.batch.expand(field)
            flat = values.reshape(self.num_envs, values.shape[1], -1)
            mirror = wp.array(flat.astype(np.float32), dtype=wp.float32, device="cpu")
            # Rounded at once in every world: a checkpoint's float32 values are then all there is to restore.
            flat[...] = mirror.numpy()
            self._expanded[field] = (values, mirror, mirror.numpy())
            self._writer = None
        return self._expanded[field][1]

    def set_const(self, *, again: bool = False) -> None:
        """Run mj_setConst in every world and, with ``again``, from now on in those with written masses."""
        self.batch.set_const()
        self._again = again

    def wrenches(self) -> wp.array:
        """Return a (num_envs, nbody, 6) float32 mirror of the forces on bodies."""
        if self._wrenches is None:
            self._rows["xfrc_applied"] = self.batch.bind("xfrc_applied")
            self._wrenches = _zeros(self.num_envs, self.model.nbody, 6)
            self._writer = None
        return self._wrenches

    def watch(self, field: str) -> wp.array:
        """Return one of MuJoCo's own fields, (num_envs, rows, columns) float64: the batch's memory."""
        if field not in self._watched:
            self._watched[field] = self.batch.bind(field)
            self._looker = None
        values = self._watched[field]
        shape = (self.num_envs, values.shape[1], int(np.prod(values.shape[2:])))
        strides = (*values.strides[:2], values.itemsize)
        return aliased(np.lib.stride_tricks.as_strided(values, shape, strides))

    def look(self, dirty: wp.array) -> bool:
        """Compute positions and velocities of worlds that were reset; forces there are zero. See the protocol."""
        if self._looker is None:
            self._looker = RowLister(dirty, engine.DIRTY_STATE), self._forces_cleared(dirty)
        lister, forces = self._looker
        worlds = lister.list()
        if not len(worlds):
            return False
        self.write_back(dirty)
        try:
            self.batch.forward(worlds, mjtStage.mjSTAGE_VEL)
        except SimulationError as error:
            self._note(error)
        # The fields that this stage skips hold the forces of some other world.
        forces.launch(engine.DIRTY_STATE)
        return True

    def _forces_cleared(self, dirty: wp.array) -> RowWriter:
        rows = RowWriter(dirty)
        for name in FORCES.intersection(self._watched):
            values = self._watched[name].reshape(self.num_envs, -1)
            rows.start(engine.DIRTY_STATE, np.zeros(values.shape[1]), values)
        return rows

    def make_rays(self, count: int, *, ground_only: bool = False) -> MujocoRays:
        """Buffers for ``count`` rays a world; see the protocol."""
        return MujocoRays(self.batch, self.num_envs, count, ground_only=ground_only)

    def history(self) -> wp.array:
        """Return a float32 mirror of MuJoCo's buffers of past values, from now on copied in every step."""
        if self._history is None:
            self._history = _zeros(self.num_envs, self.model.nhistory)
            self._outputs.append((self.batch.bind("history"), self._history.numpy()))
            self._history.numpy()[...] = self._outputs[-1][0]
        return self._history

    def get_state(self) -> np.ndarray:
        """Return the float64 integration state of every world, (num_envs, k)."""
        return self.batch.state.copy()

    def set_state(self, state: np.ndarray) -> None:
        """Restore :meth:`get_state`'s array and the mirrors."""
        if state.shape != self.batch.state.shape:
            raise ValueError(f"engine state has shape {state.shape}, this environment needs {self.batch.state.shape}")
        self.batch.state[...] = state
        self._mirror_state()

    def close(self) -> None:
        """Do nothing: only arrays are held."""

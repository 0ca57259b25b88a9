"""MuJoCo Warp: thousands of worlds on one GPU. ``data`` aliases its arrays, nothing is copied.

It runs on the CPU too, serially: good for parity tests, not for training.
"""

from __future__ import annotations

import copy
from typing import Any

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp

from robot_rl_envs import engine
from robot_rl_envs.engine import EngineData
from robot_rl_envs.engines.derived import DerivedConstants
from robot_rl_envs.entity.mujoco_fields import FORCES, POST_CONSTRAINT
from robot_rl_envs.entity.scene import Scene


@wp.kernel(enable_backward=False)
def _clear_reset_worlds(
    dirty: wp.array(dtype=wp.int32),
    bit: int,
    # outputs
    time_out: wp.array(dtype=wp.float32),
    qacc_warmstart_out: wp.array2d(dtype=wp.float32),
    act_out: wp.array2d(dtype=wp.float32),
    sensordata_out: wp.array2d(dtype=wp.float32),
):
    i = wp.tid()
    if (dirty[i] & bit) != 0:
        time_out[i] = 0.0
        for k in range(qacc_warmstart_out.shape[1]):
            qacc_warmstart_out[i, k] = 0.0
        for k in range(act_out.shape[1]):
            act_out[i, k] = 0.0
        for k in range(sensordata_out.shape[1]):
            sensordata_out[i, k] = 0.0


@wp.kernel(enable_backward=False)
def _clear_histories(
    dirty: wp.array(dtype=wp.int32),
    bit: int,
    fresh: wp.array(dtype=wp.float32),
    # outputs
    history_out: wp.array2d(dtype=wp.float32),
):
    i = wp.tid()
    if (dirty[i] & bit) != 0:
        for k in range(history_out.shape[1]):
            history_out[i, k] = fresh[k]


@wp.kernel(enable_backward=False)
def _clear_rows(
    dirty: wp.array(dtype=wp.int32),
    bit: int,
    # outputs
    values_out: wp.array3d(dtype=wp.float32),
):
    i = wp.tid()
    if (dirty[i] & bit) != 0:
        for j in range(values_out.shape[1]):
            for k in range(values_out.shape[2]):
                values_out[i, j, k] = 0.0


@wp.kernel(enable_backward=False)
def _measure_need(
    nefc: wp.array(dtype=wp.int32),
    nacon: wp.array(dtype=wp.int32),
    ncollision: wp.array(dtype=wp.int32),
    njmax: int,
    naconmax: int,
    nworld: int,
    # outputs
    needed_out: wp.array2d(dtype=wp.int32),
):
    i = wp.tid()
    if nefc[i] > njmax:
        needed_out[i, 0] = wp.max(needed_out[i, 0], nefc[i])
    contacts = wp.where(nacon[0] > ncollision[0], nacon[0], ncollision[0])
    if contacts > naconmax:
        needed_out[i, 1] = wp.max(needed_out[i, 1], (contacts + nworld - 1) / nworld)


def _floats(own: Any) -> Any:
    """Return a float32 view (worlds, n, k) of an array of numbers or vectors, one row a world, which it keeps alive."""
    numbers = wp.types.type_size_in_bytes(own.dtype) // 4
    shape = (*own.shape, numbers) if numbers > 1 else own.shape
    shape = (*shape[:2], int(np.prod(shape[2:])))
    alias = wp.array(ptr=own.ptr, dtype=wp.float32, shape=shape, device=own.device)
    alias._owner = own
    return alias


class WarpRays:
    """Rays of every world by ``mujoco_warp.rays``; see :class:`robot_rl_envs.engine.Rays`."""

    def __init__(self, owner: MujocoWarpEngine, count: int, *, ground_only: bool):
        self._engine, shape = owner, (owner.num_envs, count)
        self._everything = not ground_only
        self.origins: Any
        self.directions: Any
        self._normals: Any
        with wp.ScopedDevice(owner.device):
            self.origins, self.directions, self._normals = (wp.zeros(shape, dtype=wp.vec3) for _ in range(3))
            self.distances: Any = wp.zeros(shape, dtype=wp.float32)
            self._geoms: Any = wp.zeros(shape, dtype=wp.int32)
            self._exclude = wp.full(count, -1, dtype=wp.int32)
            groups = [-1.0 if self._everything else float(k == engine.GROUND_GROUP) for k in range(6)]
            self._groups: Any = wp.types.vector(length=6, dtype=wp.float32)(*groups)
            # where static geoms are is not known before the first step
            mjw.kinematics(owner.warp_model, owner.warp_data)

    def cast(self) -> None:
        """Fill the distances."""
        m, d = self._engine.warp_model, self._engine.warp_data
        with wp.ScopedDevice(self._engine.device):
            if self._everything:
                mjw.kinematics(m, d)
            found = (self.distances, self._geoms, self._normals)
            mjw.rays(m, d, self.origins, self.directions, self._groups, True, self._exclude, *found)


class MujocoWarpEngine:
    """The GPU engine; see :class:`robot_rl_envs.engine.Engine`."""

    name = "mujoco_warp"

    def __init__(self, scene: Scene, *, num_envs: int, device: str):
        if scene.sim.solver == "pgs":
            raise ValueError(
                "sim.solver='pgs' is only available on the CPU engine: use sim.solver=newton with engine=mujoco_warp"
            )
        self.model = scene.model
        self.num_envs = num_envs
        self.device = device
        # It never resets a world by itself and refuses this flag.
        model = copy.copy(scene.model)
        model.opt.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)
        with wp.ScopedDevice(device):
            self.warp_model = mjw.put_model(model)
            # data.overflow has every full buffer: worlds are quarantined and reported, once, with a remedy.
            self.warp_model.opt.warn_overflow = 0
            self.warp_data = mjw.make_data(
                model, nworld=num_envs, nconmax=scene.sim.nconmax or None, njmax=scene.sim.njmax or None
            )
        d = self.warp_data
        self.data = EngineData(
            qpos=d.qpos,
            qvel=d.qvel,
            ctrl=d.ctrl,
            sensordata=d.sensordata,
            actuator_force=d.actuator_force,
            overflow=d.overflow,
            needed=wp.zeros((num_envs, 2), dtype=wp.int32, device=device),
        )
        self._post = bool(POST_CONSTRAINT.intersection(scene.mujoco_fields))
        self._watched: dict[str, wp.array] = {}
        self._expanded: dict[str, wp.array] = {}
        self._derived: DerivedConstants | None = None
        self._fresh_history = wp.array(scene.initial_history(), dtype=wp.float32, device=device)
        if scene.model.nhistory:
            d.history.assign(np.tile(scene.initial_history(), (num_envs, 1)))

    @property
    def capturable(self) -> bool:
        """Whether steps may be recorded in a CUDA graph."""
        return self.device.startswith("cuda")

    def step(self, substeps: int) -> None:
        """Advance every world by ``substeps`` physics steps; capturable."""
        d = self.warp_data
        sizes = [d.nefc, d.nacon, d.ncollision, d.njmax, d.naconmax, self.num_envs]
        with wp.ScopedDevice(self.device):
            for _ in range(substeps):
                mjw.step(self.warp_model, self.warp_data)
                if self._post:
                    mjw.rne_postconstraint(self.warp_model, self.warp_data)
                wp.launch(_measure_need, dim=self.num_envs, inputs=sizes, outputs=[self.data.needed])

    def explain(self, world: int, overflow: int, needed: tuple[int, int]) -> str:
        """Return one line about which buffer was full, with the size to set; see the protocol."""
        d, lines = self.warp_data, []
        if overflow & (engine.OVERFLOW_CONSTRAINTS | engine.OVERFLOW_NONZEROS):
            rows, have = needed[0], int(d.njmax)
            size = f"needs about {rows}" if rows > have else f"try {2 * have}"
            lines.append(f"sim.njmax={have} is too small: {size} (constraint rows of world {world})")
        if overflow & (engine.OVERFLOW_PAIRS | engine.OVERFLOW_CONTACTS | engine.OVERFLOW_CCD):
            contacts, have = needed[1], int(d.naconmax) // self.num_envs
            size = f"needs about {contacts}" if contacts > have else f"try {2 * have}"
            lines.append(
                f"sim.nconmax={have} is too small: {size} (contacts a world on average; the worlds share one "
                "buffer, so which of them lost some is unknown)"
            )
        if overflow & engine.OVERFLOW_HFIELD:
            lines.append("a geom touches too many cells of the height field: give the terrain a coarser resolution")
        if overflow & engine.OVERFLOW_MATCHES:
            lines.append("a contact sensor matches more contacts than it can sort: fewer geoms should touch at once")
        return "; ".join(lines) or f"a buffer of mujoco_warp was full (its overflow bits: {overflow})"

    def write_back(self, dirty: wp.array) -> None:
        """Clear fields that a reset world must not inherit: its clock, warm start, activations and sensor values."""
        d = self.warp_data
        options: dict[str, Any] = {"dim": self.num_envs, "device": self.device}
        cleared = [d.time, d.qacc_warmstart, d.act, d.sensordata]
        wp.launch(_clear_reset_worlds, inputs=[dirty, engine.DIRTY_STATE], outputs=cleared, **options)
        if self.model.nhistory:
            inputs = [dirty, engine.DIRTY_STATE, self._fresh_history]
            wp.launch(_clear_histories, inputs=inputs, outputs=[d.history], **options)
        if self._derived is not None:
            self._derived.recompute(dirty, engine.DIRTY_CONST)

    def expand(self, field: str) -> wp.array:
        """Give a model field per-world values; return a live (num_envs, n, k) float32 alias."""
        if field not in self._expanded:
            holder, name = (self.warp_model.opt, field[4:]) if field.startswith("opt.") else (self.warp_model, field)
            shared = getattr(holder, name)
            tiled = np.repeat(shared.numpy()[:1], self.num_envs, axis=0)
            own = wp.array(tiled, dtype=shared.dtype, device=self.device)
            setattr(holder, name, own)
            self._expanded[field] = _floats(own)
        return self._expanded[field]

    def wrenches(self) -> wp.array:
        """Return a live (num_envs, nbody, 6) float32 alias of the forces on bodies."""
        return _floats(self.warp_data.xfrc_applied)

    def set_const(self, *, again: bool = False) -> None:
        """Recompute the derived constants of each world.

        Raises:
            ValueError: ``again`` with a model that has tendons or flexes: their constants take MuJoCo Warp hundreds of
                launches a step.
        """
        with wp.ScopedDevice(self.device):
            for field in ("body_subtreemass", "dof_invweight0", "body_invweight0"):
                shared = getattr(self.warp_model, field)
                if shared.shape[0] == 1 and self.num_envs > 1:
                    tiled = np.repeat(shared.numpy(), self.num_envs, axis=0)
                    setattr(self.warp_model, field, wp.array(tiled, dtype=shared.dtype, device=self.device))
            mjw.set_const(self.warp_model, self.warp_data)
            if again:
                # From now on the same launches for every world, so that a restored run has the bits of the first.
                self._derived = self._derived or DerivedConstants(
                    self.model, self.warp_model, self.num_envs, self.device
                )
                self._derived.recompute(wp.full(self.num_envs, engine.DIRTY_CONST, dtype=wp.int32), engine.DIRTY_CONST)

    def watch(self, field: str) -> wp.array:
        """Return one of MuJoCo's own fields, (num_envs, rows, columns) float32: the live array; see the protocol."""
        self._watched[field] = _floats(getattr(self.warp_data, field))
        return self._watched[field]

    def look(self, dirty: wp.array) -> bool:
        """Recompute positions and velocities of every world, since a graph cannot branch; see the protocol."""
        self.write_back(dirty)
        with wp.ScopedDevice(self.device):
            mjw.fwd_kinematics(self.warp_model, self.warp_data)
            mjw.com_vel(self.warp_model, self.warp_data)
            for field in FORCES.intersection(self._watched):
                wp.launch(
                    _clear_rows, dim=self.num_envs, inputs=[dirty, engine.DIRTY_STATE], outputs=[self._watched[field]]
                )
        return True

    def make_rays(self, count: int, *, ground_only: bool = False) -> WarpRays:
        """Buffers for ``count`` rays a world; capturable; see the protocol."""
        return WarpRays(self, count, ground_only=ground_only)

    def history(self) -> wp.array:
        """Return MuJoCo's buffers of past values: the live array."""
        return self.warp_data.history

    def _state_arrays(self) -> list[wp.array]:
        d = self.warp_data
        return [d.qpos, d.qvel, d.qacc_warmstart, d.time, *([d.history] if self.model.nhistory else [])]

    def get_state(self) -> np.ndarray:
        """Return (num_envs, nq + 2 nv + 1 + nhistory) float32: qpos, qvel, qacc_warmstart, time, delay buffers."""
        return np.concatenate([array.numpy().reshape(self.num_envs, -1) for array in self._state_arrays()], axis=1)

    def set_state(self, state: np.ndarray) -> None:
        """Restore :meth:`get_state`'s array."""
        arrays = self._state_arrays()
        ends = np.cumsum([array.shape[1] if array.ndim > 1 else 1 for array in arrays])
        if state.shape != (self.num_envs, ends[-1]):
            raise ValueError(f"engine state has shape {state.shape}, wants {(self.num_envs, int(ends[-1]))}")
        parts = np.split(state.astype(np.float32), ends[:-1], axis=1)
        for array, part in zip(arrays, parts, strict=True):
            array.assign(part.reshape(array.shape))

    def close(self) -> None:
        """Do nothing: only arrays are held."""

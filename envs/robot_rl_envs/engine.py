"""The protocol every physics engine satisfies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import mujoco
    import numpy as np
    import warp as wp

GROUND_GROUP = 5
"""Geom group of the ground in the simulated model, for rays that must hit nothing else."""

DIRTY_VELOCITY = 1
"""qvel of the world was written."""
DIRTY_STATE = 2
"""The world was reset: qpos and qvel were written, the rest of its state is initialized."""
DIRTY_MODEL = 4
"""Expanded model fields of the world were written."""
DIRTY_CONST = 8
"""Masses, inertias or armature were among them: the constants that derive from these are out of date."""
DIRTY_WRENCH = 16
"""Applied forces of the world were written."""
DIRTY_PLACED = 32
"""qpos and qvel of the world were written, and nothing else of its state: a robot joined the others there."""

FAULT_STATE, FAULT_ACTION, FAULT_REWARD, FAULT_OBSERVATION, FAULT_RAISED, FAULT_OVERFLOW = (1 << k for k in range(6))
"""Why a world is quarantined: its state, action, reward or observation is not finite, its engine raised, or a buffer of
its engine was too small."""
FAULT_OTHERS = 64
"""A robot is quarantined with the others of its world, one of which has the fault."""

MAX_SPEED = 1.0e4
"""Largest plausible generalized velocity [m/s, rad/s]; beyond it the simulation has diverged."""

OVERFLOW_CONSTRAINTS, OVERFLOW_NONZEROS, OVERFLOW_PAIRS, OVERFLOW_CONTACTS = (1 << k for k in range(4))
OVERFLOW_CCD, OVERFLOW_HFIELD, OVERFLOW_MATCHES, OVERFLOW_DOFS = (1 << k for k in range(4, 8))
"""Bits of ``EngineData.overflow``: which buffer was full. mujoco_warp's own ``OverflowType``, kept by both engines."""
OVERFLOW_RAISED = 1 << 30
"""Bit of ``EngineData.overflow``: the engine raised in this world, which kept the state it had before."""
OVERFLOW_BITS = (1 << 8) - 1
"""The bits that make a world's physics wrong: not a solver that used up its iterations, which is a choice of speed."""


@dataclass(kw_only=True, slots=True)
class EngineData:
    """Live float32 Warp arrays under MuJoCo's own names, one row a world.

    Attributes:
        qpos: (num_envs, nq) generalized positions [m, rad, quaternion w x y z].
        qvel: (num_envs, nv) generalized velocities [m/s, rad/s].
        ctrl: (num_envs, nu) controls, written before a step.
        sensordata: (num_envs, nsensordata) of the last substep.
        actuator_force: (num_envs, nu) [N, N m], of the last substep.
        overflow: (num_envs,) int32: OVERFLOW_* bits that the engine sets; the environment clears them at each step.
        needed: (num_envs, 2) int32: constraint rows and contacts that a full buffer should have held, the largest
            so far; 0 if it was large enough or the engine does not report it.
    """

    qpos: wp.array
    qvel: wp.array
    ctrl: wp.array
    sensordata: wp.array
    actuator_force: wp.array
    overflow: wp.array
    needed: wp.array

    @classmethod
    def zeros(cls, model: mujoco.MjModel, num_envs: int, device: str) -> EngineData:
        """Allocate the arrays of an engine."""
        import warp as wp

        widths = {"qpos": model.nq, "qvel": model.nv, "ctrl": model.nu, "sensordata": model.nsensordata}
        widths["actuator_force"] = model.nu
        floats = {name: wp.zeros((num_envs, k), dtype=wp.float32, device=device) for name, k in widths.items()}
        overflow, needed = (wp.zeros(shape, dtype=wp.int32, device=device) for shape in (num_envs, (num_envs, 2)))
        return cls(**floats, overflow=overflow, needed=needed)


class Rays(Protocol):
    """Rays of every world.

    Attributes:
        origins, directions: (num_envs, n) vec3, world frame [m]; written before :meth:`cast`.
        distances: (num_envs, n) along the direction's length [m], -1 for a ray without a hit.
    """

    origins: wp.array
    directions: wp.array
    distances: wp.array

    def cast(self) -> None:
        """Fill :attr:`distances` from the state as it is."""


class Engine(Protocol):
    """Physics of ``num_envs`` worlds of one model.

    Attributes:
        device: Warp device of the arrays.
        model: the MuJoCo model the worlds were built from.
    """

    name: str
    num_envs: int
    device: str
    model: mujoco.MjModel
    data: EngineData

    @property
    def capturable(self) -> bool:
        """Whether :meth:`step` may be recorded in a CUDA graph."""
        ...

    def step(self, substeps: int) -> None:
        """Apply ``data.ctrl`` and advance every world by ``substeps`` physics steps."""

    def explain(self, world: int, overflow: int, needed: tuple[int, int]) -> str:
        """Return one line about the failure inside the engine, with the setting to change.

        ``overflow`` are the world's bits, ``needed`` its row of ``data.needed``.
        """
        ...

    def write_back(self, dirty: wp.array) -> None:
        """Copy the fields that events and resets wrote into the engine.

        ``dirty`` is (num_envs,) int32 of DIRTY_* bits; other worlds keep their full-precision state untouched.
        """

    def expand(self, field: str) -> wp.array:
        """Give a model field per-world values; return them, (num_envs, n, k) float32, live after write_back."""
        ...

    def set_const(self, *, again: bool = False) -> None:
        """Recompute the model constants that derive from masses, inertias and armature, in every world.

        With ``again``, :meth:`write_back` does so from now on for worlds with DIRTY_CONST.
        """

    def wrenches(self) -> wp.array:
        """Return the forces on bodies (num_envs, nbody, 6) float32, live after write_back.

        Force [N] at the body's center of mass and torque [N m], world frame; 0 after a reset.
        """
        ...

    def watch(self, field: str) -> wp.array:
        """Return one of MuJoCo's own fields, (num_envs, rows, columns), live, in the engine's precision.

        ``field`` is one of the scene's ``mujoco_fields``; see :mod:`robot_rl_envs.entity.mujoco_fields`.
        """
        ...

    def look(self, dirty: wp.array) -> bool:
        """Do :meth:`write_back` and update the watched fields of worlds with DIRTY_STATE; False if there were none."""
        ...

    def make_rays(self, count: int, *, ground_only: bool = False) -> Rays:
        """Allocate buffers for ``count`` rays a world, against all geoms or only the ground's."""
        ...

    def history(self) -> wp.array:
        """Return MuJoCo's buffers of past sensor values and controls, (num_envs, nhistory) float32, live."""
        ...

    def get_state(self) -> np.ndarray:
        """Full-precision integration state, (num_envs, k)."""
        ...

    def set_state(self, state: np.ndarray) -> None:
        """Restore what :meth:`get_state` returned."""

    def close(self) -> None:
        """Release the engine's resources other than its arrays."""

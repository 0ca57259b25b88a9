"""The bytes that the kernels of a control step must move, by kernel: from the arrays that they read and write.

An array with a row for each world counts with the elements that its threads take (`robot_rl.gpu.access`), at most the
row, once to read and once to write: what a kernel reads twice comes from the cache. Buffers for contacts and constraint
rows count with what a robot uses of them. What all worlds share counts once a control step: it stays in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import torch
import warp as wp

from robot_rl.gpu.access import Access, find_accesses
from robot_rl.gpu.collect import Launch, collecting

WORLDS = 67
"""Worlds of the environment that is looked at: a prime, so that an array's length tells what it has a row for."""
SETTLING_STEPS = 25
"""Control steps before what a robot uses of the buffers is looked at, and over which it is averaged."""


@dataclass(frozen=True, slots=True)
class Use:
    """What a robot with actions of zero uses of the engine's buffers, on average.

    Attributes:
        contacts: contacts of a world.
        rows: rows of constraints of a world.
        iterations: iterations of the solver in a physics step.
    """

    contacts: float
    rows: float
    iterations: float


@dataclass(slots=True)
class Traffic:
    """What a kernel moves in a control step.

    Attributes:
        name: the kernel's name, as it was written.
        is_engine: whether it is the engine's.
        launches: launches in a control step; a part of one where a loop ends before.
        read: bytes read for each world.
        written: bytes written for each world.
        shared: bytes read that all worlds share, once a control step.
    """

    name: str
    is_engine: bool
    launches: float = 0.0
    read: float = 0.0
    written: float = 0.0
    shared: float = 0.0

    def bytes_of(self, worlds: int) -> float:
        """Return the bytes moved for a number of worlds."""
        return (self.read + self.written) * worlds + self.shared


def measure_traffic(make_env: Any) -> tuple[list[Traffic], Use]:
    """Return what the kernels of a control step move, in the order of their first launch, and what that rests on.

    Args:
        make_env: (worlds, engine) -> an environment on the CPU.
    """
    use = _measure_use(make_env(1, "mujoco"))
    launches: list[Launch] = []
    with collecting(launches.append):
        env = make_env(WORLDS, "mujoco_warp")
        env.reset()
        launches.clear()
        filled = Traffic("(arrays that are set or copied)", is_engine=False)
        with env.recording(), _noting_fills(filled):  # Without the first, the step would be gone through twice.
            env.step(torch.zeros(WORLDS, env.num_actions))
        env.close()
    data = env.engine.warp_data
    limits = {int(data.njmax): min(1.0, use.rows / max(int(data.njmax), 1))}
    contacts = int(data.naconmax)
    found: dict[int, Traffic] = {}
    accesses: dict[int, dict[str, Access]] = {}
    shared: set[tuple[str, int]] = set()
    for launch in launches:
        kernel = launch.kernel
        name = kernel.key.replace("__locals__kernel", "").replace("__locals_", "")
        is_engine = str(kernel.func.__module__).startswith("mujoco_warp")
        one = found.setdefault(id(kernel), Traffic(name, is_engine))
        times = use.iterations if launch.in_loop else 1.0
        one.launches += times
        if id(kernel) not in accesses:
            accesses[id(kernel)] = find_accesses(kernel)
        threads = float(np.prod(launch.dim)) / WORLDS
        for path, access in accesses[id(kernel)].items():
            for array in _arrays(launch, path):
                size = _item(array)
                is_of_solver = any(word in path for word in ("efc", "ctx"))
                rows, row = _row(array, contacts, use.contacts, limits if is_of_solver else {})
                if not row:
                    if (kernel.key, array.ptr) not in shared:
                        shared.add((kernel.key, array.ptr))
                        one.shared += min(array.size, access.read * threads * WORLDS) * size
                    continue
                read, written = (min(rows * row, much * threads * size) for much in (access.read, access.written))
                one.read, one.written = one.read + times * read, one.written + times * written
    return [*found.values(), filled], use


@contextmanager
def _noting_fills(filled: Traffic) -> Iterator[None]:
    """Add what Warp sets and copies without a kernel of its own."""

    def noting(run: Any, times: int) -> Any:
        def noted(array: Any, *args: Any, **kwargs: Any) -> Any:
            filled.launches += 1
            filled.written += array.capacity / WORLDS
            filled.read += (times - 1) * array.capacity / WORLDS
            return run(array, *args, **kwargs)

        return noted

    with (
        mock.patch.object(wp.array, "zero_", noting(wp.array.zero_, 1)),
        mock.patch.object(wp.array, "fill_", noting(wp.array.fill_, 1)),
        mock.patch.object(wp, "copy", noting(wp.copy, 2)),
    ):
        yield


def _arrays(launch: Launch, path: str) -> Iterator[Any]:
    """Yield the array of a launch that a path names, if it is one."""
    name, _, field = path.partition(".")
    labels = [argument.label for argument in launch.kernel.adj.args]
    value: Any = launch.arguments[labels.index(name)] if name in labels else None
    value = getattr(value, field, None) if field else value
    if isinstance(value, wp.array) and value.size:
        yield value


def _item(array: Any) -> int:
    return int(wp.types.type_size_in_bytes(array.dtype))


def _row(array: Any, contacts: int, used: float, limits: Mapping[int, float]) -> tuple[float, float]:
    """Return how many rows of an array there are for a world, and the bytes of one; (0, 0) for what worlds share."""
    shape: Sequence[int] = array.shape
    size = float(array.size * _item(array))
    if shape[0] == WORLDS:
        share = float(np.prod([limits.get(length, 1.0) for length in shape[1:]]))
        return 1.0, size / WORLDS * share
    if shape[0] == contacts:
        return used, size / shape[0]
    if len(shape) > 1 and shape[1] == WORLDS:  # A ring of states: one of them is written.
        return 1.0, size / WORLDS / shape[0]
    return 0.0, 0.0


def _measure_use(env: Any) -> Use:
    """Return what a world uses of the engine's buffers with actions of zero, on the CPU."""
    import mujoco

    model, seen = env.scene.model, []
    data = mujoco.MjData(model)
    try:
        env.reset()
        for _ in range(SETTLING_STEPS):
            env.step(torch.zeros(1, env.num_actions))
        for _ in range(SETTLING_STEPS):
            env.step(torch.zeros(1, env.num_actions))
            state = env.state
            data.qpos[:], data.qvel[:] = state.qpos[0].numpy(), state.qvel[0].numpy()
            data.ctrl[:] = state.ctrl[0].numpy()
            mujoco.mj_step(model, data)  # Also fills the warm start for the next one.
            iterations = float(data.solver_niter[: max(data.nisland, 1)].max())
            seen.append((float(data.ncon), float(data.nefc), max(1.0, iterations)))
    finally:
        env.close()
    return Use(*np.mean(seen, axis=0).tolist())

"""The memory and the kernels of an iteration, found by running it without data at two numbers of worlds."""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten
from warp._src.context import CpuDefaultAllocator

from robot_rl.gpu.capture import DEVICE, ShapeEnv, Watch, without_cuda
from robot_rl.gpu.collect import collecting
from robot_rl.learn.algorithms.ppo.graphed import GraphedStep

WORLDS = (32, 64)
"""Numbers of worlds that are tried."""
ITERATIONS = 2
"""Iterations of the learner: in the second everything is allocated."""
_NO_KERNEL = ("detach", "empty", "empty_like", "new_empty", "empty_strided", "lift_fresh", "_unsafe_view", "alias")
GRAPHED, OUTSIDE = "graphed", "outside"


@dataclass(frozen=True, slots=True)
class Footprint:
    """What an iteration needs of a GPU.

    Attributes:
        env_bytes: memory of the environment for each world.
        learner_bytes: memory of the learner for each world: rollout, batch, and what a minibatch needs.
        fixed_bytes: memory that does not depend on the number of worlds.
        graphed_kernels: torch's kernels of an iteration within graphs, with the copies.
        other_kernels: torch's kernels of an iteration that Python launches one by one.
        replays: graphs that Python launches in an iteration.
    """

    env_bytes: float
    learner_bytes: float
    fixed_bytes: float
    graphed_kernels: int
    other_kernels: int
    replays: int

    def memory(self, worlds: int) -> float:
        """Return the memory for a number of worlds [bytes]."""
        return self.fixed_bytes + worlds * (self.env_bytes + self.learner_bytes)


def measure_footprint(make_env: Callable[[int], Any], make_session: Callable[[Any], Any]) -> Footprint:
    """Return what an iteration of a learner needs.

    Args:
        make_env: builds an environment of so many worlds on the CPU, with the engine of GPUs.
        make_session: builds the learner's session for an environment.
    """
    of_env, of_learner = [], []
    meter = _Meter()
    for worlds in WORLDS:
        with _counting_warp() as used, collecting():
            env = make_env(worlds)
            env.reset()
            env.step(torch.zeros(worlds, env.num_actions))
            env.close()
        of_env.append(used.peak)
        meter = _Meter()
        _iterate(meter, env, make_session)
        of_learner.append(meter.used.peak)
    (env_fixed, env_each), (fixed, each) = _line(of_env), _line(of_learner)
    return Footprint(
        env_bytes=env_each,
        learner_bytes=each,
        fixed_bytes=max(0.0, env_fixed) + max(0.0, fixed),
        graphed_kernels=meter.kernels[GRAPHED],
        other_kernels=meter.kernels[OUTSIDE],
        replays=meter.replays,
    )


def _line(values: Sequence[float]) -> tuple[float, float]:
    """Return offset and slope over the WORLDS."""
    slope = (values[1] - values[0]) / (WORLDS[1] - WORLDS[0])
    return values[0] - slope * WORLDS[0], slope


def _iterate(meter: _Meter, env: Any, make_session: Callable[[Any], Any]) -> None:
    graphed = GraphedStep.bind

    def bind(step: GraphedStep, *arguments: Any) -> Any:
        run = graphed(step, *arguments)
        return meter.replayed(run)

    with without_cuda(lambda algorithm, device: GraphedStep(algorithm, _Direct())), meter:
        session = make_session(ShapeEnv(env))
        walk = meter.replayed(session.collector._walk)
        with (
            mock.patch.object(session.collector, "_walk", walk),
            mock.patch.object(GraphedStep, "bind", bind),
        ):
            for iteration in range(ITERATIONS):
                session.iteration = iteration
                meter.kernels.clear()
                meter.replays = 0
                session.algorithm.update(session.collect(), 0.0)


class _Direct:
    """Records nothing: a replay does the work again."""

    def run(self, work: Callable[[], None]) -> None:
        work()

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        return work


class _Usage:
    """Counts bytes that are in use, and their peak."""

    def __init__(self) -> None:
        self.now, self.peak = 0, 0

    def add(self, size: int) -> None:
        """Take or, below zero, give back."""
        self.now += size
        self.peak = max(self.peak, self.now)


class _Meter(Watch):
    """Counts the bytes of the GPU's tensors that are alive, and the kernels of what runs."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.kernels, self.replays = _Usage(), Counter[str](), 0
        self._live: set[int] = set()
        self._depth = 0

    def replayed(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function with the kernels of which are those of a graph."""

        def graphed(*args: Any, **kwargs: Any) -> Any:
            self.replays += self._depth == 0
            self._depth += 1
            try:
                return run(*args, **kwargs)
            finally:
                self._depth -= 1

        return graphed

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        tensors = [value for value in tree_flatten(result)[0] if isinstance(value, Tensor)]
        on_gpu = [tensor for tensor in tensors if tensor.device == DEVICE]
        name = func._schema.name.removeprefix("aten::")
        if (on_gpu or name == "_fused_adam_") and name not in _NO_KERNEL and not func.is_view:
            self.kernels[GRAPHED if self._depth else OUTSIDE] += 1
        for tensor in on_gpu:
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key not in self._live:
                self._live.add(key)
                self.used.add(storage.nbytes())
                weakref.finalize(storage, self._forget, key, storage.nbytes())
        return result

    def _forget(self, key: int, size: int) -> None:
        self._live.discard(key)
        self.used.add(-size)


@contextlib.contextmanager
def _counting_warp() -> Iterator[_Usage]:
    """Count the bytes of Warp's arrays on the CPU, which are the GPU's in a run there."""
    used, allocate = _Usage(), CpuDefaultAllocator.allocate

    def counted(allocator: Any, size: int) -> Any:
        used.add(size)
        return allocate(allocator, size)

    free = CpuDefaultAllocator.deallocate

    def freed(allocator: Any, ptr: int, size: int) -> None:
        used.add(-size)
        free(allocator, ptr, size)

    with (
        mock.patch.object(CpuDefaultAllocator, "allocate", counted),
        mock.patch.object(CpuDefaultAllocator, "deallocate", freed),
    ):
        yield used

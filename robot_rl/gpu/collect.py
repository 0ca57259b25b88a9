"""Which Warp kernels a run launches, found by building and stepping its environment without launching any."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import warp as wp
from robot_rl_envs.engines.mujoco_warp import MujocoWarpEngine

DEFAULT_THREADS = 256
"""Threads of a block where a launch names none."""


@dataclass(slots=True)
class Variant:
    """A Warp module and the threads of the blocks it is launched with: what is compiled at once.

    Attributes:
        module: the module.
        threads: threads of a block.
        kernels: the kernels of it that are launched, in their order.
    """

    module: Any
    threads: int
    kernels: list[Any] = field(default_factory=list)

    @property
    def folder(self) -> str:
        """Name of its folder in a kernel cache: the module's name and a hash of its code and options."""
        return self.module.get_module_identifier(self.threads)


class _NoCommand:
    """A recorded launch that does nothing."""

    def launch(self, stream: Any = None) -> None:
        pass


class _NoCapture(contextlib.nullcontext[Any]):
    """A capture that records nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__(SimpleNamespace(graph=object()))


@contextmanager
def collecting() -> Iterator[list[Variant]]:
    """Note every kernel instead of launching it; loops and branches on the device are gone through once.

    Yields:
        The variants, filled while the context lasts.
    """
    found: dict[tuple[int, int], Variant] = {}
    variants: list[Variant] = []

    def note(kernel: Any, dim: Any, threads: int) -> None:
        sizes = dim if isinstance(dim, (tuple, list)) else (dim,)
        if any(isinstance(size, int) and size == 0 for size in sizes):
            return  # Warp loads nothing for a launch without threads.
        key = (id(kernel.module), threads)
        if key not in found:
            found[key] = Variant(kernel.module, threads)
            variants.append(found[key])
        if kernel not in found[key].kernels:
            found[key].kernels.append(kernel)

    def launch(kernel: Any, dim: Any, *_: Any, block_dim: int = DEFAULT_THREADS, **options: Any) -> Any:
        note(kernel, dim, block_dim)
        return _NoCommand() if options.get("record_cmd") else None

    def capture_while(condition: Any, while_body: Callable[..., Any] | None = None, **arguments: Any) -> None:
        if while_body is not None:
            while_body(**{name: value for name, value in arguments.items() if name != "stream"})

    def capture_if(
        condition: Any,
        on_true: Callable[..., Any] | None = None,
        on_false: Callable[..., Any] | None = None,
        **arguments: Any,
    ) -> None:
        for branch in (on_true, on_false):
            if branch is not None:
                branch(**{name: value for name, value in arguments.items() if name != "stream"})

    replaced = {
        "launch": launch,
        "launch_tiled": launch,
        "capture_while": capture_while,
        "capture_if": capture_if,
        "force_load": lambda *_, **__: None,
    }
    # As on a GPU: a step is recorded once, and goes the way that a graph can hold.
    replaced |= {"ScopedCapture": _NoCapture, "capture_launch": lambda *_, **__: None}
    with contextlib.ExitStack() as stack:
        for name, function in replaced.items():
            stack.enter_context(mock.patch.object(wp, name, function))
        stack.enter_context(mock.patch.object(MujocoWarpEngine, "capturable", True))
        yield variants


def collect_kernels(make_env: Callable[[], Any]) -> list[Variant]:
    """Return what a run of an environment launches: built, reset, stepped and read, without a launch.

    Args:
        make_env: builds the environment on the CPU, with the engine of the wanted kernels.
    """
    with collecting() as variants:
        env = make_env()
        try:
            env.reset()
            for _ in range(2):
                env.step(torch.zeros(env.num_envs, env.num_actions, device=env.device))
            env.pop_metrics()
        finally:
            env.close()
    return variants

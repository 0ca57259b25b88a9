"""Which Warp kernels a run launches, found by building and stepping its environment without launching any."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
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


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch that did not happen.

    Attributes:
        kernel: the kernel.
        dim: threads by dimension.
        arguments: inputs and outputs.
        in_loop: it is in a loop that ends by a value of the device; such a loop is gone through once.
    """

    kernel: Any
    dim: tuple[int, ...]
    arguments: tuple[Any, ...]
    in_loop: bool


OnLaunch = Callable[[Launch], None]


@dataclass(frozen=True, slots=True)
class _Command:
    """A recorded launch, which is only noted."""

    note: Callable[[], None]

    def launch(self, stream: Any = None) -> None:
        self.note()


class _NoCapture(contextlib.nullcontext[Any]):
    """A capture that records nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__(SimpleNamespace(graph=object()))


@contextmanager
def collecting(on_launch: OnLaunch | None = None) -> Iterator[list[Variant]]:
    """Note every kernel instead of launching it; loops and branches on the device are gone through once.

    Args:
        on_launch: called with each launch of a kernel, of recorded ones when they are replayed.

    Yields:
        The variants, filled while the context lasts.
    """
    found: dict[tuple[int, int], Variant] = {}
    variants: list[Variant] = []
    loops = 0

    def note(kernel: Any, threads: int) -> None:
        key = (id(kernel.module), threads)
        if key not in found:
            found[key] = Variant(kernel.module, threads)
            variants.append(found[key])
        if kernel not in found[key].kernels:
            found[key].kernels.append(kernel)

    def launch(
        kernel: Any,
        dim: Any,
        inputs: Sequence[Any] = (),
        outputs: Sequence[Any] = (),
        *_: Any,
        block_dim: int = DEFAULT_THREADS,
        record_cmd: bool = False,
        **__: Any,
    ) -> Any:
        sizes = tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)

        def run() -> None:
            if on_launch is not None and 0 not in sizes:
                on_launch(Launch(kernel, sizes, (*inputs, *outputs), loops > 0))

        if 0 not in sizes:  # Warp loads nothing for a launch without threads.
            note(kernel, block_dim)
        if record_cmd:
            return _Command(run)
        run()
        return None

    def capture_while(condition: Any, while_body: Callable[..., Any] | None = None, **arguments: Any) -> None:
        nonlocal loops
        if while_body is not None:
            loops += 1
            while_body(**{name: value for name, value in arguments.items() if name != "stream"})
            loops -= 1

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

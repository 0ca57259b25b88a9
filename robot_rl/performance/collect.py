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
"""Threads of a block if a launch names none."""


@dataclass(slots=True)
class Variant:
    """A Warp module and the threads of the blocks it is launched with: a unit of compilation.

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


class _Command:
    """A recorded launch, which does nothing."""

    def launch(self, stream: Any = None) -> None:
        pass


class _NoCapture(contextlib.nullcontext[Any]):
    """A capture that records nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__(SimpleNamespace(graph=object()))


class _Launches:
    """Takes the place of Warp's launches, loops and branches; `variants` are the launched modules."""

    def __init__(self) -> None:
        self.variants: list[Variant] = []
        self._found: dict[tuple[int, int], Variant] = {}

    def launch(
        self, kernel: Any, dim: Any, *_: Any, block_dim: int = DEFAULT_THREADS, record_cmd: bool = False, **__: Any
    ) -> Any:
        """Note a launch."""
        sizes = tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
        if 0 not in sizes:  # Warp loads nothing for a launch without threads.
            self._note(kernel, block_dim)
        return _Command() if record_cmd else None

    def capture_while(self, condition: Any, while_body: Callable[..., Any] | None = None, **arguments: Any) -> None:
        """Go through a loop once."""
        if while_body is not None:
            while_body(**{name: value for name, value in arguments.items() if name != "stream"})

    def capture_if(
        self,
        condition: Any,
        on_true: Callable[..., Any] | None = None,
        on_false: Callable[..., Any] | None = None,
        **arguments: Any,
    ) -> None:
        """Go through both branches."""
        for branch in (on_true, on_false):
            if branch is not None:
                branch(**{name: value for name, value in arguments.items() if name != "stream"})

    def _note(self, kernel: Any, threads: int) -> None:
        key = (id(kernel.module), threads)
        if key not in self._found:
            self._found[key] = Variant(kernel.module, threads)
            self.variants.append(self._found[key])
        if kernel not in self._found[key].kernels:
            self._found[key].kernels.append(kernel)


@contextmanager
def collecting() -> Iterator[list[Variant]]:
    """Note every kernel instead of launching it; loops and branches on the device are gone through once.

    Yields:
        The variants, filled while the context lasts.
    """
    launches = _Launches()
    replaced = {
        "launch": launches.launch,
        "launch_tiled": launches.launch,
        "capture_while": launches.capture_while,
        "capture_if": launches.capture_if,
        "force_load": lambda *_, **__: None,
    }
    # As on a GPU: a step is recorded once, and goes the way that a graph can hold.
    replaced |= {"ScopedCapture": _NoCapture, "capture_launch": lambda *_, **__: None}
    with contextlib.ExitStack() as stack:
        for name, function in replaced.items():
            stack.enter_context(mock.patch.object(wp, name, function))
        stack.enter_context(mock.patch.object(MujocoWarpEngine, "capturable", True))
        yield launches.variants


def collect_kernels(make_env: Callable[[], Any]) -> list[Variant]:
    """Return the launches of an environment's run: built, reset, stepped and read, without a launch.

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

"""Recorded launches of a stage: one on a GPU, chunks of worlds on several threads on a CPU.

Warp runs a CPU kernel serially and without Python's lock, so chunks run side by side on threads. The chunks are fixed
only by the number of worlds: results, including the sums of the log, have the same bits at any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import warp as wp

CHUNK_WORLDS = 256
"""Worlds of one launch on a CPU."""
BLOCK_THREADS = 64
"""Threads of a block on a GPU: few, so that some thousand worlds reach as many multiprocessors as they can."""


def _run(commands: Sequence[Any]) -> None:
    for command in commands:
        command.launch()


class Stage:
    """One stage of a step over all worlds, recorded once.

    Attributes:
        chunks: the recorded launches of each chunk, in order.
    """

    def __init__(self, chunks: list[list[Any]], pool: ThreadPoolExecutor | None, num_threads: int):
        self.chunks, self._pool, self._num_threads = chunks, pool, num_threads
        workers = min(num_threads, len(chunks)) if pool else 1
        self._shares = [[command for chunk in chunks[k::workers] for command in chunk] for k in range(workers)]

    def then(self, other: Stage) -> Stage:
        """Join two stages of independent worlds: a chunk goes through both before the threads synchronize."""
        chunks = [mine + theirs for mine, theirs in zip(self.chunks, other.chunks, strict=True)]
        return Stage(chunks, self._pool, self._num_threads)

    def launch(self) -> None:
        """Run the stage; on return a CPU has finished it, a GPU has it queued."""
        if self._pool is None or len(self._shares) == 1:
            for share in self._shares:
                _run(share)
            return
        others = [self._pool.submit(_run, share) for share in self._shares[1:]]
        _run(self._shares[0])
        for other in others:
            other.result()


class Recorder:
    """Records stages for ``num_envs`` worlds on ``device``.

    Attributes:
        starts: first world of each chunk.
    """

    def __init__(self, num_envs: int, device: str, num_threads: int):
        self.num_envs, self.device = num_envs, device
        self.starts = [0] if device.startswith("cuda") else list(range(0, num_envs, CHUNK_WORLDS))
        self._threads = min(num_threads, len(self.starts))
        self._pool = ThreadPoolExecutor(self._threads - 1, "robot-rl-env") if self._threads > 1 else None

    def record(
        self, kernel: wp.Kernel, inputs: Callable[[int, int], list[Any]], *, threads: bool = True, columns: int = 0
    ) -> Stage:
        """Record a kernel.

        Args:
            kernel: a kernel over worlds, or with ``columns`` over worlds and columns.
            inputs: (index of the chunk, its first world) -> the kernel's arguments.
            threads: whether to share the chunks among threads; waking them is not worth it for a short kernel.
            columns: size of a second dimension of threads, 0 for none.
        """
        inner = (columns,) if columns else ()
        width = self.num_envs if self.device.startswith("cuda") else CHUNK_WORLDS
        chunks = [
            [
                wp.launch(
                    kernel,
                    dim=(min(width, self.num_envs - first), *inner),
                    inputs=inputs(k, first),
                    device=self.device,
                    record_cmd=True,
                    block_dim=BLOCK_THREADS,
                )
            ]
            for k, first in enumerate(self.starts)
        ]
        return Stage(chunks, self._pool if threads else None, self._threads)

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)

"""The processes that train together: sums, means and messages over them.

Each process simulates its own worlds and holds its own copy of the networks. Initialized alike and stepped by the same
mean gradient, the copies stay equal to the bit, since a sum over the processes has the same bits in each of them.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from robot_rl.errors import PeerError, UserError
from robot_rl.learn.stores import LOOPBACK, LOOPBACK_NAME, open_store

T = TypeVar("T")
SEED_STRIDE = 1_000_003
"""Distance of two processes' seeds: far beyond the distance of a run's streams."""


class ProcessGroup:
    """A training in one process: sums and means are the process's own.

    Attributes:
        rank: index of this process.
        size: number of processes.
    """

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and talks to the user."""
        return self.rank == 0

    def sum_(self, x: Tensor) -> Tensor:
        """Replace a tensor by its sum over all processes and return it."""
        return x

    def mean_(self, x: Tensor) -> Tensor:
        """Replace a tensor by its mean over all processes and return it."""
        return x

    def max_(self, x: Tensor) -> Tensor:
        """Replace a tensor by its maximum over all processes and return it."""
        return x

    def broadcast_(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by those of the first process."""

    def gather(self, value: T) -> list[T]:
        """Return every process's value, which JSON can hold, by rank."""
        return [value]

    def any(self, flags: Sequence[bool]) -> list[bool]:
        """Return for each flag whether it is true in any process."""
        return list(flags)

    def first(self, make: Callable[[], T]) -> T:
        """Return what `make` returns in the first process, the only one that calls it; JSON must be able to hold it.

        If it fails, the first process raises the error and the others raise PeerError.
        """
        return make()

    def seed(self, seed: int) -> int:
        """Return the seed of a stream of this process; that of the first is `seed`."""
        return seed + SEED_STRIDE * self.rank

    def share(self, total: int, name: str) -> int:
        """Return this process's part of something that is divided evenly, or raise UserError with its name."""
        if total % self.size:
            raise UserError(name, total, f"must be a multiple of the {self.size} processes that train together")
        return total // self.size

    def pop_exchange_s(self) -> float:
        """Return the time in messages to the other processes since the last call [s], waiting for them included.

        Between GPUs, which exchange while the process continues, it is only the time until a message is on its way.
        """
        return 0.0

    def close(self) -> None:
        """Leave the group."""


SINGLE_PROCESS = ProcessGroup()
"""One process."""


class DistributedProcessGroup(ProcessGroup):
    """Processes that communicate through torch.distributed: gloo between CPUs, NCCL between GPUs.

    A process that loses another raises PeerError.
    """

    def __init__(self, rank: int, size: int, device: str) -> None:
        """Join the group at MASTER_ADDR and MASTER_PORT, with networks on `device`; waits for all processes to join.

        Processes of one machine meet and exchange on its loopback, for any MASTER_ADDR.
        """
        import torch.distributed as dist

        self.rank, self.size, self._dist = rank, size, dist
        self._exchange_s = 0.0
        cuda = torch.device(device).type == "cuda"
        if cuda:
            torch.cuda.set_device(device)
        if not dist.is_initialized():  # A process joins once: a sweep trains several times in the same group.
            backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
            store = self._meet()
            self._call(dist.init_process_group, backend, store=store, rank=rank, world_size=size)
            atexit.register(self.close)

    def sum_(self, x: Tensor) -> Tensor:
        """Replace a tensor by its sum over all processes and return it."""
        self._call(self._dist.all_reduce, x)
        return x

    def mean_(self, x: Tensor) -> Tensor:
        """Replace a tensor by its mean over all processes and return it."""
        return self.sum_(x).div_(self.size)

    def max_(self, x: Tensor) -> Tensor:
        """Replace a tensor by its maximum over all processes and return it."""
        self._call(self._dist.all_reduce, x, op=self._dist.ReduceOp.MAX)
        return x

    @torch.no_grad()
    def broadcast_(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by those of the first process, in one message for each type and device."""
        groups: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
        for tensor in tensors:
            groups.setdefault((tensor.dtype, tensor.device), []).append(tensor)
        for members in groups.values():
            message = torch.cat([tensor.detach().reshape(-1) for tensor in members])
            self._call(self._dist.broadcast, message, 0)
            for tensor, part in zip(members, message.split([t.numel() for t in members]), strict=True):
                tensor.copy_(part.view_as(tensor))

    def gather(self, value: T) -> list[T]:
        """Return every process's value, which JSON can hold, by rank."""
        body = json.dumps(value).encode()
        lengths = torch.zeros(self.size, dtype=torch.int64)
        lengths[self.rank] = len(body)
        counts = self.sum_(lengths).tolist()
        message = torch.zeros(max(counts), dtype=torch.uint8)
        message[: len(body)] = torch.frombuffer(bytearray(body), dtype=torch.uint8)
        parts = [torch.empty_like(message) for _ in counts]
        self._call(self._dist.all_gather, parts, message)
        return [json.loads(part.numpy().tobytes()[:count]) for part, count in zip(parts, counts, strict=True)]

    def any(self, flags: Sequence[bool]) -> list[bool]:
        """Return for each flag whether it is true in any process."""
        message = torch.tensor(list(flags), dtype=torch.int32)
        return [count > 0 for count in self.sum_(message).tolist()]

    def first(self, make: Callable[[], T]) -> T:
        """Return what `make` returns in the first process, the only one that calls it."""
        answer: dict[str, Any] = {}
        problem: BaseException | None = None
        if self.is_first:
            try:
                answer = {"value": make()}
            except Exception as error:  # The other processes get the line.
                problem, answer = error, {"error": f"{type(error).__name__}: {error}"}
        shared = self.gather(answer)[0]
        if problem is not None:
            raise problem
        if "error" in shared:
            raise PeerError(f"ended with process 0 ({shared['error']})")
        return answer["value"] if self.is_first else shared["value"]

    def pop_exchange_s(self) -> float:
        """Return the time in messages to the other processes since the last call [s], waiting for them included."""
        seconds, self._exchange_s = self._exchange_s, 0.0
        return seconds

    def close(self) -> None:
        """Leave the group."""
        if self._dist.is_initialized():
            self._dist.destroy_process_group()

    def _meet(self) -> Any:
        """Return the store by which the processes find each other."""
        missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
        if missing:
            right = "torchrun sets all of them"
            raise UserError(f"RANK={self.rank}, WORLD_SIZE={self.size}: {' and '.join(missing)} missing; {right}")
        host, port = os.environ["MASTER_ADDR"], _number("MASTER_PORT", 0, None)
        if not 0 < port < 65536:
            raise UserError("MASTER_PORT", port, "must be at least 1 and at most 65535")
        if find_local_rank()[1] == self.size:
            host = LOOPBACK
            for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
                os.environ.setdefault(name, LOOPBACK_NAME)
        is_kept = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # By somebody's own torchrun.
        return self._call(open_store, host, port, self.size, is_first=self.rank == 0 and not is_kept)

    def _call(self, operation: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        try:
            return operation(*arguments, **options)
        except (RuntimeError, OSError) as error:
            line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            line = re.sub(r"^\[\S+:\d+\] |\. This is typically caused by .*", "", line)  # gloo's source line and advice
            raise PeerError(f"process {self.rank} of {self.size} lost the others ({line})") from error
        finally:
            self._exchange_s += time.perf_counter() - start


def make_process_group(device: str = "cpu", environ: Mapping[str, str] | None = None) -> ProcessGroup:
    """Join the processes that torchrun started with this one; return SINGLE_PROCESS if it did not start any.

    `environ` replaces the environment variables. Raises UserError for variables that do not fit together, and PeerError
    if the other processes cannot be reached.
    """
    rank, size = find_rank(environ)
    return SINGLE_PROCESS if size == 1 else DistributedProcessGroup(rank, size, device)


def find_rank(environ: Mapping[str, str] | None = None) -> tuple[int, int]:
    """Return this process's index and the number of processes: torchrun's RANK and WORLD_SIZE.

    Raises UserError if they are not numbers, or do not fit together.
    """
    rank, size = _number("RANK", 0, environ), _number("WORLD_SIZE", 1, environ)
    if size < 1 or not 0 <= rank < size:
        raise UserError(f"RANK={rank}, WORLD_SIZE={size}: must be 0 <= RANK < WORLD_SIZE; torchrun sets both")
    return rank, size


def find_local_rank(environ: Mapping[str, str] | None = None) -> tuple[int, int]:
    """Return this process's index and the number of processes on this machine: LOCAL_RANK and LOCAL_WORLD_SIZE."""
    rank, size = find_rank(environ)
    if size == 1:
        return 0, 1
    return _number("LOCAL_RANK", rank, environ), _number("LOCAL_WORLD_SIZE", size, environ)


def _number(name: str, default: int, environ: Mapping[str, str] | None) -> int:
    text = (os.environ if environ is None else environ).get(name, "")
    try:
        return int(text or default)
    except ValueError:
        raise UserError(name, text, "must be a whole number, as torchrun sets it") from None

"""The learner's threads as a part of the run: sums over another number of threads have other bits."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from robot_rl.learn.ranks import Ranks


def use_threads(count: int, device: str) -> None:
    """Set how many threads the learner computes with; called before its first operation.

    By default half of the cores: every operation waits for its slowest thread, so with one thread a core anything else
    that runs holds all of them up, and on a busy machine two threads were several times slower than one.

    Args:
        count: threads; 0: the number in OMP_NUM_THREADS, or half of this process's cores.
        device: where the networks are; it matters only on a CPU.
    """
    if torch.device(device).type != "cpu":
        return
    if count == 0 and "OMP_NUM_THREADS" not in os.environ:
        count = max(1, len(os.sched_getaffinity(0)) // 2)
    if count:
        torch.set_num_threads(count)


def restore_threads(meta: Mapping[str, Any], device: str, ranks: Ranks, tell: Callable[[str], None]) -> None:
    """Let the learner compute with as many threads as before; called before its first operation.

    Args:
        meta: a checkpoint's description; earlier versions did not note the threads, which then stay as they are.
        device: where the networks are; only a CPU's bits depend on it.
        ranks: the processes that train together, each with a number of its own.
        tell: called with a line where there are fewer cores than that.
    """
    before = meta.get("threads", ())
    if torch.device(device).type != "cpu" or len(before) != ranks.size:
        return
    wanted, now, cores = before[ranks.rank], torch.get_num_threads(), len(os.sched_getaffinity(0))
    if wanted == now:
        return
    if wanted > max(cores, now):
        tell(
            f"the learner had {wanted} threads when the run was saved, here are {cores} cores: it goes on with {now}, "
            "and its numbers may differ in their last bits from those of the run that was never ended"
        )
        return
    torch.set_num_threads(wanted)

"""The learner's threads: sums over another number of threads have other bits, so a resumed run needs the same."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from robot_rl.learn.ranks import ProcessGroup
from robot_rl.machine import count_cores


def use_threads(count: int, device: str) -> None:
    """Set the number of the learner's threads on a CPU; called before its first operation.

    With 0 it is OMP_NUM_THREADS, or half of the cores: every operation waits for its slowest thread, so with one thread
    per core any other program delays all of them, and on a busy machine two threads were several times slower than one.
    """
    if torch.device(device).type != "cpu":
        return
    if count == 0 and "OMP_NUM_THREADS" not in os.environ:
        count = max(1, count_cores() // 2)
    if count:
        torch.set_num_threads(count)


def restore_threads(meta: Mapping[str, Any], device: str, ranks: ProcessGroup, tell: Callable[[str], None]) -> None:
    """Set the number of threads that a checkpoint's description contains; called before the learner's first operation.

    Descriptions of earlier versions lack it. If there are too few cores now, the number stays and `tell` gets a line.
    """
    before = meta.get("threads", ())
    if torch.device(device).type != "cpu" or len(before) != ranks.size:
        return
    wanted, now, cores = before[ranks.rank], torch.get_num_threads(), count_cores()
    if wanted == now:
        return
    if wanted > max(cores, now):
        tell(
            f"the learner had {wanted} threads when the run was saved, here are {cores} cores: it continues with "
            f"{now}, and its numbers may differ in their last bits from those of the run that was never ended"
        )
        return
    torch.set_num_threads(wanted)

"""The time that single methods take, by stage: timers that are installed for a while and removed again."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch


class StageWatch:
    """Adds up the time spent in methods of single objects, or of all objects of a class, while they are watched.

    The time of a stage within another counts only for itself, unless the other counts as a whole.

    Args:
        device: Device of the work; on a GPU each stage is waited for.
        label: Name the stages in a trace of torch's profiler, and wait for nothing.

    Attributes:
        spent: Seconds by stage.
    """

    def __init__(self, device: str | torch.device, *, label: bool = False) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        waits = torch.device(device).type == "cuda" and not label
        self._synchronize = torch.cuda.synchronize if waits else None
        self._label = label
        self._watched: list[tuple[Any, str, Any]] = []
        self._inside: list[tuple[str, bool]] = []

    def watch(self, owner: Any, method: str, stage: str, *, whole: bool = False) -> None:
        """Time `owner.method` under the name `stage`, until `release`.

        Args:
            owner: An object, or a class.
            method: The method's name.
            stage: The name of its time.
            whole: Stages within it count as it.
        """
        run = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._inside and self._inside[-1][1]:
                return run(*args, **kwargs)
            outer = self._inside[-1][0] if self._inside else None
            self._inside.append((stage, whole))
            begin = time.perf_counter()
            try:
                with torch.profiler.record_function(stage) if self._label else nullcontext():
                    result = run(*args, **kwargs)
                if self._synchronize:
                    self._synchronize()
            finally:
                self._inside.pop()
            seconds = time.perf_counter() - begin
            self.spent[stage] += seconds
            if outer is not None:
                self.spent[outer] -= seconds
            return result

        self._watched.append((owner, method, vars(owner).get(method) if isinstance(owner, type) else None))
        setattr(owner, method, timed)

    def release(self) -> None:
        """Remove every timer."""
        for owner, method, before in reversed(self._watched):
            if before is None:
                delattr(owner, method)
            else:
                setattr(owner, method, before)
        self._watched.clear()


@contextmanager
def watching(watch: StageWatch) -> Iterator[dict[str, float]]:
    """Yield the seconds by stage, and remove the timers of a watch at the end."""
    try:
        yield watch.spent
    finally:
        watch.release()

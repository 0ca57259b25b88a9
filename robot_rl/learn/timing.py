"""Measures the time of an iteration's parts without making the device wait."""

from __future__ import annotations

import time
from collections import defaultdict

import torch


class Stopwatch:
    """Sums the time between marks by name; on CUDA by events in the stream, which `read` reads once."""

    def __init__(self, device: torch.device | str) -> None:
        self._uses_events = torch.device(device).type == "cuda"
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._marks: list[tuple[str, torch.cuda.Event]] = []
        self.start()

    def start(self) -> None:
        """Begin the next lap now; the time since the last mark belongs to no lap."""
        if self._uses_events:
            self._mark("")
        else:
            self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Add the time since the last mark to `name`."""
        if self._uses_events:
            self._mark(name)
            return
        now = time.perf_counter()
        self._seconds[name] += now - self._last
        self._last = now

    def read(self) -> dict[str, float]:
        """Return the seconds by name and reset them; waits for the device on CUDA."""
        if self._uses_events and self._marks:
            self._marks[-1][1].synchronize()
            for (_, before), (name, after) in zip(self._marks[:-1], self._marks[1:], strict=True):
                self._seconds[name] += before.elapsed_time(after) / 1000.0
            self._seconds.pop("", None)
            del self._marks[:-1]
        seconds, self._seconds = dict(self._seconds), defaultdict(float)
        return seconds

    def _mark(self, name: str) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._marks.append((name, event))

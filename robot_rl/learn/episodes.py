"""Episode statistics of environments that keep none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


class EpisodeTracker:
    """Sums returns, lengths [steps] and the environment's log on the device; they are read once an iteration."""

    def __init__(self, num_envs: int, step_dt: float, device: torch.device | str) -> None:
        self.step_dt = step_dt
        self._return = torch.zeros(num_envs, device=device)
        self._length = torch.zeros(num_envs, device=device)
        self._totals = torch.zeros(3, device=device)
        self._log: defaultdict[str, list[Any]] = defaultdict(list)

    def add(self, reward: Tensor, done: Tensor, log: Mapping[str, Any]) -> None:
        """Add a step: rewards (N,), ends of episodes (N,) bool, and the log, numbers or tensors by name."""
        self._return += reward
        self._length += 1.0
        ended = done.to(reward.dtype)
        self._totals += torch.stack((ended.sum(), (ended * self._return).sum(), (ended * self._length).sum()))
        self._return *= 1.0 - ended
        self._length *= 1.0 - ended
        for name, value in log.items():
            self._log[name].append(value.detach().float().mean() if isinstance(value, Tensor) else float(value))

    def worlds(self) -> dict[str, Tensor]:
        """Return return and length (N,) of the running episodes, live."""
        return {"return": self._return, "length": self._length}

    def pop(self) -> dict[str, float]:
        """Return the means since the last call: episode/return, episode/length_s, episodes, and the log's own names."""
        names = list(self._log)
        device = self._totals.device
        means = [torch.stack([torch.as_tensor(v, device=device) for v in self._log[name]]).mean() for name in names]
        episodes, total_return, total_length, *logged = torch.cat(
            (self._totals, torch.stack(means) if means else self._totals[:0])
        ).tolist()
        self._totals.zero_()
        self._log.clear()
        metrics = {"episodes": episodes}
        if episodes:
            metrics["episode/return"] = total_return / episodes
            metrics["episode/length_s"] = total_length / episodes * self.step_dt
        return metrics | {name.lstrip("/"): value for name, value in zip(names, logged, strict=True)}

"""The common part of Gymnasium's and PettingZoo's environments: episodes and quarantine are counted on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from rsl_rl.env import VecEnv
from torch import Tensor

from robot_rl.sources.quarantine import Quarantine


class HostEnv(VecEnv):
    """Worlds that are stepped on the host, of one row each, or of a row for each agent."""

    _statistics: Statistics
    _quarantine: Quarantine

    @property
    def episode_length_buf(self) -> Tensor:
        """(N,) steps since each row's reset, a copy: the worlds have their own clocks."""
        lengths = torch.from_numpy(self._statistics.length.astype(np.int64)).to(self.device)
        return lengths.repeat_interleave(self.num_envs // len(lengths))

    @episode_length_buf.setter
    def episode_length_buf(self, value: Tensor) -> None:
        pass

    def pop_metrics(self) -> dict[str, float]:
        """Return means over the episodes that ended since the last call: see `Statistics.pop`.

        Further "quarantined" (samples), and "quarantined/<reason>", if there are any.
        """
        return self._statistics.pop() | self._quarantine.pop_metrics()

    def pop_notices(self) -> list[str]:
        """Return new lines for the user: the first world that was quarantined for each reason."""
        return self._quarantine.pop_notices()

    def _unsound(self, obs: Any) -> np.ndarray:
        """Return (W,) bool, the worlds with an observation that is not finite."""
        raise NotImplementedError

    def _find_broken(self, is_lost: np.ndarray, reward: np.ndarray, obs: Any, skipped: np.ndarray) -> np.ndarray:
        """Count a step and return (W,) bool, the worlds in quarantine, by their actions, rewards and observations."""
        is_bad = self._quarantine.check("reward", {"the reward": torch.from_numpy(reward)})
        by_reason = {"action": is_lost, "reward": is_bad, "observation": self._unsound(obs)}
        return self._quarantine.step(by_reason, skipped)


class Statistics:
    """Returns and lengths of episodes on the host; a step that was a reset belongs to none.

    Attributes:
        length: (N,) steps of the running episodes.
    """

    def __init__(self, num_envs: int, step_dt: float) -> None:
        self.step_dt = step_dt
        self.length = np.zeros(num_envs)
        self._return = np.zeros(num_envs)
        self._totals = np.zeros(4)

    def clear(self) -> None:
        """Forget the running episodes."""
        self.length[:] = 0.0
        self._return[:] = 0.0

    def drop(self, worlds: np.ndarray) -> None:
        """Forget the running episodes of the worlds (N,) bool."""
        self._return[worlds] = 0.0
        self.length[worlds] = 0.0

    def add(self, reward: np.ndarray, over: np.ndarray, terminated: np.ndarray, skipped: np.ndarray) -> None:
        """Add a step.

        Args:
            reward: (N,).
            over: (N,) bool, episodes that ended.
            terminated: (N,) bool, those that were not truncated.
            skipped: (N,) bool, worlds that were reset instead.
        """
        self._return += reward
        self.length += ~skipped
        if over.any():
            sums = (over.sum(), self._return[over].sum(), self.length[over].sum(), terminated.sum())
            self._totals += sums
            self._return[over] = 0.0
            self.length[over] = 0.0

    def pop(self) -> dict[str, float]:
        """Return and clear the means since the last call.

        Returns:
            "episodes" that ended, and where any did "episode/return", "episode/length_s" [s], "episode/steps",
            "termination/terminated" and "termination/time_limit" (shares of the episodes that ended).
        """
        episodes, returns, steps, terminated = self._totals.tolist()
        self._totals[:] = 0.0
        if not episodes:
            return {"episodes": 0.0}
        return {
            "episodes": episodes,
            "episode/return": returns / episodes,
            "episode/length_s": steps / episodes * self.step_dt,
            "episode/steps": steps / episodes,
            "termination/terminated": terminated / episodes,
            "termination/time_limit": 1.0 - terminated / episodes,
        }

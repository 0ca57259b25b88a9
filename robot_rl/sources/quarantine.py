"""Quarantine of worlds of external environments, for numbers that are not finite in float32 (docs/quarantine.md).

The state of such a world cannot be repaired: from the first bad number until its next episode begins nothing of it
is learned from or measured, and its policy sees zeros.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

REASONS = ("action", "reward", "observation")
"""In the order in which they count; the same words as those of the project's own environments."""


class Quarantine:
    """Finds the worlds to quarantine, on the host, and reports them.

    Args:
        name: The environment, for notices.
        num_worlds: Number of worlds N.
        samples: Samples of a world in each step.

    Attributes:
        broken: (N,) 1 + index of the reason why a world is in quarantine, 0 for the others.
    """

    def __init__(self, name: str, num_worlds: int, samples: int = 1) -> None:
        self._name, self._samples = name, samples
        self.broken = np.zeros(num_worlds, dtype=np.int64)
        self._counts = np.zeros(len(REASONS) + 1)
        self._notices: list[str] = []
        self._notified: set[str] = set()

    def restart(self, bad: np.ndarray) -> None:
        """Begin in all worlds; those (N,) bool with a first observation that is `bad` are quarantined."""
        self.broken[:] = np.where(bad, 1 + REASONS.index("observation"), 0)

    def check(self, reason: str, parts: Mapping[str, Tensor]) -> np.ndarray:
        """Return (N,) bool, the worlds in which a part, (N, ...) each, is not finite; notify the first of a reason.

        Args:
            reason: One of REASONS.
            parts: Tensors by the words that name them in a notice, such as "observation 'pos'".
        """
        bad = np.zeros(len(self.broken), dtype=bool)
        for label, values in parts.items():
            not_finite = ~values.isfinite().reshape(len(bad), -1).all(dim=1).cpu().numpy()
            if not_finite.any() and reason not in self._notified:
                self._notified.add(reason)
                line = f"quarantined world {int(not_finite.argmax())} of {self._name}: {label} is not finite in float32"
                self._notices.append(line)
            bad |= not_finite
        return bad

    def step(self, by_reason: Mapping[str, np.ndarray], skipped: np.ndarray) -> np.ndarray:
        """Count a step and return (N,) bool, the worlds in quarantine.

        Args:
            by_reason: Reason -> (N,) bool of worlds.
            skipped: (N,) bool, worlds that were reset instead of stepped; they count for nothing.
        """
        for index, reason in enumerate(REASONS, 1):
            self.broken[(self.broken == 0) & by_reason[reason]] = index
        self._counts += self._samples * np.bincount(self.broken[~skipped], minlength=len(self._counts))
        return self.broken > 0

    def begin(self, worlds: np.ndarray, bad: np.ndarray) -> None:
        """Release the worlds (N,) bool in which an episode has begun, but not those with a `bad` first observation."""
        self.broken[worlds] = np.where(bad[worlds], 1 + REASONS.index("observation"), 0)

    def pop_metrics(self) -> dict[str, float]:
        """Return and clear "quarantined" (samples), and "quarantined/<reason>" if there are any."""
        counts = self._counts[1:].tolist()
        self._counts[:] = 0.0
        by_reason = {f"quarantined/{name}": n for name, n in zip(REASONS, counts, strict=True) if n}
        return {"quarantined": sum(counts), **by_reason} if by_reason else {}

    def pop_notices(self) -> list[str]:
        """Return and clear lines about the first quarantine for each reason."""
        lines, self._notices = self._notices, []
        return lines

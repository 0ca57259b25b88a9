"""When a training is given up: nothing can be learned from its samples, or its state is no longer made of numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from torch import Tensor

from robot_rl.errors import GiveUpError

PATIENCE = 5
"""Iterations in a row with too many quarantined samples that end a training."""


class QuarantineLimit:
    """Ends a training that hardly any sample is left of, iteration after iteration.

    One bad iteration ends nothing: its worlds were reset. PATIENCE of them in a row do, and so does a shorter training
    of which every iteration was one.
    """

    def __init__(self, most: float) -> None:
        """Start with no iteration seen.

        Args:
            most: share of an iteration's samples that may be quarantined; with 1 nothing is ever ended.
        """
        self._most = most
        self._seen, self._streak, self._bad, self._samples = 0, 0, 0.0, 0
        self._reasons: Counter[str] = Counter()

    def check(self, row: Mapping[str, float], samples: int) -> None:
        """Take in an iteration's row of metrics.

        Args:
            row: its "quarantined" samples, and "quarantined/<reason>".
            samples: samples of the iteration.

        Raises:
            GiveUpError: it is one too many; the line names the most frequent reason and the setting.
        """
        self._seen += 1
        bad = row.get("quarantined", 0.0)
        if bad <= self._most * samples:
            self._streak, self._bad, self._samples = 0, 0.0, 0
            self._reasons.clear()
            return
        self._streak, self._bad, self._samples = self._streak + 1, self._bad + bad, self._samples + samples
        self._reasons.update(
            {key.partition("/")[2]: int(n) for key, n in row.items() if key.startswith("quarantined/")}
        )
        if self._streak == PATIENCE:
            raise GiveUpError(self._line(int(row["iteration"])))

    def finish(self, iteration: int) -> None:
        """Look back on a training that is over.

        Args:
            iteration: the last one.

        Raises:
            GiveUpError: it had an iteration, and each had too many quarantined samples.
        """
        if self._streak and self._streak == self._seen:
            raise GiveUpError(self._line(iteration))

    def _line(self, last: int) -> str:
        when = f"iteration {last}" if self._streak == 1 else f"iterations {last - self._streak + 1} to {last}"
        reasons = self._reasons.most_common(1)
        why = f", most for '{reasons[0][0]}'" if reasons else ""
        return (
            f"max_quarantined={self._most:g}: {self._bad:.0f} of {self._samples} samples of {when} were "
            f"quarantined{why}; change what breaks the worlds (robot-rl inspect shows one that quarantine/ holds), or "
            "give max_quarantined=1 to go on with the samples that are left"
        )


def check_finite(tensors: Mapping[str, Tensor]) -> None:
    """Refuse a state that must not be kept.

    Args:
        tensors: what a checkpoint would hold, by name, in the CPU's memory.

    Raises:
        GiveUpError: a number is not finite; the line names the tensor.
    """
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            count = int(tensor.numel() - tensor.isfinite().sum())
            raise GiveUpError(
                f"no checkpoint is written: '{name}' holds {count} of {tensor.numel()} numbers that are not finite; "
                "look for a setting that makes observations, rewards or steps too large"
            )

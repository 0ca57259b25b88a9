"""The conditions for giving up a training: too many quarantined samples, or a state that is not finite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from torch import Tensor

from robot_rl.errors import NotRetryableError

PATIENCE = 5
"""Iterations in a row with too many quarantined samples that end a training."""


class QuarantineLimit:
    """Ends a training with too many quarantined samples in PATIENCE successive iterations, or in all of fewer ones.

    One such iteration ends nothing, because its worlds were reset. `most` is the share of an iteration's samples that
    may be quarantined; 1 never ends the training.
    """

    def __init__(self, most: float) -> None:
        self._most = most
        self._seen, self._streak, self._bad, self._samples = 0, 0, 0.0, 0
        self._reasons: Counter[str] = Counter()

    def check(self, row: Mapping[str, float], samples: int) -> None:
        """Count the row "quarantined" (and "quarantined/<reason>") of an iteration of so many samples.

        Raises NotRetryableError if it is one too many; the message names the most frequent reason and the setting.
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
            raise NotRetryableError(self._line(int(row["iteration"])))

    def finish(self, iteration: int) -> None:
        """Raise NotRetryableError if each iteration of a finished training had too many quarantined samples."""
        if self._streak and self._streak == self._seen:
            raise NotRetryableError(self._line(iteration))

    def _line(self, last: int) -> str:
        when = f"iteration {last}" if self._streak == 1 else f"iterations {last - self._streak + 1} to {last}"
        reasons = self._reasons.most_common(1)
        why = f", most for '{reasons[0][0]}'" if reasons else ""
        return (
            f"max_quarantined={self._most:g}: {self._bad:.0f} of {self._samples} samples of {when} were "
            f"quarantined{why}; correct the fault of the worlds (robot-rl inspect shows one that quarantine/ holds, "
            "if the run has that folder), or give max_quarantined=1 to continue with the samples that are left"
        )


def check_finite(tensors: Mapping[str, Tensor]) -> None:
    """Raise NotRetryableError, with the tensor's name, if a checkpoint's tensors on the CPU are not all finite."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            count = int(tensor.numel() - tensor.isfinite().sum())
            raise NotRetryableError(
                f"no checkpoint is written: '{name}' holds {count} of {tensor.numel()} numbers that are not finite; "
                "look for a setting that makes observations, rewards or steps too large"
            )

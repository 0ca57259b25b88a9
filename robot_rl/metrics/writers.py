"""Metrics of a run: JSON lines (the truth) and TensorBoard always, Weights & Biases on request."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from robot_rl.config.checks import check_choice
from robot_rl.files import read_plain
from robot_rl.metrics.rows import NAME, Rows, iteration_of, to_stderr
from robot_rl.metrics.trackers import Board, Forgiving, WandbRun

WANDB_MODES = ("off", "offline", "online")
HEADER = ("iteration", "env_steps", "time_s")
"""Keys of a row that say when it was, in order."""


class MetricsWriter:
    """Writes one row an iteration to every place; a row is in the file when `write` returns, whole or not at all.

    Use it as a context manager, or call `close`.
    """

    def __init__(
        self,
        run_dir: Path,
        wandb: str = "off",
        *,
        name: str | None = None,
        resume: Mapping[str, int] | None = None,
        say: Callable[[str], None] = to_stderr,
        file: Any = None,
    ) -> None:
        """Open metrics.jsonl in the run's directory for appending.

        Args:
            run_dir: the run's directory; created where it is missing.
            wandb: "off", "offline" or "online".
            name: name of the run at Weights & Biases; its directory's name where None.
            resume: what `mark` returned when the checkpoint was written that training goes on from: the rows behind it
                are removed. None keeps all whole rows.
            say: told in one line about rows that are lost.
            file: metrics.jsonl, where this process has opened and locked it with `robot_rl.metrics.rows.lock`.

        Raises:
            UserError: an unknown mode, wandb asked for and not installed, or another process writes this run.
        """
        check_choice("metrics.wandb", wandb, WANDB_MODES)
        self.run_dir = Path(run_dir)
        self.run_dir.mkdir(parents=True, exist_ok=True)
        self._rows = Rows(self.run_dir, resume, say, file)
        self._trackers: list[Forgiving] = []
        try:
            self._trackers.append(Forgiving(Board(self.run_dir / "tb"), "TensorBoard", say))
            if wandb != "off":
                run = WandbRun(self.run_dir, wandb, name or self.run_dir.name)
                self._trackers.append(Forgiving(run, "Weights & Biases", say))
        except BaseException:
            self.close()
            raise

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write a row.

        Args:
            step: the iteration; rows of it or later ones that are there are replaced.
            values: numbers by name; HEADER names come first in the row. A number that is not finite becomes null.
        """
        row: dict[str, float | None] = {"iteration": step}
        row |= {key: values[key] for key in HEADER if key in values and key != "iteration"}
        row |= {key: _finite(value) for key, value in values.items() if key not in row}
        self._rows.append(row)
        for tracker in self._trackers:
            tracker.write(row)

    def mark(self) -> dict[str, int]:
        """Return what a checkpoint keeps about the rows so far, after they are on the disk; see `Rows.mark`."""
        for tracker in self._trackers:
            tracker.flush()
        return self._rows.mark()

    def close(self) -> None:
        """Flush and close everything; may be called twice."""
        self._rows.close()
        for tracker in self._trackers:
            tracker.close()

    def __enter__(self) -> MetricsWriter:
        """Return the writer."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the writer."""
        self.close()


def read_metrics(run_dir: Path) -> list[dict[str, Any]]:
    """Return the rows of a run's metrics.jsonl, oldest first, of rising iterations.

    A line that is no whole row, as a crash leaves it, is left out; a row of an iteration that is done again replaces
    the earlier one and those behind it.

    Raises:
        FileNotFoundError: the run has no metrics.
        UserError: they are no plain file.
    """
    rows: list[dict[str, Any]] = []
    for line in read_plain(Path(run_dir) / NAME).split(b"\n"):
        iteration = iteration_of(line)
        if iteration is not None:
            while rows and rows[-1]["iteration"] >= iteration:
                rows.pop()
            rows.append(json.loads(line))
    return rows


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

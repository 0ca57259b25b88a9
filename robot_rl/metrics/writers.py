"""Metrics of a run: JSON lines (the truth) and TensorBoard always, Weights & Biases on request."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from robot_rl.config.checks import check_choice
from robot_rl.metrics.rows import Rows, to_stderr

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
    ) -> None:
        """Open metrics.jsonl in the run's directory for appending.

        Args:
            run_dir: the run's directory; created where it is missing.
            wandb: "off", "offline" or "online".
            name: name of the run at Weights & Biases; its directory's name where None.
            resume: what `mark` returned when the checkpoint was written that training goes on from: the rows behind it
                are removed. None keeps all whole rows.
            say: told in one line about rows that are lost.

        Raises:
            UserError: an unknown mode, wandb asked for and not installed, or another process writes this run.
        """
        check_choice("metrics.wandb", wandb, WANDB_MODES)
        self.run_dir = Path(run_dir)
        self.run_dir.mkdir(parents=True, exist_ok=True)
        self._wandb: Any = None if wandb == "off" else _start_wandb(self.run_dir, wandb, name or self.run_dir.name)
        self._rows = Rows(self.run_dir, resume, say)
        self._board: Any = None

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
        if self._board is None:
            from torch.utils.tensorboard.writer import SummaryWriter

            self._board = SummaryWriter(str(self.run_dir / "tb"))
        for key, value in row.items():
            if value is not None and key != "iteration":
                self._board.add_scalar(key, value, step)
        if self._wandb is not None:
            self._wandb.log({key: value for key, value in row.items() if value is not None}, step=step)

    def mark(self) -> dict[str, int]:
        """Return what a checkpoint keeps about the rows so far, after they are on the disk; see `Rows.mark`."""
        if self._board is not None:
            self._board.flush()
        return self._rows.mark()

    def close(self) -> None:
        """Flush and close everything; may be called twice."""
        self._rows.close()
        if self._board is not None:
            self._board.close()
            self._board = None
        if self._wandb is not None:
            self._wandb.finish()
            self._wandb = None

    def __enter__(self) -> MetricsWriter:
        """Return the writer."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the writer."""
        self.close()


def read_metrics(run_dir: Path) -> list[dict[str, Any]]:
    """Return the rows of a run's metrics.jsonl, oldest first; a last line that a crash cut short is left out."""
    rows = []
    for line in (Path(run_dir) / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _start_wandb(run_dir: Path, mode: str, name: str) -> Any:
    from robot_rl.errors import UserError

    try:
        import wandb
    except ImportError:
        raise UserError(
            f"metrics.wandb: '{mode}' needs the package wandb, install it with: pip install wandb"
        ) from None
    return wandb.init(
        project="robot-rl", name=name, dir=str(run_dir), mode="offline" if mode == "offline" else "online"
    )

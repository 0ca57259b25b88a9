"""Write a run's metrics: always JSON lines (the primary record) and TensorBoard, Weights & Biases on request."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from robot_rl.files import read_plain
from robot_rl.metrics.rows import NAME, Rows, read_row, to_stderr
from robot_rl.metrics.trackers import Board, WandbRun, one_line
from robot_rl.settings.checks import check_choice

WANDB_MODES = ("off", "offline", "online")
HEADER = ("iteration", "env_steps", "time_s")
"""Keys of a row that say when it was, in order."""


class MetricsWriter:
    """Context that writes one row an iteration to every place; when `write` returns, the row is in the file.

    Args:
        run_dir: The run's directory; created if it is missing.
        wandb: "off", "offline" or "online".
        name: Name of the run at Weights & Biases; its directory's name if None.
        resume: The return value of `mark` in the checkpoint that training continues from: later rows are removed. None
            keeps all whole rows.
        say: Called with a line about lost rows.
        file: metrics.jsonl, if this process has opened and locked it with `robot_rl.metrics.rows.lock`.

    Raises:
        UserError: An unknown mode, wandb requested and not installed, or another process writes this run.
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
        check_choice("metrics.wandb", wandb, WANDB_MODES)
        self.run_dir = Path(run_dir)
        self.run_dir.mkdir(parents=True, exist_ok=True)
        self._rows = Rows(self.run_dir, resume, say, file)
        self._say = say
        self._trackers: dict[str, Board | WandbRun] = {"TensorBoard": Board(self.run_dir / "tb")}
        try:
            if wandb != "off":
                self._trackers["Weights & Biases"] = WandbRun(self.run_dir, wandb, name or self.run_dir.name)
        except BaseException:
            self.close()
            raise

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write a row.

        Args:
            step: The iteration; existing rows of it or later ones are replaced.
            values: Numbers by name; HEADER names come first in the row. A number that is not finite becomes null.
        """
        row: dict[str, float | None] = {"iteration": step}
        row |= {key: values[key] for key in HEADER if key in values and key != "iteration"}
        row |= {key: _finite(value) for key, value in values.items() if key not in row}
        self._rows.append(row)
        self._each("write", row)

    def mark(self) -> dict[str, int]:
        """Return the entries of a checkpoint about the rows so far, after they are on the disk; see `Rows.mark`."""
        self._each("flush")
        return self._rows.mark()

    def close(self) -> None:
        """Flush and close everything; may be called twice."""
        self._rows.close()
        self._each("close")
        self._trackers.clear()

    def _each(self, method: str, *arguments: Any) -> None:
        """Call a method of every tracker; one that fails is not used again, and the user is informed."""
        for name, tracker in list(self._trackers.items()):
            try:
                getattr(tracker, method)(*arguments)
            except Exception as error:  # A failure of somebody else's service must not end a training.
                del self._trackers[name]
                self._say(
                    f"{name} takes no more rows ({one_line(error)}); robot-rl sync copies them from metrics.jsonl"
                )

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_metrics(run_dir: Path) -> list[dict[str, Any]]:
    """Return the rows of a run's metrics.jsonl, oldest first, of rising iterations.

    An incomplete line, as a crash leaves it, is omitted; a row of a repeated iteration replaces the earlier one and
    all after that.

    Raises:
        FileNotFoundError: The run has no metrics.
        UserError: They are not a plain file.
    """
    rows: list[dict[str, Any]] = []
    for line in read_plain(Path(run_dir) / NAME).split(b"\n"):
        if (row := read_row(line)) is not None:
            while rows and rows[-1]["iteration"] >= row["iteration"]:
                rows.pop()
            rows.append(row)
    return rows


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

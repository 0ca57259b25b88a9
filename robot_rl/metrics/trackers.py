"""TensorBoard and Weights & Biases: copies of metrics.jsonl, which never end a training.

A tracker that fails is not used again, and the user is informed once: `sync_tensorboard` and `sync_wandb` rebuild the
whole copy from metrics.jsonl at any time.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from robot_rl.errors import UserError

PROJECT = "robot-rl"
"""The project at Weights & Biases."""
MAX_ID = 128
"""Characters of an id there."""
Row = Mapping[str, float | None]


class Board:
    """TensorBoard's files in a directory, opened with the first row, since their library takes seconds to import.

    The first row replaces the content of existing files from its iteration on.
    """

    def __init__(self, directory: Path) -> None:
        self._directory, self._writer = directory, None

    def write(self, row: Row, time: float | None = None) -> None:
        """Take a row, of a time [s since 1970]; now where None."""
        step = int(row["iteration"] or 0)
        if self._writer is None:
            from torch.utils.tensorboard.writer import SummaryWriter

            purge = step if self._directory.is_dir() and any(self._directory.iterdir()) else None
            _silence_threads()
            self._writer = SummaryWriter(str(self._directory), purge_step=purge)
        for name, value in row.items():
            if value is not None and name != "iteration":
                self._writer.add_scalar(name, value, step, walltime=time)

    def flush(self) -> None:
        """Write buffered rows to the disk."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Close the file; an earlier failure to write raises here at the latest."""
        if self._writer is not None:
            self._writer.flush()  # `close` does not say it
            self._writer.close()
            self._writer = None


def _silence_threads() -> None:
    """Suppress tracebacks of TensorBoard's threads: their exception is raised again when a row is written."""
    before = threading.excepthook
    if getattr(before, "silences_tensorboard", False):
        return

    def hook(raised: threading.ExceptHookArgs) -> None:
        if not type(raised.thread).__module__.startswith("tensorboard."):
            before(raised)

    hook.silences_tensorboard = True  # type: ignore[attr-defined]
    threading.excepthook = hook


class WandbRun:
    """A run at Weights & Biases, or one on this disk to be uploaded later; a resumed training continues the same one.

    Args:
        directory: The directory of its files.
        mode: "offline" or "online".
        name: Its name; its id is the same, with dashes for characters that an id cannot contain.

    Attributes:
        start: The first iteration that it lacks; rows before it are not sent again.

    Raises:
        UserError: wandb is not installed, or the run cannot be started, for instance without a login.
    """

    def __init__(self, directory: Path, mode: str, name: str) -> None:
        try:
            import wandb
        except ImportError:
            raise UserError(f"metrics.wandb: '{mode}' needs the package wandb; pip install wandb") from None
        options: dict[str, Any] = {"project": PROJECT, "name": name, "id": wandb_id(name), "dir": str(directory)}
        if mode == "online":
            options["resume"] = "allow"  # If it is offline, no server can be asked for an existing run.
        try:
            self._run: Any = wandb.init(mode=mode, **options)  # pyright: ignore[reportArgumentType]
        except Exception as error:
            right = "log in with wandb login, or set metrics.wandb=offline and send the rows later with robot-rl sync"
            raise UserError(f"metrics.wandb: '{mode}' cannot be had ({one_line(error)}); {right}") from error
        self.start = int(getattr(self._run, "starting_step", 0) or 0)

    @property
    def directory(self) -> str:
        """Return the directory that `wandb sync` uploads."""
        return str(getattr(self._run, "sync_dir", ""))

    def write(self, row: Row) -> None:
        """Take a row."""
        step = int(row["iteration"] or 0)
        if step >= self.start:
            self._run.log({name: value for name, value in row.items() if value is not None}, step=step)

    def flush(self) -> None:
        """Do nothing: a separate process writes at once."""

    def close(self) -> None:
        """Send the rest and end the run."""
        self._run.finish()


def sync_tensorboard(run_dir: Path, rows: Iterable[Row], ended: float) -> Path:
    """Replace tb/ of a run by the content of its rows, and return it; the old one stays until the new one is complete.

    Args:
        run_dir: The run's directory.
        rows: The rows, oldest first.
        ended: Time at which the last of them was written [s since 1970]; the others' times follow from their "time_s".

    Raises:
        UserError: tb/ contains files of others than TensorBoard's writer, or is a link.
        OSError: It cannot be written; the old one is unchanged.
    """
    rows = list(rows)
    _check_board(run_dir / "tb")
    last = (rows[-1].get("time_s") if rows else None) or 0.0
    for left in run_dir.glob(".tb.*"):
        shutil.rmtree(left, ignore_errors=True)
    fresh = Path(tempfile.mkdtemp(dir=run_dir, prefix=".tb."))
    board, old, path = Board(fresh), fresh.with_name(f"{fresh.name}.old"), run_dir / "tb"
    try:
        for row in rows:
            board.write(row, ended - last + (row.get("time_s") or 0.0))
        board.close()
        fresh.chmod(0o755)
        if path.exists():
            path.rename(old)
        fresh.rename(path)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)
    return path


def _check_board(path: Path) -> None:
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise UserError(f"{path}: is a link or a file, must be a directory; remove it")
    for file in sorted(path.iterdir()) if path.is_dir() else []:
        if not file.name.startswith("events.out.tfevents."):
            raise UserError(f"{path}: holds '{file.name}', which is not TensorBoard's; move it out of there")


def sync_wandb(run_dir: Path, rows: Iterable[Row], mode: str, name: str) -> tuple[int, str]:
    """Send the rows that a run at Weights & Biases lacks after its last, or write them all to a run on this disk.

    Returns:
        How many rows were sent, and the directory that `wandb sync` uploads.
    """
    run, sent = WandbRun(run_dir, mode, name), 0
    directory = run.directory
    try:
        for row in rows:
            sent += int(row["iteration"] or 0) >= run.start
            run.write(row)
    finally:
        run.close()
    return sent, directory


def wandb_id(name: str) -> str:
    """Return the id of a run at Weights & Biases: its name, with dashes for characters that an id cannot contain."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)[-MAX_ID:]


def one_line(error: BaseException) -> str:
    """Return the first line of an error's text, or its type."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)

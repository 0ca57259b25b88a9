"""The lock of one process on a run's directory, which can undo the changes of the process there.

A command that is refused or interrupted before it learned anything leaves the directory as it found it: `RunLock.undo`
removes the files and folders that it created, and nothing else.
"""

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from robot_rl.errors import UserError
from robot_rl.files import read_plain
from robot_rl.metrics.rows import lock, to_stderr
from robot_rl.runs.run_dir import RunDir, task_folder

FILES = ("run.yaml", "metrics.jsonl")
FOLDERS = ("checkpoints", "tb", "wandb", "quarantine")
"""What a training writes into its run's directory."""
RESULTS = ("policy", "eval*.json", "video.mp4", "report.html", "metrics.jsonl.damaged*")
"""What else belongs to a run: other commands made it from the run's checkpoints and metrics."""


class RunLock:
    """The directory of a run that this process trains, locked against others until `close`.

    As a context manager it undoes its changes after an error, if nothing was learned yet.

    Args:
        run_dir: The directory, which exists.
        made: The directories that were created for it, the innermost first; `undo` removes them if they are empty.

    Raises:
        UserError: Another process trains the run, or something in it is of the wrong kind.
        OSError: The directory cannot be written.
    """

    def __init__(self, run_dir: RunDir, made: list[Path] | None = None) -> None:
        self.run_dir = run_dir
        self._note, self._is_reported = "", False
        self._made = made or []
        self._moved: list[tuple[Path, Path]] = []
        self._is_new, self._is_frozen = False, False
        self._aside: Path | None = None
        self._file: Any = None
        self._had_rows = os.path.lexists(run_dir.metrics_file)
        try:
            check_kinds(run_dir)
            self._file = lock(run_dir.metrics_file)
        except BaseException:
            self.undo()
            raise

    @classmethod
    def create(cls, root: str | Path, task: str, seed: int, run_id: str | None = None) -> "RunLock":
        """Lock the directory of a new run; an earlier run of that name is moved into its subfolder `earlier-<number>`.

        Raises:
            UserError: The directory cannot be created, another process trains the run, or it has checkpoints.
            OSError: The disk is full.
        """
        folder = Path(root) / task_folder(task)
        made = [path for path in (folder, *folder.parents) if not path.exists()]
        is_there = run_id is not None and os.path.lexists(folder / run_id)
        run_dir = RunDir.create(root, task, seed, run_id)
        created = cls(run_dir, made if is_there else [run_dir.path, *made])
        try:
            refuse_trained(run_dir)
            created._set_aside()
        except BaseException:
            created.close(undo=True)
            raise
        return created

    @classmethod
    def adopt(cls, run_dir: RunDir) -> "RunLock":
        """Lock the directory of a frozen run that begins; the files of an attempt without a checkpoint are moved aside.

        Raises:
            UserError: Another process trains the run, or it has checkpoints.
        """
        adopted = cls(run_dir)
        adopted._is_frozen = True
        try:
            refuse_trained(run_dir)
            adopted._set_aside()
        except BaseException:
            adopted.close(undo=True)
            raise
        return adopted

    def lock_again(self) -> None:
        """Lock the directory again after `close`; raise UserError where another process trains the run."""
        self._file = lock(self.run_dir.metrics_file)

    def rows_file(self) -> Any:
        """Return metrics.jsonl, open for appending, for `robot_rl.metrics.rows.Rows`; it shares this lock."""
        return os.fdopen(os.dup(self._file.fileno()), "ab", buffering=0)

    def report(self) -> None:
        """Report once the files that were moved aside."""
        if self._note and not self._is_reported:
            to_stderr(self._note)
            self._is_reported = True

    def close(self, *, undo: bool = False) -> None:
        """Release the lock, after `undo` where requested; may be called twice."""
        if undo:
            self.undo()
        if self._file is not None:
            self._file.close()

    def undo(self) -> None:
        """Remove this process's new files and restore those it moved aside, unless something was learned meanwhile."""
        if self._file is not None and not self._file.closed:
            if self._is_learned():
                return
            if self._is_new:
                for name in FOLDERS:
                    shutil.rmtree(self.run_dir.path / name, ignore_errors=True)
                if not self._is_frozen:
                    self.run_dir.config_file.unlink(missing_ok=True)
            self._put_back()
            if not self._had_rows and self.run_dir.metrics_file.stat().st_size == 0:
                self.run_dir.metrics_file.unlink()
        for folder in self._made:
            try:
                folder.rmdir()
            except OSError:
                return

    def __enter__(self) -> "RunLock":
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close(undo=error is not None)

    def _is_learned(self) -> bool:
        checkpoints = self.run_dir.checkpoints
        is_saved = checkpoints.is_dir() and any(checkpoints.iterdir())
        return self._is_new and (is_saved or self.run_dir.metrics_file.stat().st_size > 0)

    def _set_aside(self) -> None:
        """Move the files of an earlier run into a separate folder, so that no training begins in place of another."""
        rows = self.run_dir.metrics_file
        kept = {rows, self.run_dir.config_file} if self._is_frozen else {rows}
        found = [path for path in _belongings(self.run_dir) if path not in kept]
        content = read_plain(rows)
        if found or content:
            self._aside = _new_folder(self.run_dir.path)
            if content:  # Copied: the file stays, since the lock is on it.
                with (self._aside / rows.name).open("xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
            for path in found:
                path.rename(self._aside / path.name)
                self._moved.append((path, self._aside / path.name))
            if content:
                self._file.truncate(0)
            names = ", ".join(sorted([path.name for path in found] + [rows.name] * bool(content)))
            why = f"{self.run_dir.path}: has no checkpoint to continue from, so the training begins again"
            self._note = f"{why}; the earlier content ({names}) is in {self._aside.name}"
        self._is_new = True

    def _put_back(self) -> None:
        if self._aside is None:
            return
        rows = self._aside / self.run_dir.metrics_file.name
        if rows.is_file():
            content = rows.read_bytes() if self.run_dir.metrics_file.stat().st_size == 0 else b""
            while content:
                content = content[self._file.write(content) :]
            rows.unlink()
        for path, aside in self._moved:
            if not os.path.lexists(path):
                aside.rename(path)
        with contextlib.suppress(OSError):  # Something of the user's was put there meanwhile.
            self._aside.rmdir()
        if self._is_reported:
            to_stderr(
                f"{self.run_dir.path}: nothing was learned, so the content of {self._aside.name} is back in its place"
            )


def check_kinds(run_dir: RunDir) -> None:
    """Raise UserError for the first file or folder of a run that is of the wrong kind.

    A training would write through a link to outside of the run; a pipe would never answer.
    """
    root = run_dir.path.parent.parent
    if not Path(os.path.realpath(run_dir.path)).is_relative_to(os.path.realpath(root)):
        link = run_dir.path if run_dir.path.is_symlink() else run_dir.path.parent
        raise UserError(f"{link}: is a link that leads out of {root}, must be a directory in it; or link {root} itself")
    for name in (*FILES, *FOLDERS):
        path = run_dir.path / name
        right, is_right = ("a directory", path.is_dir()) if name in FOLDERS else ("a plain file", path.is_file())
        if path.is_symlink():
            raise UserError(f"{path}: is a link, must be {right}")
        if os.path.lexists(path) and not is_right:
            raise UserError(f"{path}: must be {right}, is something else")


def is_trained(run_dir: RunDir) -> bool:
    """Return whether a run has checkpoints, damaged or not, or one that was just being replaced."""
    from robot_rl.learn.checkpoints.checkpoint import REPLACED, list_checkpoints

    return bool(list_checkpoints(run_dir.path)) or any(run_dir.checkpoints.glob(f".[0-9]*{REPLACED}"))


def refuse_trained(run_dir: RunDir) -> None:
    """Raise UserError if a run that is to begin has checkpoints."""
    if not is_trained(run_dir):
        return
    why = f"{run_dir.path}: has checkpoints"
    if run_dir.config_file.is_file():
        raise UserError(f"{why} that another process wrote meanwhile; repeat the command to continue from them")
    raise UserError(f"{why} but no run.yaml, so it cannot continue; put run.yaml back, or choose another run_id=")


def _belongings(run_dir: RunDir) -> Iterator[Path]:
    """Return the existing files and folders of a run; all others in its directory are the user's."""
    for name in (*FILES, *FOLDERS):
        if os.path.lexists(run_dir.path / name):
            yield run_dir.path / name
    for pattern in RESULTS:
        yield from sorted(run_dir.path.glob(pattern))


def _new_folder(parent: Path) -> Path:
    for number in itertools.count(1):
        with contextlib.suppress(FileExistsError):
            (folder := parent / f"earlier-{number}").mkdir()
            return folder
    raise AssertionError

"""Checkpoints written in the background: the training stops for a copy, and a thread writes it to the disk.

If several processes train together, each writes its own worlds into the temporary directory of the first, which must be
on a file system that all of them see. The first waits for the others' files before it renames the checkpoint.
"""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from robot_rl.errors import NotRetryableError, PeerError, UserError
from robot_rl.learn.checkpoints.checkpoint import (
    drop_replay,
    list_checkpoints,
    prune,
    replay_file,
    replay_files,
    save_checkpoint,
    stage,
    tidy,
    verify_checkpoint,
    worlds_file,
    write_tensors,
)
from robot_rl.learn.checkpoints.worlds import ENV, LIVE
from robot_rl.learn.health import check_finite
from robot_rl.learn.ranks import ProcessGroup

GRACE_S = 5.0
"""How long the files of other processes are waited for once it is known that one of them failed [s]."""
POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class Package:
    """The contents of a checkpoint.

    Attributes:
        path: the checkpoint's directory.
        tensors: networks and learner, of which the first process's are kept.
        meta: its description.
        worlds: this process's worlds, and its other tensors that differ from process to process.
        replay: this process's replay memory; empty for a learner without one.
    """

    path: Path
    tensors: Mapping[str, Tensor]
    meta: Mapping[str, Any]
    worlds: Mapping[str, Tensor]
    replay: Mapping[str, Tensor] = field(default_factory=dict)

    def copied(self, into: Package | None = None) -> Package:
        """Return a copy in the CPU's memory, in the arrays of an earlier copy if these fit."""
        had: Mapping[str, Tensor] = {} if into is None else {**into.tensors, **into.worlds, **into.replay}
        parts = {part: copied(getattr(self, part), had) for part in ("tensors", "worlds", "replay")}
        return replace(self, **parts)


class Saver:
    """Writes the checkpoints of a run, one at a time; all processes save at the same time.

    At most `interval` iterations and `interval_s` [s] (0: any) are between two of them; `keep` (0: all) stay. The
    replay memory stays in the newest one and in the one before, from which a run continues if the newest is damaged.

    Attributes:
        durable: the newest checkpoint that is on the disk; None before the first.
        loaded: the checkpoint that the run continues from; None for a new run.
    """

    def __init__(self, ranks: ProcessGroup, keep: int, interval: int = 1, interval_s: float = 0.0) -> None:
        self.durable: Path | None = None
        self.loaded: Path | None = None
        self._ranks, self._keep = ranks, keep
        self._interval, self._interval_s, self._since = interval, interval_s, time.monotonic()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._abandoned_at = float("inf")
        self._is_tidy = False

    def is_due(self, iteration: int) -> bool:
        """Return whether the state after an iteration is to be saved; the first process decides for all.

        The time interval does not wait for a checkpoint that is still being written.
        """
        is_free = self._thread is None or not self._thread.is_alive()
        is_late = 0.0 < self._interval_s <= time.monotonic() - self._since
        return iteration % self._interval == 0 or (is_late and is_free)

    def start(self, package: Package) -> None:
        """Begin to write a checkpoint; called by all processes. Its contents are copied before this returns.

        Raises the error of the one before, as `wait`, and OSError if this one cannot be begun.
        """
        self.wait()
        self._since = time.monotonic()
        self._abandoned_at = float("inf")
        path, meta = package.path, package.meta
        staging = Path(self._ranks.first(lambda: str(self._stage(path))))
        own, replay = copied(package.worlds), copied(package.replay)
        work: Callable[[], None]
        if self._ranks.is_first:
            kept = copied(package.tensors)
            others = functools.partial(self._collect, staging) if self._ranks.size > 1 else None

            def work() -> None:
                try:
                    check_finite(kept)
                    check_finite(learned(own) | replay)
                except NotRetryableError:
                    shutil.rmtree(staging, ignore_errors=True)
                    raise
                parts = {"worlds": own or None, "replay": replay or None}
                save_checkpoint(path, kept, meta, **parts, staging=staging, others=others)
                before, self.durable = self.durable or self.loaded, path
                prune(path, self._keep)
                if before is not None:
                    drop_replays_before(path, besides=before)
        else:

            def work() -> None:
                check_finite(learned(own) | replay)
                _write_part(staging, self._ranks.rank, own, replay)
                self.durable = path

        self._thread = threading.Thread(target=self._run, args=(work,), name="robot-rl-save")
        self._thread.start()

    def check(self) -> None:
        """Raise the error of a finished checkpoint, if there was one; of several processes `wait` does that."""
        if self._ranks.size == 1 and self._thread is not None and not self._thread.is_alive():
            self.wait()

    def wait(self) -> None:
        """Return when the checkpoint that was begun is on the disk; called by all processes.

        Raises:
            OSError: it could not be written.
            NotRetryableError: it held a number that is not finite; nothing was written.
            PeerError: another process could not write its part.
        """
        if self._thread is None:
            return
        if not self._ranks.is_first:
            self._thread.join()
        failed = self._ranks.gather(not self._ranks.is_first and self._error is not None)
        if any(failed):
            self._abandoned_at = 0.0
        self._thread.join()
        self._thread, error, self._error = None, self._error, None
        lines = self._ranks.gather("" if error is None else f"{type(error).__name__}: {error}")
        if error is not None and not isinstance(error, PeerError):
            raise error
        for rank, line in enumerate(lines):
            if line:
                raise PeerError(f"process {rank} could not save ({line})")

    def conclude(self) -> None:
        """Leave the replay memory of a finished training in its newest checkpoint only, if that one can be read."""
        if self._ranks.is_first and self.durable is not None:
            drop_replays_before(self.durable, is_checked=False)

    def finish(self) -> None:
        """Wait for the checkpoint that was begun, when an error ends the training; raises nothing."""
        self._abandoned_at = time.monotonic() + GRACE_S
        if self._thread is not None:
            self._thread.join()

    def _stage(self, path: Path) -> Path:
        if not self._is_tidy:
            tidy(path.parent.parent)
            self._is_tidy = True
        return stage(path)

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # Raised in the main thread.
            self._error = error

    def _collect(self, staging: Path) -> dict[str, str]:
        """Wait for the other processes' files, and return their checksums by name."""
        sums = {}
        for rank in range(1, self._ranks.size):
            done = staging / _done_name(rank)
            while not done.exists():
                if time.monotonic() > self._abandoned_at:
                    raise PeerError(f"process {rank} did not save its worlds")
                time.sleep(POLL_S)
            sums |= json.loads(done.read_text())
            done.unlink()
        return sums


def copied(tensors: Mapping[str, Tensor], into: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """Return copies in the CPU's memory, in the arrays of `into` by the same names if these fit."""
    copies = {}
    for name, tensor in tensors.items():
        had = None if into is None else into.get(name)
        fits = had is not None and (had.shape, had.dtype) == (tensor.shape, tensor.dtype)
        copies[name] = had.copy_(tensor.detach()) if fits else tensor.detach().to("cpu", copy=True)  # type: ignore[union-attr]
    return copies


def learned(worlds: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a process's part that must be finite: all that belong to no world.

    A world that breaks in the last step of an iteration may hold numbers that are not finite (ENV, LIVE) until it is
    reset in the next one; the quarantine counts it, and the training continues.
    """
    return {name: tensor for name, tensor in worlds.items() if not name.startswith((ENV, LIVE))}


def _done_name(rank: int) -> str:
    return f"{worlds_file(rank)}.sha256"


def drop_replays_before(newest: Path, *, besides: Path | None = None, is_checked: bool = True) -> None:
    """Remove the replay memory of all checkpoints of a run that are older than one of them.

    One that is damaged stays as it is, and so do all without room for a description: the next call removes them.

    Args:
        newest: the checkpoint.
        besides: an older one that keeps its memory.
        is_checked: whether `newest` is known to be whole; else it is read, and if it is damaged nothing is removed.
    """
    older = [path for path in list_checkpoints(newest.parent.parent) if int(path.name) < int(newest.name)]
    older = [path for path in older if path != besides and replay_files(path)]
    with contextlib.suppress(OSError, UserError):
        if older and not is_checked:
            verify_checkpoint(newest)
        for path in older:
            with contextlib.suppress(UserError):
                drop_replay(path)


def _write_part(staging: Path, rank: int, worlds: Mapping[str, Tensor], replay: Mapping[str, Tensor]) -> None:
    """Write a process's files, then their checksums, with a name that marks the files as whole."""
    found = {worlds_file(rank): write_tensors(staging / worlds_file(rank), worlds)}
    if replay:
        found[replay_file(rank)] = write_tensors(staging / replay_file(rank), replay)
    part = staging / f".{_done_name(rank)}"
    part.write_text(json.dumps(found))
    part.rename(staging / _done_name(rank))

"""The fault of a full disk: a small file system in memory that is full while a run writes to it.

It is mounted in a user and a mount namespace, which end with the process. Without permission for that, the size of the
files that the training may write is limited, which has the same effect.

    python -m robot_rl.drill.full_disk <request.json> <result.json>

is the process in the namespaces.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from robot_rl.drill.compare import rows_of
from robot_rl.drill.copies import Outcome, RunCopies, recover
from robot_rl.drill.process import DrillError, name_code
from robot_rl.errors import ExitCode
from robot_rl.learn.checkpoints.checkpoint import latest_checkpoint
from robot_rl.runs.run_dir import RunDir

APART = ("unshare", "--user", "--map-root-user", "--mount")
"""Runs a command in its own namespaces, where it may mount; needs no privileges on most systems."""
SPARE_BYTES = 8 << 20
ROOM = 8.0
"""Room on the small disk in addition to the copy [checkpoints]."""
LEFT = 1.5
"""Room while it is filled up [checkpoints]."""


def full_disk(copies: RunCopies, outcome: Outcome) -> None:
    """The disk is full while a checkpoint is written, and has room again when the run continues."""
    copies.reference()
    if not can_mount(copies.work):
        limited(copies, outcome)
        return
    request, result = copies.work / "request.json", copies.work / "result.json"
    request.write_text(json.dumps(_plain(copies)))
    words = [*APART, sys.executable, "-m", "robot_rl.drill.full_disk", str(request), str(result)]
    done = subprocess.run(words, check=False)
    if done.returncode != 0 or not result.is_file():
        raise DrillError(f"the part of the drill on a disk of its own ended with {name_code(done.returncode)}")
    for name, value in json.loads(result.read_text()).items():
        setattr(outcome, name, value)


def can_mount(folder: Path) -> bool:
    """Return whether a process in its own namespaces can mount a small file system on a folder."""
    try:
        words = [*APART, "mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
        return subprocess.run(words, check=False, capture_output=True, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def small(copies: RunCopies, outcome: Outcome) -> None:
    """Mount the small disk, fill it up, train on it, make room, and continue."""
    size = _bytes_under(latest_checkpoint(copies.reference().path))
    whole = _bytes_under(copies.undisturbed.path) + SPARE_BYTES + int(ROOM * size)
    disk = copies.work / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={whole}", "none", str(disk)], check=True)
    run = copies.copy("full", disk)
    ballast, space = disk / "ballast", os.statvfs(disk)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, space.f_bavail * space.f_frsize - int(LEFT * size)))
    outcome.injected = f"a disk of {whole >> 20} MB with room for {LEFT:g} checkpoints; room is made later"
    stop(copies, run, outcome)
    ballast.unlink()
    recover(copies, run, outcome, rows_of(run.path), most_lost=2 * copies.save_interval)


def limited(copies: RunCopies, outcome: Outcome) -> None:
    """Do the same without a disk: no file may be as large as the largest of a checkpoint."""
    run = copies.copy("full_disk")
    blocks = (max(file.stat().st_size for file in latest_checkpoint(copies.reference().path).iterdir()) - 1) // 1024
    outcome.injected = f"files end at {blocks} blocks, since no disk can be mounted here; later they do not"
    stop(copies, run, outcome, file_blocks=blocks)
    recover(copies, run, outcome, rows_of(run.path), most_lost=2 * copies.save_interval)


def stop(copies: RunCopies, run: RunDir, outcome: Outcome, **options: Any) -> None:
    """Train until there is no more room, and check how that ends."""
    with copies.train(run, **options) as training:
        code = training.wait(copies.patience_s)
    outcome.noticed.append(f"{name_code(code)}: {training.lines[-1]}")
    outcome.expect(code == ExitCode.DISK_FULL, f"ended with {name_code(code)}, must be {ExitCode.DISK_FULL:d}")
    parts = [path.name for path in run.checkpoints.iterdir() if path.name.startswith(".")]
    outcome.expect(not parts, f"parts of a checkpoint are left: {', '.join(parts)}")


def main(request: str, result: str) -> None:
    """Run the drill in this process, which has its own namespaces."""
    plain = json.loads(Path(request).read_text())
    paths = {name: Path(plain.pop(name)) for name in ("checkpoint", "work")}
    copies = RunCopies(origin=RunDir(Path(plain.pop("origin"))), **paths, **plain)
    outcome = Outcome(fault="full_disk")
    try:
        small(copies, outcome)
    except DrillError as error:
        outcome.wrong.append(str(error))
    Path(result).write_text(json.dumps(dataclasses.asdict(outcome)))


def _plain(copies: RunCopies) -> dict[str, Any]:
    fields = {name.name: getattr(copies, name.name) for name in dataclasses.fields(copies)}
    return fields | {"origin": str(copies.origin.path), "checkpoint": str(copies.checkpoint), "work": str(copies.work)}


def _bytes_under(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


if __name__ == "__main__":
    main(*sys.argv[1:])

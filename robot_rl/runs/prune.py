"""The parts of finished runs that nothing needs: old checkpoints, replay memories, remains of killed processes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from robot_rl.errors import UserError
from robot_rl.files import read_plain
from robot_rl.learn.checkpoints.checkpoint import (
    drop_replay,
    list_checkpoints,
    remove_checkpoint,
    replay_files,
    tidy,
    verify_checkpoint,
)
from robot_rl.runs.run_dir import EVALUATIONS, RunDir
from robot_rl.runs.run_index import DONE, RunRow
from robot_rl.runs.run_lock import RunLock

USES = ("teacher.run", "reference.run")
"""Settings of a run that name a checkpoint of another run, which its resumption needs."""
MAX_LINES = 2**26


@dataclass(frozen=True, kw_only=True, slots=True)
class Surplus:
    """The parts of a run that can be removed.

    Attributes:
        run_dir: the run.
        old: checkpoints.
        memories: checkpoints that stay, but without their replay memory.
        remains: temporary folders of killed processes.
        kept: why each other checkpoint stays.
        size: bytes of all parts that can be removed.
    """

    run_dir: RunDir
    old: tuple[Path, ...]
    memories: tuple[Path, ...]
    remains: tuple[Path, ...]
    kept: Mapping[Path, str]
    size: int


def find_surplus(rows: Sequence[RunRow], every: Iterable[RunRow], keep: int = 1) -> list[Surplus]:
    """Return the surplus of the finished runs among `rows`; runs without any are not in it.

    Args:
        rows: the runs that may be pruned.
        every: all runs of the root, whose settings may name checkpoints of others.
        keep: how many of the newest checkpoints of each stay.
    """
    users = {str(row.settings[key]): row.run_id for row in every for key in USES if row.settings.get(key)}
    found = [_surplus(row, users, keep) for row in rows if row.state == DONE]
    return [one for one in found if one.size]


def remove(surplus: Surplus) -> None:
    """Remove the surplus of a run, while no other process trains it.

    Raises:
        UserError: another process trains the run, it changed meanwhile, or its newest checkpoint is damaged; nothing is
            removed then.
    """
    run_dir = surplus.run_dir
    with RunLock(run_dir):
        newest = list_checkpoints(run_dir.path)[-1]
        if newest not in surplus.kept:
            raise UserError(f"{run_dir.path}: was trained meanwhile; give the same command again")
        verify_checkpoint(newest)
        for path in surplus.old:
            remove_checkpoint(path)
        for path in surplus.memories:
            drop_replay(path)
        tidy(run_dir.path)


def _surplus(row: RunRow, users: Mapping[str, str], keep: int) -> Surplus:
    run_dir = RunDir(row.path)
    checkpoints = [path for path in list_checkpoints(row.path) if not path.is_symlink()]
    kept = {path: f"uses it: {users[str(path.resolve())]}" for path in checkpoints if str(path.resolve()) in users}
    exported = _exported(run_dir)
    kept |= {path: "exported" for path in checkpoints if int(path.name) in exported}
    kept |= dict.fromkeys(_best(row, checkpoints), "best evaluation")
    kept |= dict.fromkeys(checkpoints[-max(keep, 1) :], "newest")
    old = tuple(path for path in checkpoints if path not in kept)
    memories = tuple(path for path in kept if replay_files(path))
    remains = tuple(path for path in run_dir.checkpoints.glob(".[0-9]*-*") if path.is_dir() and not path.is_symlink())
    parts = [*old, *remains, *(file for path in memories for file in replay_files(path))]
    return Surplus(run_dir=run_dir, old=old, memories=memories, remains=remains, kept=kept, size=sum(map(_size, parts)))


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder."""
    if not path.is_dir():
        return path.lstat().st_size
    return sum(os.lstat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(path) for name in names)


def _exported(run_dir: RunDir) -> set[int]:
    """Return the iterations of the bundles that were exported of a run."""
    found = set()
    for path in run_dir.policy.glob("**/contract.json"):
        try:
            found.add(int(json.loads(read_plain(path))["training"]["iteration"]))
        except (OSError, UserError, ValueError, LookupError, TypeError):  # A damaged bundle is exported again.
            continue
    return found


def _best(row: RunRow, checkpoints: Sequence[Path]) -> list[Path]:
    """Return the checkpoint of the best evaluation while the run was trained, in a list; empty without evaluations.

    It is the best by the metric that the task is solved by, else by the return.
    """
    name = row.solved[0].rpartition("/")[2] if row.solved else "return"
    by_iteration = {int(path.name): path for path in checkpoints}
    values = {}
    try:
        lines = read_plain(row.path / EVALUATIONS, MAX_LINES).splitlines()
    except (OSError, UserError):
        return []
    for line in lines:
        try:
            found = json.loads(line)
            iteration, value = int(found["iteration"]), float(found["metrics"][name])
        except (ValueError, LookupError, TypeError):  # The last line of a killed process.
            continue
        if iteration in by_iteration:
            values[iteration] = value
    if not values:
        return []
    choose = min if row.solved and _is_smaller_better(row.path, name) else max
    return [by_iteration[choose(values, key=lambda iteration: values[iteration])]]


def _is_smaller_better(path: Path, name: str) -> bool:
    """Return whether smaller values of a task's own metric are better, as run.yaml says."""
    try:
        metrics = RunDir(path).read_config().get("metrics")
    except (OSError, UserError):
        return True
    rows = [row for key, row in metrics.items() if key.rpartition("/")[2] == name] if isinstance(metrics, dict) else []
    return not rows or not isinstance(rows[0], dict) or rows[0].get("better") != "larger"

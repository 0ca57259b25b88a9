"""Write TensorBoard's and Weights & Biases' copy of a run again, from its metrics.jsonl.

usage: robot-rl sync [<run id>] [key=value ...]

{Options}
  metrics.wandb=     offline: a whole run on this disk, to be uploaded with wandb sync
                     online: send the rows that Weights & Biases lacks; by default as the run was trained, else offline

metrics.jsonl contains every iteration once, however often the run was killed and resumed; its copies may have gaps.
Training must be over, or stopped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.cli.options import RunOptions, option, read
from robot_rl.errors import UnknownKeyError, UserError, suggest

if TYPE_CHECKING:
    from robot_rl.runs.run_dir import RunDir

TARGETS = ("tensorboard", "wandb")
MODES = ("offline", "online")


@dataclass(kw_only=True, slots=True)
class Options(RunOptions):
    """Options of robot-rl sync."""

    run: str = option("latest", "the run: its id, latest or <task>/latest; may be given as the first word")
    to: str = option("", "tensorboard, wandb or both with a comma; by default those that the run was trained with")


def run(arguments: Sequence[str]) -> int:
    """Rebuild the requested copies, and print the result."""
    from robot_rl.metrics.rows import lock
    from robot_rl.metrics.trackers import sync_tensorboard, sync_wandb
    from robot_rl.metrics.writers import read_metrics

    options, changes = read(Options, arguments, first="run")
    run_dir = options.find_run()
    trained = _trained_with(run_dir)
    mode = _mode(changes, trained)
    targets = _targets(options.to, wants_wandb="metrics.wandb" in changes or trained != "off")
    if not run_dir.metrics_file.is_file():
        raise UserError("run", run_dir.run_id, f"has no {run_dir.metrics_file.name} yet, there is nothing to copy")
    with lock(run_dir.metrics_file):
        rows = read_metrics(run_dir.path)
        if not rows:
            raise UserError(f"{run_dir.metrics_file}: contains no whole row, there is nothing to copy")
        _report_damaged(run_dir.metrics_file, len(rows))
        if "tensorboard" in targets:
            path = sync_tensorboard(run_dir.path, rows, run_dir.metrics_file.stat().st_mtime)
            print(f"TensorBoard: {len(rows)} rows in {path}")
        if "wandb" in targets:
            sent, directory = sync_wandb(run_dir.path, rows, mode, f"{run_dir.task}/{run_dir.run_id}")
            there = f"upload with: wandb sync {directory}" if mode == "offline" else f"{len(rows) - sent} were there"
            print(f"Weights & Biases: {sent} of {len(rows)} rows, {mode}; {there}")
    return 0


def _trained_with(run_dir: "RunDir") -> str:
    """Return the mode of Weights & Biases that the run was trained with; "off" where run.yaml does not specify it."""
    try:
        metrics = run_dir.read_config()["config"].get("metrics")
    except UserError:  # Its metrics can be copied all the same.
        return "off"
    mode = metrics.get("wandb") if isinstance(metrics, dict) else None
    return mode if mode in MODES else "off"


def _mode(changes: dict[str, Any], trained: str) -> str:
    for key in changes:
        if key != "metrics.wandb":
            raise UnknownKeyError(key, suggest(key, ("run", "root", "to", "metrics.wandb")))
    mode = changes.get("metrics.wandb", trained if trained in MODES else "offline")
    mode = "off" if mode is False else mode  # As YAML reads the word.
    if mode not in MODES:
        raise UserError("metrics.wandb", mode, "must be offline or online")
    return mode


def _targets(text: str, *, wants_wandb: bool) -> tuple[str, ...]:
    if not text:
        return TARGETS if wants_wandb else TARGETS[:1]
    names = tuple(text.split(","))
    for name in names:
        if name not in TARGETS:
            raise UserError("to", text, suggest(name, TARGETS))
    return names


def _report_damaged(path: Path, rows: int) -> None:
    lines = sum(1 for line in path.read_bytes().split(b"\n") if line.strip())
    if lines > rows:
        print(f"{path}: {lines - rows} of {lines} lines are damaged or were replaced by later ones, and are omitted")

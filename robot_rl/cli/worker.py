"""Train as one of the processes of a frozen run; launchers and schedulers start it.

usage: robot-rl worker <run directory> [key=value ...]

{Options}

The directory's run.yaml has all settings (`robot-rl train ... launcher=<launcher>` writes it). The run begins if it
lacks a checkpoint, and else continues from its newest one, so that the same command may be given again after
anything; if all iterations are done, it ends with 0. Several processes find each other by RANK, WORLD_SIZE,
LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun sets them. docs/recovery.md lists the exit codes.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from robot_rl.cli.options import option, read_all
from robot_rl.errors import UserError


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl worker."""

    run: str = option("", "the run's directory, <root>/<task>/<run id>; may be given as the first word")
    trust: bool = option(False, "import the module that the run's settings name, if the run was not made here")
    allow_resize: bool = option(False, "with another number of processes: divide the run's worlds again")
    fresh_worlds: bool = option(False, "reset every world, if the task was changed so that the old ones do not fit")


def run(arguments: Sequence[str]) -> int:
    """Train."""
    options = read_all(Options, arguments, first="run")
    if not options.run:
        raise UserError("run: is missing; name the directory of a run, such as robot-rl worker runs/cartpole/mine")
    path = Path(options.run)
    if not (path / "run.yaml").exists():
        raise UserError("run", options.run, "lacks run.yaml", "robot-rl train ... launcher= makes a run")
    from robot_rl.cluster.launchers import exit_codes
    from robot_rl.metrics.rows import to_stderr
    from robot_rl.runs.run_dir import RunDir
    from robot_rl.runs.training import train_frozen

    exit_codes.begin()
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if restarts != "0" and os.environ.get("RANK", "0") == "0":
        to_stderr(f"a process was lost; all start again from the newest checkpoint (restart {restarts})")
    train_frozen(
        RunDir(path), trust=options.trust, allow_resize=options.allow_resize, fresh_worlds=options.fresh_worlds
    )
    return 0

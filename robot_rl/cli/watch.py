"""Follow a run that another process trains, here or on a machine that shares its directory.

usage: robot-rl watch [RUN] [key=value ...]

{Options}

  robot-rl watch                  the newest run
  robot-rl watch go2_flat/latest

It reads the run's files and shows the same as its own terminal, until the last iteration, or until nobody trains it.
Ctrl-C ends the watching, not the training.
"""

import contextlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from robot_rl.cli.options import RunOptions, read_all
from robot_rl.errors import UserError


@dataclass(kw_only=True, slots=True)
class Options(RunOptions):
    """Options of robot-rl watch."""


def run(arguments: Sequence[str]) -> int:
    """Show the rows as they come."""
    from robot_rl.cluster.watch import follow
    from robot_rl.metrics.description import read_solved
    from robot_rl.runs.progress import Progress
    from robot_rl.runs.run_index import DAMAGED, read_run
    from robot_rl.view.report.data import read_descriptions

    options = read_all(Options, arguments, first="run")
    run_dir = options.find_run()
    record = run_dir.read_config()
    last = record["config"].get("max_iterations")
    if not isinstance(last, int):
        raise UserError(f"{run_dir.config_file}: max_iterations={last}: must be a whole number")
    print(f"{run_dir.task}: {last} iterations -> {run_dir.path}", flush=True)
    done, metrics = 0, read_descriptions(record.get("metrics"))
    with (
        contextlib.suppress(KeyboardInterrupt),
        Progress(last, metrics=metrics, solved=read_solved(record.get("solved"))) as progress,
    ):
        for row in follow(run_dir, last):
            done = row["iteration"]
            progress(row)
    if done >= last:
        print(f"done: {run_dir.path}")
    elif not done and read_run(run_dir).state == DAMAGED:
        raise UserError(f"{run_dir.metrics_file}: damaged, no row can be read; robot-rl resume {run_dir.words} goes on")
    elif not done:
        print(f"not begun yet; robot-rl worker {shlex.quote(str(run_dir.path))} begins it where nobody trains it")
    else:
        print(f"after {done} of {last} iterations; robot-rl resume {run_dir.words} continues it if nobody trains it")
    return 0

"""Continue a run that was interrupted, or train it for more iterations.

usage: robot-rl resume <run id> [key=value ...]

{Options}
  max_iterations=      train to this many iterations in all; any other setting of the run can also be changed

latest is the newest run, <task>/latest the newest of a task. Networks, optimizer, normalizers, random streams, counters
and every world are those of the checkpoint: on a CPU the run is, bit for bit, the one that was never interrupted. Rows
of metrics.jsonl after the checkpoint are removed.

launcher=<name> lets a launcher start the processes, as for robot-rl train.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from robot_rl.cli.options import TaskRunOptions, option, read
from robot_rl.errors import NotRetryableError, UserError

if TYPE_CHECKING:
    from robot_rl.cluster.launchers.launcher import Launcher
    from robot_rl.runs.run_dir import RunDir


@dataclass(kw_only=True, slots=True)
class Options(TaskRunOptions):
    """Options of robot-rl resume."""

    run: str = option("", "the run, which may be given as only <run id>")
    allow_resize: bool = option(False, "with another num_envs= or number of processes: divide the run's worlds again")
    fresh_worlds: bool = option(False, "reset every world, if the task was changed so that the old ones do not fit")


def run(arguments: Sequence[str]) -> int:
    """Continue a run."""
    from robot_rl.cli.launching import read_launcher_words

    words, launcher = read_launcher_words(arguments)
    options, changes = read(Options, words, first="run", every=True)
    run_dir = options.find_run()
    if run_dir.read_config().get("command", [])[1:2] == ["adapt"]:
        line = f"run={run_dir.run_id}: is an adaptation, and its robot is gone"
        raise UserError(f"{line}; begin another from its newest policy: robot-rl adapt run={run_dir.words}")
    for key in ("task", "seed", "init_from", "run_id"):
        if key in changes:
            raise UserError(key, changes[key], "cannot be changed in a run", "start a new run with init_from=")
    from robot_rl.learn.ranks import make_process_group
    from robot_rl.runs.inputs import resolve_inputs
    from robot_rl.runs.run_lock import is_trained
    from robot_rl.runs.settings import load
    from robot_rl.runs.training import resume

    if launcher is not None and not launcher.is_this_process:
        return _launch(run_dir, changes, options, launcher)
    if not is_trained(run_dir):
        right = f"robot-rl worker {shlex.quote(str(run_dir.path))} begins it"
        raise NotRetryableError("run", run_dir.run_id, "has no checkpoint to continue from", right)
    cfg = resolve_inputs(load(run_dir, changes, trust=options.trust))
    ranks = make_process_group(cfg.device)
    resume(run_dir, cfg, ranks, allow_resize=options.allow_resize, fresh_worlds=options.fresh_worlds)
    return 0


def _launch(run_dir: "RunDir", changes: dict[str, Any], options: Options, launcher: "Launcher") -> int:
    """Let a launcher start the processes that continue a run."""
    from robot_rl.cluster.frozen import resume_with

    names = ("allow_resize", "fresh_worlds", "trust")
    words = [f"{name}=true" for name in names if getattr(options, name)]
    launcher.prepare()
    launcher.check()
    return resume_with(run_dir, changes, launcher, words)

"""Continue a run that was interrupted, or train it for more iterations.

usage: robot-rl resume <run id> [key=value ...]

{Options}
  max_iterations=      train to this many iterations in all; any other setting of the run can be changed, too

latest is the newest run, <task>/latest the newest of a task. Networks, optimizer, normalizers, random streams, counters
and every world are those of the checkpoint: on a CPU the run is, bit for bit, the one that was never interrupted. Rows
of metrics.jsonl after the checkpoint are removed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from robot_rl.cli.options import TaskRunOptions, option, read
from robot_rl.errors import UserError


@dataclass(kw_only=True, slots=True)
class Options(TaskRunOptions):
    """Options of robot-rl resume."""

    run: str = option("", "the run, which may be given as only <run id>")
    allow_resize: bool = option(False, "with another num_envs= or number of processes: divide the run's worlds again")
    fresh_worlds: bool = option(False, "reset every world, where the task was changed so that the old ones do not fit")


def run(arguments: Sequence[str]) -> int:
    """Continue a run."""
    from robot_rl.experiment.inputs import resolve_inputs
    from robot_rl.experiment.settings import load
    from robot_rl.experiment.training import go_on
    from robot_rl.learn.ranks import make_ranks

    options, changes = read(Options, arguments, first="run", every=True)
    run_dir = options.find_run()
    for key in ("task", "seed", "init_from", "run_id"):
        if key in changes:
            raise UserError(f"{key}={changes[key]}: cannot be changed in a run; start a new run with init_from=")
    cfg = resolve_inputs(load(run_dir, changes, trust=options.trust))
    ranks = make_ranks(cfg.device)
    go_on(run_dir, cfg, ranks, allow_resize=options.allow_resize, fresh_worlds=options.fresh_worlds)
    return 0

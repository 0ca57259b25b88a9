"""robot-rl resume: goes on with a run, from its newest checkpoint."""

import contextlib
import sys
from collections.abc import Sequence
from typing import Any

from robot_rl.errors import UserError

HELP = """\
robot-rl resume: go on with a run from its newest checkpoint

usage: robot-rl resume <run id> [key=value ...]

  <run id>             or run=<run id>; latest is the newest run, <task>/latest the newest of a task
  root=runs            where runs are
  max_iterations=      go on to this many iterations in all; any other setting of the run can be changed, too

Weights, optimizer, normalizers, random streams and counters are those of the checkpoint. Under torchrun several
processes go on with the run, as many as before or not.
"""


def run(arguments: Sequence[str]) -> int:
    """Goes on with a run."""
    from robot_rl.cli import options
    from robot_rl.cli.guides import with_guides
    from robot_rl.cli.settings import load
    from robot_rl.cli.train import learn, say_what_next
    from robot_rl.learn.checkpoint import latest_checkpoint
    from robot_rl.learn.ranks import make_ranks
    from robot_rl.run_dir import RunDir

    words = [f"run={word}" if index == 0 and "=" not in word else word for index, word in enumerate(arguments)]
    values = options.split(words)
    run_dir = RunDir.find(values.pop("run", ""), values.pop("root", "runs"))
    for key in ("task", "seed", "init_from"):
        if key in values:
            raise UserError(f"{key}={values[key]}: is the run's own, it cannot change; start a new run with init_from=")
    cfg = with_guides(load(run_dir, {key: options.parse_value(text, key) for key, text in values.items()}))
    checkpoint = latest_checkpoint(run_dir.path)

    def prepare(runner: Any) -> None:
        runner.load(checkpoint)
        last = cfg.learner.max_iterations
        if runner.iteration >= last:
            raise UserError(
                f"max_iterations={last}: run {run_dir.run_id} has done {runner.iteration} iterations; "
                f"give more, such as max_iterations={runner.iteration * 2}"
            )
        ranks.first(lambda: run_dir.note_resumed(cfg.tree, sys.argv, runner.iteration))

    ranks = make_ranks(cfg.device)
    with contextlib.closing(cfg.make_env(ranks=ranks)) as env:
        learn(env, cfg, run_dir, prepare, ranks)
    if ranks.is_first:
        say_what_next(run_dir, cfg)
    return 0

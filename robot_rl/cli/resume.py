"""robot-rl resume: goes on with a run, from its newest checkpoint that is whole."""

import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.cli.agreement import FIXED, changes, check_settings, is_same
from robot_rl.cli.tree import leaves
from robot_rl.errors import GiveUpError, UserError

if TYPE_CHECKING:
    from robot_rl.cli.settings import TrainCfg
    from robot_rl.learn.ranks import Ranks
    from robot_rl.run_dir import RunDir

HELP = """\
robot-rl resume: go on with a run from its newest checkpoint that is whole

usage: robot-rl resume <run id> [key=value ...]

  <run id>             or run=<run id>; latest is the newest run, <task>/latest the newest of a task
  root=runs            where runs are
  max_iterations=      go on to this many iterations in all; any other setting of the run can be changed, too
  allow_resize=false   with another num_envs=, or another number of processes: divide the run's worlds anew
  fresh_worlds=false   let every world begin anew, where the task was changed so that the old ones do not fit
  trust=false          import the module that the run's task names, where the run was not made here

Networks, optimizer, normalizers, random streams, counters and every world are those of the checkpoint: on a CPU the
run is, bit for bit, the one that was never interrupted. Rows of metrics.jsonl behind the checkpoint are cut off.
"""

FREE = (
    *("root", "run_id", "num_threads", "max_iterations", "metrics.wandb"),
    *("save_interval", "save_interval_s", "keep_checkpoints", "notice_s", "max_quarantined"),
)
"""Settings that may change when a run goes on by `train` with its id: none changes what is learned."""
HOW = ("allow_resize", "fresh_worlds")


def run(arguments: Sequence[str]) -> int:
    """Goes on with a run."""
    from robot_rl.cli import options
    from robot_rl.cli.guides import with_guides
    from robot_rl.cli.settings import load
    from robot_rl.learn.ranks import make_ranks
    from robot_rl.run_dir import RunDir

    words = [f"run={word}" if index == 0 and "=" not in word else word for index, word in enumerate(arguments)]
    values = options.split(words)
    run_dir = RunDir.find(values.pop("run", ""), values.pop("root", "runs"))
    for key in ("task", "seed", "init_from", "run_id"):
        if key in values:
            raise UserError(f"{key}={values[key]}: is the run's own, it cannot change; start a new run with init_from=")
    trust, *rest = (options.convert(bool, values.pop(key, "false"), key) for key in ("trust", *HOW))
    how = dict(zip(HOW, rest, strict=True))
    told = {key: options.parse_value(text, key) for key, text in values.items()}
    cfg = with_guides(load(run_dir, told, trust=trust))
    go_on(run_dir, cfg, make_ranks(cfg.device), **how)
    return 0


def find_begun(cfg: "TrainCfg") -> str:
    """The directory of the run that goes on with the settings of `cfg`; empty where none of its id has a checkpoint.

    Raises:
        UserError: It has other settings (the line names the first), or is not whole.
    """
    from robot_rl.claim import check_kinds, is_trained, refuse_trained
    from robot_rl.run_dir import RunDir, task_folder

    run_dir = RunDir(cfg.root / task_folder(cfg.task.name) / cfg.run_id) if cfg.run_id else None
    if run_dir is None or not run_dir.path.is_dir():
        return ""
    check_kinds(run_dir)
    if not run_dir.config_file.is_file():
        refuse_trained(run_dir)
        return ""
    record = run_dir.read_config()
    check_settings(run_dir, record)
    before, now = dict(leaves(record["config"])), dict(leaves(cfg.tree))
    for key in dict.fromkeys((*now, *before)):
        if key not in FREE and not _is_same(key, before.get(key), now.get(key)):
            how = "" if key in FIXED else f", or change it by robot-rl resume {cfg.run_id} {key}={now.get(key)}"
            raise UserError(
                f"{key}={now.get(key)}: run {cfg.run_id} has {before.get(key)}; choose another run_id=" + how
            )
    return str(run_dir.path) if is_trained(run_dir) else ""


def go_on_with(run_dir: "RunDir", cfg: "TrainCfg", ranks: "Ranks") -> "RunDir":
    """Goes on with a run that `train` was told to begin; where it is done, nothing is left to do.

    Args:
        run_dir: The run.
        cfg: What `train` was told.
        ranks: The processes that train together.
    """
    from robot_rl.cli.guides import with_guides
    from robot_rl.cli.settings import load

    told = dict(leaves(cfg.tree))
    known = dict(leaves(load(run_dir, trust=True).tree))  # The command line names the same modules.
    free = {key: told[key] for key in FREE if key in known and key != "root"}
    kept = with_guides(load(run_dir, free, trust=True))
    go_on(run_dir, kept, ranks, is_requeued=True)
    return run_dir


def go_on(
    run_dir: "RunDir",
    cfg: "TrainCfg",
    ranks: "Ranks",
    *,
    allow_resize: bool = False,
    fresh_worlds: bool = False,
    is_requeued: bool = False,
) -> None:
    """Goes on with a run from its newest checkpoint that is whole.

    Args:
        run_dir: The run.
        cfg: The run's settings.
        ranks: The processes that train together.
        allow_resize: Divide the worlds anew where their number or that of the processes is another.
        fresh_worlds: Let the worlds begin anew.
        is_requeued: That all iterations are done is no error.

    Raises:
        GiveUpError: The run has no checkpoint that is whole.
        UserError: Another process trains it, all iterations are done, or the state does not fit what was changed.
    """
    from robot_rl.claim import Claim
    from robot_rl.cli.train import learn, say_what_next
    from robot_rl.learn.checkpoints.checkpoint import list_checkpoints
    from robot_rl.metrics.rows import to_stderr

    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        to_stderr(line)

    checkpoint = _choose(run_dir, cfg, ranks, tell, is_requeued=is_requeued)
    if checkpoint is None:
        return
    newest = list_checkpoints(run_dir.path)[-1:]

    def prepare(runner: Any) -> None:
        runner.load(checkpoint, allow_resize=allow_resize, fresh_worlds=fresh_worlds, tell=tell)

    def note(runner: Any) -> None:
        new = changes(run_dir.read_config()["config"], cfg.tree)
        run_dir.note_resumed(cfg.tree, sys.argv, runner.iteration, told, new)

    with contextlib.ExitStack() as stack:
        env = stack.enter_context(contextlib.closing(cfg.make_env(ranks=ranks)))
        claims: list[Claim] = []

        def claim() -> None:
            claims.append(stack.enter_context(Claim(run_dir)))
            if list_checkpoints(run_dir.path)[-1:] != newest:
                raise UserError(f"{run_dir.path}: another process trained it meanwhile; give the same command again")

        ranks.first(claim)
        learn(env, cfg, run_dir, prepare, ranks, claims=claims, begun=lambda runner: ranks.first(lambda: note(runner)))
    if ranks.is_first:
        say_what_next(run_dir, cfg)


def _choose(
    run_dir: "RunDir", cfg: "TrainCfg", ranks: "Ranks", tell: Callable[[str], None], *, is_requeued: bool
) -> Path | None:
    """The checkpoint that a run goes on from; None where it is done and that is no error.

    The learner's threads are those that the checkpoint was made with from here on.
    """
    from robot_rl.claim import check_kinds
    from robot_rl.learn.checkpoints.checkpoint import good_checkpoint, load_checkpoint
    from robot_rl.learn.threads import restore_threads
    from robot_rl.metrics.rows import refuse_locked

    ranks.first(lambda: check_kinds(run_dir))
    # First of all: who trains it removes old checkpoints, which would look like a run that has none.
    ranks.first(lambda: refuse_locked(run_dir.metrics_file))
    try:
        checkpoint = Path(ranks.first(lambda: str(good_checkpoint(run_dir.path, tell))))
    except UserError as error:
        raise GiveUpError(str(error)) from error
    meta = load_checkpoint(checkpoint)[1]
    last, done = cfg.learner.max_iterations, meta["iteration"]
    if done < last:
        restore_threads(meta, cfg.device, ranks, tell)
        return checkpoint
    if not is_requeued:
        raise UserError(
            f"max_iterations={last}: run {run_dir.run_id} has done {done} iterations; "
            f"give more, such as max_iterations={max(1, done * 2)}"
        )
    if ranks.is_first:
        print(f"done: {run_dir.path} has done {done} iterations, and max_iterations={last}")
    return None


def _is_same(key: str, before: Any, now: Any) -> bool:
    """Whether a setting is the one that the run began with; a policy to go by may have learned more since."""
    if key in ("teacher.run", "reference.run") and before and now:
        before, now = (str(Path(str(path)).parent.parent) for path in (before, now))
    return is_same(before, now)

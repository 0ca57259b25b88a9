"""Train from settings: in a new run directory, or from a checkpoint of an existing run."""

import contextlib
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from robot_rl.errors import Interrupted, NotRetryableError, UserError, as_user_error
from robot_rl.learn.checkpoints.checkpoint import good_checkpoint, list_checkpoints, load_checkpoint
from robot_rl.learn.ranks import ProcessGroup, make_process_group
from robot_rl.learn.threads import restore_threads, use_threads
from robot_rl.metrics.rows import refuse_locked, to_stderr
from robot_rl.runs import signals
from robot_rl.runs.agreement import FIXED, changes, check_settings, is_same
from robot_rl.runs.inputs import resolve_inputs
from robot_rl.runs.progress import Progress
from robot_rl.runs.robot_facts import describe_robots
from robot_rl.runs.run_dir import RunDir, task_folder
from robot_rl.runs.run_lock import RunLock, check_kinds, is_trained, refuse_trained
from robot_rl.runs.settings import TrainCfg, load
from robot_rl.settings.tree import leaves

FREE = (
    *("root", "run_id", "num_threads", "kernels", "max_iterations"),
    *("save_interval", "save_interval_s", "keep_checkpoints", "notice_s", "max_quarantined"),
)
"""Settings that may change when `train` continues a run by its id, and `metrics.*`: none affects an
iteration's result, except that schedules such as `linear` run over all of `max_iterations`."""
MakeEnv = Callable[[TrainCfg, ProcessGroup], Any]
"""Makes the worlds of a process."""


class Callback(Protocol):
    """What has a part in a training from outside, such as evaluations by another process."""

    def on_init(self, runner: Any) -> None:
        """Take part in a runner that has just been built."""

    def on_iteration_end(self, session: Any) -> Mapping[str, float]:
        """Look at the trainer after an iteration; return entries (`robot_rl.learn.base_trainer.OnIterationEnd`)."""
        ...


Stop = Callable[[], bool]
"""Asked after each iteration of a process: whether the training shall stop; one process that says so is enough."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainHooks:
    """What a launcher adds to the training of a process.

    Attributes:
        stop: Asked after each iteration whether the training shall stop, for a process that gets no signals.
        make_env: Makes its worlds, if they are not simulated by this process.
        callback: Looks at the runner after each iteration.
    """

    stop: Stop | None = None
    make_env: MakeEnv | None = None
    callback: Callback | None = None


NO_HOOKS = TrainHooks()
COMMANDS = ("export", "eval", "video", "report", "play")
"""Commands for a run."""


def train(cfg: TrainCfg) -> RunDir:
    """Train in a new run directory, or continue the run of that id, and return the directory.

    Raises:
        UserError: Something requested is not available; the directory is left as it was found.
        Interrupted: The user stopped it, after the state was saved.
    """
    signals.ending.phase = signals.START
    use_threads(cfg.learner_threads, cfg.device)
    cfg = resolve_inputs(cfg)
    ranks = make_process_group(cfg.device)
    if existing := ranks.first(lambda: find_existing_run(cfg)):
        return _resume_existing(RunDir(Path(existing)), cfg, ranks)

    def create(described: dict[str, Any]) -> RunLock:
        lock = RunLock.create(cfg.root, cfg.task.name, cfg.seed, cfg.run_id)
        try:
            lock.run_dir.write_config(cfg.tree, sys.argv, described)
        except BaseException:
            lock.close(undo=True)
            raise
        return lock

    return _begin(cfg, ranks, create)


def train_frozen(
    run_dir: RunDir,
    *,
    trust: bool = False,
    allow_resize: bool = False,
    fresh_worlds: bool = False,
    is_elastic: bool = False,
    hooks: TrainHooks = NO_HOOKS,
) -> None:
    """Train a run as one of its processes, with the settings that its run.yaml has: begin it, or continue it.

    Args:
        run_dir: The run, frozen by `robot_rl.cluster.frozen`.
        trust: Import the code that the settings name.
        allow_resize: Divide the worlds again if their number or that of the processes differs.
        fresh_worlds: Reset the worlds.
        is_elastic: The processes may be more or fewer than at first; if they do not divide the worlds evenly, as
            many of them are trained as they do.
        hooks: What a launcher adds.

    Raises:
        UserError: Something requested is not available, or run.yaml is missing or was changed by hand.
        Interrupted: The process was stopped by a signal or by `stop`, after the state was saved.
    """
    signals.ending.phase = signals.START
    record = run_dir.read_config()
    first = {key: record["config"].get(key) for key in ("init_from", "kernels") if record["config"].get(key)}
    cfg = load(run_dir, first, trust=trust)
    use_threads(cfg.learner_threads, cfg.device)
    ranks = make_process_group(cfg.device)
    if ranks.first(lambda: is_trained(run_dir)):
        kept = _divisible(resolve_inputs(load(run_dir, trust=trust)), ranks, is_elastic)
        options = {"allow_resize": allow_resize or is_elastic, "fresh_worlds": fresh_worlds}
        resume(run_dir, kept, ranks, is_requeued=True, hooks=hooks, **options)
        return
    cfg = _divisible(resolve_inputs(cfg), ranks, is_elastic)

    def adopt(described: dict[str, Any]) -> RunLock:
        lock = RunLock.adopt(run_dir)
        try:
            run_dir.add_to_config(described)
        except BaseException:
            lock.close(undo=True)
            raise
        return lock

    _begin(cfg, ranks, adopt, hooks=hooks)


def _divisible(cfg: TrainCfg, ranks: ProcessGroup, is_elastic: bool) -> TrainCfg:
    """Return the settings with a number of worlds that the processes divide evenly, if they may be any number.

    The tree, which has the requested number, stays: with more processes the worlds are as many as before.
    """
    return replace(cfg, num_envs=max(1, cfg.num_envs // ranks.size) * ranks.size) if is_elastic else cfg


def _begin(
    cfg: TrainCfg,
    ranks: ProcessGroup,
    make_lock: Callable[[dict[str, Any]], RunLock],
    *,
    hooks: TrainHooks = NO_HOOKS,
) -> RunDir:
    """Train a new run; `make_lock` locks its directory, with the task's description in its run.yaml."""
    weights = good_checkpoint(cfg.init_from.path) if cfg.init_from else None

    def prepare(runner: Any) -> None:
        if weights is not None:
            runner.load(weights, weights_only=True)

    with contextlib.ExitStack() as stack:
        env = stack.enter_context(contextlib.closing(_make_env(cfg, ranks, hooks.make_env)))
        locks: list[RunLock] = []

        def begin() -> str:
            locks.append(stack.enter_context(make_lock(_described(env, cfg.task))))
            return str(locks[0].run_dir.path)

        signals.ending.phase = signals.UNWIND  # A directory without results is left as it was found.
        run_dir = RunDir(Path(ranks.first(begin)))
        _run_trainer(env, cfg, run_dir, prepare, ranks, locks=locks, hooks=hooks)
    if ranks.is_first:
        _show_what_next(run_dir, cfg)
    return run_dir


def _make_env(cfg: TrainCfg, ranks: ProcessGroup, make_env: MakeEnv | None) -> Any:
    return cfg.make_env(ranks=ranks) if make_env is None else make_env(cfg, ranks)


def _run_trainer(
    env: Any,
    cfg: TrainCfg,
    run_dir: RunDir,
    prepare: Callable[[Any], None],
    ranks: ProcessGroup,
    *,
    locks: Sequence[RunLock],
    on_start: Callable[[Any], None] = lambda _: None,
    hooks: TrainHooks = NO_HOOKS,
) -> None:
    """Run the remaining iterations; the first process shows the progress and writes the metrics."""
    from robot_rl.learn.make_trainer import make_trainer
    from robot_rl.metrics.writers import MetricsWriter

    env.quarantine_dir = run_dir.path / "quarantine"
    options: dict[str, Any] = {"run_dir": run_dir.path, "seed": cfg.seed, "ranks": ranks}
    with contextlib.ExitStack() as stack:
        if ranks.is_first:
            notices, metrics = getattr(env, "pop_notices", list), getattr(env, "describe_metrics", dict)()
            progress = Progress(cfg.learner.max_iterations, notices, metrics, getattr(cfg.task, "solved", None))
            options["observer"] = stack.enter_context(progress)
        else:
            options["observer"] = print_notices(env, ranks.rank)
        if (stop := hooks.stop) is not None:
            options["observer"] = (options["observer"], lambda _: stop())
        with as_user_error():
            runner = make_trainer(env, cfg.learner, **options)
            if hooks.callback is not None:
                hooks.callback.on_init(runner)
                runner.on_iteration_end = hooks.callback.on_iteration_end
            prepare(runner)
        runner.settings = cfg.tree
        for lock in locks:  # Removes rows after the checkpoint.
            name, mark, file = f"{run_dir.task}/{run_dir.run_id}", runner.metrics_mark, lock.rows_file()
            runner.writer = MetricsWriter(run_dir.path, cfg.wandb, name=name, resume=mark, file=file)
            stack.enter_context(runner.writer)
            runner.counts_ranks = ranks.size > 1 or _is_launched_wide(run_dir)
        on_start(runner)
        for lock in locks:
            lock.report()
            _announce(cfg, run_dir, ranks.size, runner.iteration)
            _announce_precision(runner, cfg)
        signals.ending.check()
        runner.train()
        if stop is not None and runner.iteration < cfg.learner.max_iterations:
            raise Interrupted(runner.checkpoint, runner.iteration, signal.SIGTERM)
        signals.ending.phase = signals.OVER


def _is_launched_wide(run_dir: RunDir) -> bool:
    """Return whether a launcher starts several processes of a run, of which one may be left."""
    launcher = run_dir.read_config().get("launcher") or {}
    return launcher.get("nodes", 1) * launcher.get("ranks", 1) > 1


def _described(env: Any, task: Any) -> dict[str, Any]:
    """Return run.yaml's part about a task: its metrics and when it counts as solved, for reports, and its robots."""
    solved = getattr(task, "solved", None)
    found = {"metrics": getattr(env, "describe_metrics", dict)(), "solved": solved and list(solved)}
    found |= describe_robots(task)
    return {name: value for name, value in found.items() if value}


def print_notices(env: Any, rank: int) -> Callable[[Any], None]:
    """Return an observer for processes that show no progress: it prints the environment's notices to stderr."""
    pop = getattr(env, "pop_notices", list)

    def show(_: Any) -> None:
        for line in pop():
            print(f"robot-rl (process {rank}): {line}", file=sys.stderr, flush=True)

    return show


def _announce(cfg: TrainCfg, run_dir: RunDir, processes: int, done: int) -> None:
    """Print one line about the run that begins or continues after `done` iterations, and its directory."""
    worlds = f"{cfg.num_envs} worlds, {cfg.engine} on {cfg.device}, seed {cfg.seed}"
    worlds += f", {processes} processes" if processes > 1 else ""
    iterations = f"{cfg.learner.max_iterations} iterations" + (f", continued after {done}" if done else "")
    print(f"{cfg.task.name}: {worlds}, {iterations} -> {run_dir.path}", flush=True)


def _announce_precision(runner: Any, cfg: TrainCfg) -> None:
    """Print a line for each network about the precision of its layers, if that is less than float32."""
    if not cfg.learner.precision.is_quantized:
        return
    from robot_rl.learn.precision.conversion import describe_layers

    for name, network in runner.modules().items():
        if line := describe_layers(network, cfg.device.partition(":")[0]):
            print(f"  {name}: {line}", flush=True)


def _show_what_next(run_dir: RunDir, cfg: TrainCfg) -> None:
    """Print the run's directory and the commands to use it or to train it further."""
    print(f"done: {run_dir.path}")
    print(f"  robot-rl resume {run_dir.words} max_iterations={2 * cfg.learner.max_iterations}")
    for command in COMMANDS:
        if command not in cfg.source.unsupported:
            print(f"  robot-rl {command} run={run_dir.words}")


def find_existing_run(cfg: TrainCfg) -> str:
    """Return the directory of the run that continues with the settings of `cfg`; empty if it lacks a checkpoint.

    Raises:
        UserError: There is a run of that id with other settings.
    """
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
        if not _is_free(key) and not _is_same(key, before.get(key), now.get(key)):
            how = "" if key in FIXED else f", or change it by robot-rl resume {cfg.run_id} {key}={now.get(key)}"
            why = f"run {cfg.run_id} has {before.get(key)}"
            raise UserError(key, now.get(key), why, f"choose another run_id={how}")
    return str(run_dir.path) if is_trained(run_dir) else ""


def _resume_existing(run_dir: RunDir, cfg: TrainCfg, ranks: ProcessGroup) -> RunDir:
    """Continue a run that `train` was called for; where all iterations are done, do nothing."""
    kept = resolve_inputs(load(run_dir, free_changes(run_dir, cfg), trust=True))
    resume(run_dir, kept, ranks, is_requeued=True)
    return run_dir


def free_changes(run_dir: RunDir, cfg: TrainCfg) -> dict[str, Any]:
    """Return the settings that `train` may change in the existing run that it continues, by dotted name."""
    known = dict(leaves(load(run_dir, trust=True).tree))  # The command line names the same modules.
    given = dict(leaves(cfg.tree))
    return {key: value for key, value in given.items() if _is_free(key) and key in known and key != "root"}


def resume(
    run_dir: RunDir,
    cfg: TrainCfg,
    ranks: ProcessGroup,
    *,
    allow_resize: bool = False,
    fresh_worlds: bool = False,
    is_requeued: bool = False,
    hooks: TrainHooks = NO_HOOKS,
) -> None:
    """Continue a run from its newest intact checkpoint.

    Args:
        run_dir: The run.
        cfg: The run's settings.
        ranks: The processes that train together.
        allow_resize: Divide the worlds again if their number or that of the processes differs.
        fresh_worlds: Reset the worlds.
        is_requeued: It is not an error that all iterations are done.
        hooks: What a launcher adds.

    Raises:
        NotRetryableError: The run does not have an intact checkpoint.
        UserError: Another process trains it, all iterations are done, or the state does not fit the changes.
    """
    notes: list[str] = []

    def report(line: str) -> None:
        notes.append(line)
        to_stderr(line)

    if (checkpoint := _choose(run_dir, cfg, ranks, report, is_requeued=is_requeued)) is None:
        return
    newest = list_checkpoints(run_dir.path)[-1:]

    def prepare(runner: Any) -> None:
        runner.load(checkpoint, allow_resize=allow_resize, fresh_worlds=fresh_worlds, tell=report)

    def on_start(runner: Any) -> None:
        def note() -> None:
            new = changes(run_dir.read_config()["config"], cfg.tree)
            run_dir.note_resumed(cfg.tree, sys.argv, runner.iteration, notes, new)

        ranks.first(note)

    with contextlib.ExitStack() as stack:
        env = stack.enter_context(contextlib.closing(_make_env(cfg, ranks, hooks.make_env)))
        locks: list[RunLock] = []

        def acquire() -> None:
            locks.append(stack.enter_context(RunLock(run_dir)))
            if list_checkpoints(run_dir.path)[-1:] != newest:
                raise UserError(f"{run_dir.path}: another process trained it meanwhile; give the same command again")

        ranks.first(acquire)
        _run_trainer(env, cfg, run_dir, prepare, ranks, locks=locks, on_start=on_start, hooks=hooks)
    if ranks.is_first:
        _show_what_next(run_dir, cfg)


def show_done(run_dir: RunDir, done: int, last: int) -> None:
    """Print that all iterations of a run are done."""
    print(f"done: {run_dir.path} has done {done} iterations, and max_iterations={last}")


def _choose(
    run_dir: RunDir, cfg: TrainCfg, ranks: ProcessGroup, report: Callable[[str], None], *, is_requeued: bool
) -> Path | None:
    """Return the checkpoint to continue from, and set its learner threads; None where all iterations are done."""
    ranks.first(lambda: check_kinds(run_dir))
    # First: a process that trains it removes old checkpoints, so that it could seem to have none.
    ranks.first(lambda: refuse_locked(run_dir.metrics_file))
    try:
        checkpoint = Path(ranks.first(lambda: str(good_checkpoint(run_dir.path, report))))
    except UserError as error:
        raise NotRetryableError(str(error)) from error
    meta = load_checkpoint(checkpoint)[1]
    last, done = cfg.learner.max_iterations, meta["iteration"]
    if done < last:
        restore_threads(meta, cfg.device, ranks, report)
        return checkpoint
    if not is_requeued:
        more = f"give more, such as max_iterations={max(1, done * 2)}"
        raise UserError("max_iterations", last, f"run {run_dir.run_id} has done {done} iterations", more)
    if ranks.is_first:
        show_done(run_dir, done, last)
    return None


def _is_free(key: str) -> bool:
    return key in FREE or key.startswith("metrics.")


def _is_same(key: str, before: Any, now: Any) -> bool:
    """Return whether a setting is that of the existing run; a teacher or reference may have learned more since."""
    if key in ("teacher.run", "reference.run") and before and now:
        before, now = (str(Path(str(path)).parent.parent) for path in (before, now))
    return is_same(before, now)

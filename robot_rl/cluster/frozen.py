"""Frozen runs: the settings are composed once, and written before any process of the run starts.

run.yaml then has the settings with everything resolved, their hash, and the launcher. A process of the run reads it
without Hydra. If the directory already has a run of these settings, that run resumes.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from robot_rl.cluster.launchers.launcher import FrozenRun, Launcher
from robot_rl.errors import ExitCode, UserError
from robot_rl.files import write_atomic
from robot_rl.metrics.rows import refuse_locked
from robot_rl.runs.agreement import changes
from robot_rl.runs.inputs import resolve_inputs
from robot_rl.runs.robot_facts import describe_robots
from robot_rl.runs.run_dir import RunDir, config_hash, task_folder
from robot_rl.runs.run_lock import RunLock, is_trained
from robot_rl.runs.settings import TrainCfg, load, resolve
from robot_rl.runs.training import find_existing_run, free_changes, show_done
from robot_rl.runs.trust import named_code

LAUNCHER = "launcher"
"""The key of run.yaml with a frozen run's launcher."""
LOGS = ".launches"
"""The folder of a root in which launchers keep their own files."""


def launch_all(cfgs: Sequence[TrainCfg], launcher: Launcher) -> int:
    """Freeze runs and start them by a launcher that was checked; return the exit code.

    Raises:
        UserError: A run cannot begin, or the launcher cannot start it. Nothing was started then, and no directory
            that was made for it is left.
    """
    for cfg in cfgs:
        check_fits(cfg, launcher)
    with contextlib.ExitStack() as undo:
        runs = [run for cfg in cfgs if not _is_done((run := freeze(cfg, launcher, undo)).run_dir)]
        code = launcher.submit(runs, _folder(runs[0])) if runs else 0
        # What was begun, or saved, stays; `undo` itself leaves a run in which something was learned.
        if code not in (ExitCode.USER, ExitCode.REQUEUE, ExitCode.INTERRUPTED):
            undo.pop_all()
    return code


def freeze(cfg: TrainCfg, launcher: Launcher, undo: contextlib.ExitStack) -> FrozenRun:
    """Write the run.yaml of a new run, or find the run of that id, which resumes.

    Args:
        cfg: The run's settings.
        launcher: What starts it.
        undo: Gets the callback that removes a new run's directory again.

    Raises:
        UserError: An existing run of that id has other settings, or the directory cannot be made.
    """
    cfg = resolve_inputs(cfg)
    options = _options(cfg)
    if begun := find_existing_run(cfg):
        run_dir = RunDir(Path(begun))
        refuse_locked(run_dir.metrics_file)
        resumed = load(run_dir, free_changes(run_dir, cfg), trust=True)
        _check_size(run_dir, resumed, launcher)
        undo.callback(_note(run_dir, resumed, launcher))
        return FrozenRun(run_dir=run_dir, options=options)
    if waiting := _find_waiting(cfg):
        return FrozenRun(run_dir=waiting, options=options)
    lock = RunLock.create(cfg.root, cfg.task.name, cfg.seed, cfg.run_id)
    try:
        lock.run_dir.write_config(cfg.tree, sys.argv, {LAUNCHER: launcher.settings()} | describe_robots(cfg.task))
    except BaseException:
        lock.close(undo=True)
        raise
    # Released for the process that trains it: from now on only an empty directory is removed again.
    lock.close()
    undo.callback(_undo, lock)
    return FrozenRun(run_dir=lock.run_dir, options=options)


def _is_done(run_dir: RunDir) -> bool:
    """Return whether all iterations of a run are done, after a line that says so."""
    from robot_rl.learn.checkpoints.checkpoint import good_checkpoint, load_checkpoint

    if not is_trained(run_dir):
        return False
    last = load(run_dir, trust=True).learner.max_iterations
    done = load_checkpoint(good_checkpoint(run_dir.path))[1]["iteration"]
    if done >= last:
        show_done(run_dir, done, last)
    return done >= last


def _find_waiting(cfg: TrainCfg) -> RunDir | None:
    """Return the run of that id and these settings that was frozen and has not begun: a job waits for its machine.

    Of several machines that are given the same command, the first freezes the run.
    """
    run_dir = RunDir(cfg.root / task_folder(cfg.task.name) / str(cfg.run_id))
    if cfg.run_id is None or not run_dir.config_file.is_file():
        return None
    has_begun = run_dir.metrics_file.is_file() and run_dir.metrics_file.stat().st_size > 0
    is_same = run_dir.read_config().get("config_sha256") == config_hash(cfg.tree)
    return run_dir if is_same and not has_begun else None


def resume_with(run_dir: RunDir, changed: Mapping[str, Any], launcher: Launcher, options: Sequence[str]) -> int:
    """Let a launcher resume a run, or begin one without a checkpoint; return the exit code.

    Args:
        run_dir: The run.
        changed: Changed settings, by dotted name, which are noted in its run.yaml.
        launcher: What starts its processes.
        options: Words for each of them.

    Raises:
        UserError: Settings of a run without a checkpoint are changed, another process trains it, or the launcher
            cannot start it.
    """
    if changed and not is_trained(run_dir):
        line = f"run={run_dir.run_id}: is without a checkpoint from which it could resume with other settings"
        raise UserError(f"{line}; leave {', '.join(changed)} out, or begin another run")
    cfg = resolve_inputs(load(run_dir, changed, trust="trust=true" in options))
    check_fits(cfg, launcher)
    refuse_locked(run_dir.metrics_file)
    if "allow_resize=true" not in options:
        _check_size(run_dir, cfg, launcher)
    run = FrozenRun(run_dir=run_dir, options=tuple(dict.fromkeys((*_options(cfg), *options))))
    with contextlib.ExitStack() as undo:
        undo.callback(_note(run_dir, cfg, launcher))
        code = launcher.submit([run], _folder(run))
        if code != ExitCode.USER:
            undo.pop_all()
    return code


def check_fits(cfg: TrainCfg, launcher: Launcher) -> None:
    """Raise UserError if a launcher does not suit a run, or its processes do not divide or simulate the worlds."""
    launcher.check_settings(cfg.tree)
    num_envs = cfg.num_envs
    if num_envs % launcher.size:
        raise UserError("num_envs", num_envs, f"must be a multiple of the {launcher.size} processes of the run")
    if launcher.simulators and num_envs % launcher.simulators:
        raise UserError("num_envs", num_envs, f"must be a multiple of the {launcher.simulators} simulators of the run")
    for engine in dict.fromkeys(launcher.engines):
        if engine == "auto":
            raise UserError("roles.sim.engines: auto is not an engine itself; name one, such as mujoco or mujoco_warp")
        try:
            resolve({**cfg.tree, "engine": engine, "device": "cpu"})
        except UserError as error:
            raise UserError(f"roles.sim.engines: {error}") from None


def _options(cfg: TrainCfg) -> tuple[str, ...]:
    """Return the words for a run's processes: the code that this command line names may also be imported elsewhere."""
    return ("trust=true",) if named_code(cfg.tree) else ()


def _check_size(run_dir: RunDir, cfg: TrainCfg, launcher: Launcher) -> None:
    """Refuse another number of worlds or processes than those of a run's newest checkpoint.

    A launcher with processes that may be more or fewer deals the worlds out again itself.
    """
    from robot_rl.learn.checkpoints.checkpoint import good_checkpoint, load_checkpoint
    from robot_rl.learn.checkpoints.worlds import check_size

    if is_trained(run_dir) and not launcher.is_elastic:
        check_size(load_checkpoint(good_checkpoint(run_dir.path))[1], cfg.num_envs, launcher.size)


def _note(run_dir: RunDir, cfg: TrainCfg, launcher: Launcher) -> Callable[[], None]:
    """Record changed settings and the launcher of a run that resumes; return a function that undoes it.

    It is undone only if no process has written to run.yaml since.
    """
    from robot_rl.learn.checkpoints.checkpoint import good_checkpoint, load_checkpoint

    before, record = run_dir.config_file.read_bytes(), run_dir.read_config()
    new = changes(record["config"], cfg.tree)
    if is_trained(run_dir) and (new["changed"] or "gone" in new):
        done = load_checkpoint(good_checkpoint(run_dir.path))[1]["iteration"]
        run_dir.note_resumed(cfg.tree, sys.argv, done, changes=new)
    if record.get(LAUNCHER) != launcher.settings():
        run_dir.add_to_config({LAUNCHER: launcher.settings()})
    written = run_dir.config_file.read_bytes()

    def restore() -> None:
        if run_dir.config_file.read_bytes() == written != before:
            write_atomic(run_dir.config_file, before.decode())

    return restore


def _undo(lock: RunLock) -> None:
    """Remove a run's directory again, unless a process has trained it or still does."""
    with contextlib.suppress(UserError, OSError):
        lock.lock_again()
        lock.close(undo=True)


def _folder(run: FrozenRun) -> Path:
    return run.run_dir.path.parent.parent / LOGS

"""Many runs of one process each: tasks of Ray, of which as many run at once as the cluster has room for."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from robot_rl.cluster.launchers.launcher import FrozenRun
from robot_rl.cluster.ray_runs.cluster import is_leaving
from robot_rl.cluster.ray_runs.group import showing
from robot_rl.cluster.ray_runs.rank import STOP, WATCH_S
from robot_rl.cluster.ray_runs.roles import GroupCfg
from robot_rl.errors import ExitCode
from robot_rl.metrics.rows import to_stderr

PR_SET_PDEATHSIG = 1


def train_each(runs: Sequence[FrozenRun], cfg: GroupCfg, is_stopping: Callable[[], bool], at_once: int) -> list[int]:
    """Train runs of one process each on the cluster that is connected, and return their exit codes in order.

    Args:
        runs: The runs.
        cfg: What each needs.
        is_stopping: Whether the user wants them to end.
        at_once: How many at most are trained at the same time.
    """
    cfg.folder.mkdir(parents=True, exist_ok=True)
    log = cfg.folder.absolute() / "sweep.log"
    with showing(log):
        return _train(runs, cfg, is_stopping, log, at_once)


def _train(
    runs: Sequence[FrozenRun], cfg: GroupCfg, is_stopping: Callable[[], bool], log: Path, at_once: int
) -> list[int]:
    import ray

    task = ray.remote(num_cpus=cfg.cpus, num_gpus=cfg.gpus, max_retries=cfg.max_failures)(train_alone)

    def submit(run: FrozenRun) -> Any:
        return task.remote(str(run.run_dir.path.absolute()), list(run.options), str(log))

    waiting = {submit(run): index for index, run in enumerate(runs[:at_once])}
    remaining = list(range(at_once, len(runs)))
    codes = [int(ExitCode.REQUEUE)] * len(runs)
    while waiting:
        done, _ = ray.wait(list(waiting), timeout=WATCH_S)
        for ref in done:
            index = waiting.pop(ref)
            codes[index] = _result(ref)
            if codes[index] == ExitCode.REQUEUE and not is_stopping():
                waiting[submit(runs[index])] = index
                continue
            to_stderr(f"{runs[index].run_dir.words}: exit code {codes[index]}")
            if remaining and not is_stopping():
                following = remaining.pop(0)
                waiting[submit(runs[following])] = following
        if is_stopping():
            for ref in waiting:  # Those that have not begun.
                ray.cancel(ref)
    return codes


def _result(ref: Any) -> int:
    import ray
    from ray.exceptions import RayError, TaskCancelledError

    try:
        return int(ray.get(ref))
    except TaskCancelledError:
        return int(ExitCode.REQUEUE)
    except RayError:
        return int(ExitCode.FAULT)


def train_alone(path: str, options: list[str], log: str) -> int:
    """Train a run in its own process and return its exit code; the task that Ray runs on a machine."""
    import ray

    if (Path(path) / STOP).exists():
        return int(ExitCode.REQUEUE)
    node_id = ray.get_runtime_context().get_node_id()
    command = [sys.executable, "-m", "robot_rl.cli.main", "worker", path, *options]
    with Path(log).open("ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, preexec_fn=_die_with_parent)  # noqa: PLW1509
    is_told = False
    while process.poll() is None:
        time.sleep(0.1 if is_told else WATCH_S)
        if not is_told and (is_leaving(node_id) or (Path(path) / STOP).exists()):
            is_told = True
            process.send_signal(signal.SIGTERM)
    return process.returncode if process.returncode >= 0 else int(ExitCode.FAULT)


def _die_with_parent() -> None:
    """Let the system kill this process when the worker of Ray that started it dies."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

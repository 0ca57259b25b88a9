"""Run robot-rl commands of source trees in processes forked from one that has imported the third-party packages.

    python benchmarks/forks.py < jobs.json

The standard input is a JSON list of jobs: a name, the tree with the code, an empty folder, and the commands that are
run there in turn, each in its own process. Two jobs are run at a time, with one thread each. A line of JSON on the
standard output reports the end of each job. Nothing of robot-rl is imported before a process is forked, so that each
tree has its own code. This module needs only the standard library.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PACKAGES = (".", "envs", "tasks", "sim_assets", "deploy_jetson")
PRELOADED = (
    "torch",
    "tensordict",
    "warp",
    "mujoco.batch",
    "mujoco_warp",
    "rsl_rl.runners",
    "hydra.core.override_parser.overrides_parser",
    "omegaconf",
    "torch.utils.tensorboard.writer",
)
"""Packages that commands import; none of them starts a thread. One that is not there is omitted."""
AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Job:
    """Commands that are run in turn.

    Attributes:
        name: name in the report.
        tree: root of the source tree.
        folder: working directory.
        commands: words after robot-rl of each command.
    """

    name: str
    tree: str
    folder: str
    commands: list[list[str]]


@dataclass(frozen=True, slots=True)
class Report:
    """The end of a job.

    Attributes:
        name: name of the job.
        code: exit code of the last command that was run.
        seconds: time that the job took [s].
        cpu_s: processor time of it [s].
        error: the failed command and the end of its output; empty if all commands succeeded.
    """

    name: str
    code: int
    seconds: float
    cpu_s: float
    error: str


def run_jobs(jobs: list[Job]) -> Iterator[Report]:
    """Run jobs in forked processes; yield the report of each when it ends."""
    env = dict(os.environ) | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "COLUMNS": "200"}
    if sys.platform == "linux" and not env.get("DISPLAY"):
        env.setdefault("MUJOCO_GL", "egl")
    line = [sys.executable, str(Path(__file__).resolve())]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(line, env=env, start_new_session=True, **pipes) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps([asdict(job) for job in jobs]))
        server.stdin.close()
        try:
            for text in server.stdout:
                yield Report(**json.loads(text))
        except BaseException:
            os.killpg(server.pid, signal.SIGKILL)
            raise
    if server.returncode:
        raise RuntimeError(f"{' '.join(line)}: ended with exit code {server.returncode}")


def run_command(job: Job, words: list[str]) -> None:
    """Run a command in this process, which was forked for it, and end the process."""
    code = 1
    try:
        with open(Path(job.folder).with_suffix(".log"), "wb") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        os.chdir(job.folder)
        paths = [str(Path(job.tree, package)) for package in PACKAGES]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        sys.path[:0] = paths
        sys.argv = ["robot-rl", *words]
        code = importlib.import_module("robot_rl.cli.main").main(words)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def run_job(job: Job) -> int:
    """Run the commands of a job until one fails; return its exit code."""
    for words in job.commands:
        pid = os.fork()
        if pid == 0:
            run_command(job, words)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code:
            log = Path(job.folder).with_suffix(".log")
            log.write_text(f"{' '.join(words)}: exit code {code}\n{log.read_text(errors='replace')[-2000:]}")
            return code & 255
    return 0


def start(job: Job) -> int:
    """Fork the process of a job and return its id."""
    pid = os.fork()
    if pid == 0:
        os._exit(run_job(job))
    return pid


def serve(jobs: list[Job]) -> None:
    """Run jobs, `AT_ONCE` at a time, and print a report of each."""
    waiting, running = list(jobs), {}
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            job = waiting.pop(0)
            running[start(job)] = (job, time.monotonic())
        pid, status, usage = os.wait4(-1, 0)
        job, begin = running.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        error = Path(job.folder).with_suffix(".log").read_text() if code else ""
        cpu_s = usage.ru_utime + usage.ru_stime
        report = Report(job.name, code, round(time.monotonic() - begin, 2), round(cpu_s, 2), error)
        print(json.dumps(asdict(report)), flush=True)


def preload() -> None:
    """Import what every command imports from other packages."""
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


if __name__ == "__main__":
    given: list[dict[str, Any]] = json.load(sys.stdin)
    preload()
    serve([Job(**job) for job in given])

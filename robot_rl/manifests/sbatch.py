"""A batch script of Slurm: it starts a run's processes by srun, and requeues the job where they stopped and saved."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from robot_rl.errors import ExitCode, UserError
from robot_rl.manifests.quantities import read_mebibytes, read_seconds

NOTICE_S = 120
"""How long before the end of its time a job is given notice [s]."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,:@+/-]{0,199}")
MAX_COUNT = 10_000_000
FIRST_PORT, PORTS = 20_000, 10_000
"""Ports at which a job's processes meet: above those of Ray's workers, below those that a kernel hands out."""
MOST_RETRIES = 3
"""How often a job of several processes is requeued after a fault, such as a process that was lost."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunArray:
    """Runs that are trained by the jobs of one array.

    Attributes:
        file: Absolute path of a file with the directories of the runs, one a line; the jobs read it when they start.
        count: Number of its lines.
        at_once: Most jobs that run at the same time; 0 for no limit.
    """

    file: Path
    count: int
    at_once: int = 0

    def __post_init__(self) -> None:
        _check_path("file", self.file)
        _check_count("count", self.count, least=1)
        _check_count("at_once", self.at_once, least=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class SbatchJob:
    """What a batch script starts, and what it requests of Slurm.

    Attributes:
        runs: The absolute directory of the run, or an array of runs.
        name: The job's name.
        nodes: Number of nodes.
        ranks: Number of processes on each node.
        gpus: Number of GPUs on each node.
        cpus: Number of cores of each process; 0 for the cluster's default.
        memory: Memory of each process, such as 16G; "" for the cluster's default.
        time: Time limit as Slurm reads it, such as 04:00:00; "" for the partition's default.
        partition: Partition, or several with commas between; "" for the cluster's default.
        options: Further options of sbatch, such as "--account=lab" or "--qos=spot"; a line each.
        log: Absolute file of the job's output, with Slurm's own patterns such as %j; "" for Slurm's default.
        command: What each process runs; the run's directory is added as its last word.
        setup: Shell lines that come first, such as "source /home/me/.venv/bin/activate".
        notice_s: How long before the end of its time the job is given notice by SIGUSR1 [s].
        made_by: The command that made the script, for its header.
    """

    runs: Path | RunArray
    name: str = "robot-rl"
    nodes: int = 1
    ranks: int = 1
    gpus: int = 0
    cpus: int = 0
    memory: str = ""
    time: str = ""
    partition: str = ""
    options: tuple[str, ...] = ()
    log: str = ""
    command: tuple[str, ...] = ("robot-rl", "worker")
    setup: tuple[str, ...] = ()
    notice_s: int = NOTICE_S
    made_by: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.runs, Path):
            _check_path("run", self.runs)
        for name, least in (("nodes", 1), ("ranks", 1), ("gpus", 0), ("cpus", 0), ("notice_s", 1)):
            _check_count(name, getattr(self, name), least=least)
        for name in ("name", "partition"):
            value = getattr(self, name)
            if value and not _NAME.fullmatch(value):
                raise UserError(f"{name}={value[:80]}: must be of letters, digits and _ . , : @ + / -")
        for option in self.options:
            if not re.fullmatch(r"--[a-z][a-z-]*(=[^\s\"'\\]+)?", option):
                raise UserError(f"options={option[:80]}: must be written --name=value, without blanks and quotes")
        if self.log:
            _check_path("log", Path(self.log))
        limit = read_seconds(self.time)
        if limit and limit <= self.notice_s:
            raise UserError(f"time={self.time}: must be longer than the notice of {self.notice_s} s")
        read_mebibytes(self.memory)


def render(job: SbatchJob) -> str:
    """Return the batch script of a job."""
    made = [f"# {line}" for line in ("Made by:", job.made_by)] if job.made_by else []
    text = ["#!/bin/bash", *made, *(f"#SBATCH {option}" for option in _options(job)), "", *job.setup]
    text += ["# The script has to outlive the notice that its processes get.", "trap : TERM USR1", *_runs(job.runs)]
    text += [*_processes(job), *_end(job.runs, has_peers=job.nodes * job.ranks > 1)]
    return "\n".join(text) + "\n"


def _options(job: SbatchJob) -> list[str]:
    """Return what is requested of Slurm, an option each."""
    memory = read_mebibytes(job.memory) * job.ranks
    wanted = {
        "job-name": job.name,
        "partition": job.partition,
        "nodes": job.nodes,
        "ntasks-per-node": job.ranks,
        "cpus-per-task": job.cpus,
        "gres": f"gpu:{job.gpus}" if job.gpus else "",
        "mem": f"{memory}M" if memory else "",
        "time": job.time,
        "output": f'"{job.log}"' if " " in job.log else job.log,
    }
    lines = [f"--{name}={value}" for name, value in wanted.items() if value]
    if isinstance(job.runs, RunArray):
        most = f"%{job.runs.at_once}" if job.runs.at_once else ""
        lines.append(f"--array=0-{job.runs.count - 1}{most}")
    return [*lines, "--requeue", "--open-mode=append", f"--signal=USR1@{job.notice_s}", *job.options]


def _runs(runs: Path | RunArray) -> list[str]:
    """Return the lines that set `run`."""
    if isinstance(runs, Path):
        return [f"run={shlex.quote(str(runs))}"]
    say = 'echo "the file of runs has no run in line $((SLURM_ARRAY_TASK_ID + 1))" >&2'
    return [
        f"mapfile -t runs < {shlex.quote(str(runs.file))}",
        "run=${runs[SLURM_ARRAY_TASK_ID]}",
        f'if [ -z "$run" ]; then {say}; exit {int(ExitCode.USER)}; fi',
    ]


def _processes(job: SbatchJob) -> list[str]:
    """Return the lines that start the processes and wait for them.

    srun ends with the greatest code of all. It does not kill the others when the first one ends, since they may still
    save; `--wait` bounds how long they may take.
    """
    cores = ['"--cpus-per-task=$SLURM_CPUS_PER_TASK"'] if job.cpus else []  # srun does not inherit it.
    srun = " ".join(["srun", "--kill-on-bad-exit=0", f"--wait={job.notice_s}", *cores])
    return [
        'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        f"MASTER_PORT=$(({FIRST_PORT} + SLURM_JOB_ID % {PORTS}))",
        "export MASTER_ADDR MASTER_PORT",
        f"{srun} \\",
        "    bash -c 'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID \\",
        f"""    LOCAL_WORLD_SIZE=$SLURM_NTASKS_PER_NODE exec "$@"' worker {shlex.join(job.command)} "$run\"""",
        "code=$?",
    ]


def _end(runs: Path | RunArray, *, has_peers: bool) -> list[str]:
    """Return the lines that requeue the job where its processes stopped and saved, and end with their code."""
    this = "$SLURM_JOB_ID" if isinstance(runs, Path) else "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
    return [*requeue(this, has_peers=has_peers), 'exit "$code"']


def requeue(job: str, *, has_peers: bool) -> list[str]:
    """Return the lines of shell that requeue a job by the exit code of its training, `code`.

    The processes of a job that scancel ends save, too, but Slurm would start it again, if it was requeued.

    Args:
        job: The job's id, as the shell writes it.
        has_peers: It has several processes: one that was lost ends the others with a fault.
    """
    wanted = f'[ "$code" -eq {int(ExitCode.REQUEUE)} ]'
    if has_peers:
        lost = f'[ "$code" -eq {int(ExitCode.FAULT)} ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt {MOST_RETRIES} ]'
        wanted = f"{{ {wanted} || {{ {lost}; }}; }}"
    return [
        "# Slurm takes a job that saved and exited for a failed one. One that was cancelled is COMPLETING by now.",
        f"if {wanted} &&",
        f'    [ "$(squeue --noheader --format=%T --jobs="{job}")" != COMPLETING ]; then',
        f'    scontrol requeue "{job}"',
        "fi",
    ]


def _check_count(name: str, value: int, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_COUNT:
        raise UserError(f"{name}={value}: must be a whole number from {least} to {MAX_COUNT}")


def _check_path(name: str, path: Path) -> None:
    """Refuse a path that sbatch, which runs elsewhere and reads options line by line, would not take as it is."""
    if not path.is_absolute() or not str(path).isprintable() or '"' in str(path):
        raise UserError(f"{name}={path}: must be an absolute path without quotes and control characters")

"""A batch script of Slurm, requeued if its processes stopped and saved."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from robot_rl.cluster.manifests.job import ClusterJob
from robot_rl.cluster.manifests.quantities import read_mebibytes, read_seconds
from robot_rl.errors import ExitCode, UserError

USED = frozenset({"partition", "mount"})
SHAPE = ("nodes", "gpus", "cpus", "memory", "time", "partition")
"""What a script requests by the same name as a launcher or a manifest's job."""
NOTICE_S = 120
"""How long before the end of its time a job is given notice by SIGUSR1 [s]."""
FIRST_PORT, PORTS = 20_000, 10_000
"""Ports at which a job's processes meet: above those of Ray's workers, below those that a kernel hands out."""
MOST_RETRIES = 3
"""How often a job of several processes is requeued after a fault, such as a process that was lost."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SbatchJob:
    """The runs that a batch script starts, and its request to Slurm.

    Attributes:
        runs: The absolute directory of the run; of an array, a file with those of its runs, one a line, which the jobs
            read when they start.
        count: Runs of the array; 0: one run, and no array.
        at_once: Most jobs of the array that run at the same time; 0 for no limit.
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
        made_by: The command that made the script, for its header.
    """

    runs: Path
    count: int = 0
    at_once: int = 0
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
    made_by: str = ""

    def __post_init__(self) -> None:
        """Raise UserError for values that sbatch would misread: it runs elsewhere, and reads options line by line."""
        if not self.runs.is_absolute() or not str(self.runs).isprintable() or '"' in str(self.runs):
            what = "file" if self.count else "run"
            raise UserError(f"{what}={self.runs}: must be an absolute path without quotes and control characters")
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.,:@+/-]{0,199}", self.name):
            raise UserError(f"name={self.name[:80]}: must be of letters, digits and _ . , : @ + / -")
        for option in self.options:
            if not re.fullmatch(r"--[a-z][a-z-]*(=[^\s\"'\\]+)?", option):
                raise UserError(f"options={option[:80]}: must be written --name=value, without blanks and quotes")
        limit = read_seconds(self.time)
        if limit and limit <= NOTICE_S:
            raise UserError(f"time={self.time}: must be longer than the notice of {NOTICE_S} s")


def render(job: ClusterJob) -> str:
    """Return the script of a run."""
    wanted = {name: getattr(job, name) for name in (*SHAPE, "name", "ranks", "made_by")}
    command = ("robot-rl", "worker", *(["trust=true"] if job.trust else []))
    return script(SbatchJob(runs=Path(job.directory), log=f"{job.directory}/slurm-%j.out", command=command, **wanted))


def script(job: SbatchJob) -> str:
    """Return the batch script of a job."""
    made = [f"# {line}" for line in ("Made by:", job.made_by)] if job.made_by else []
    text = ["#!/bin/bash", *made, *(f"#SBATCH {option}" for option in _options(job)), "", *job.setup]
    text += ["# The script has to outlive the notice that its processes get.", "trap : TERM USR1", *_runs(job)]
    return "\n".join([*text, *_processes(job), *_end(job)]) + "\n"


def _options(job: SbatchJob) -> list[str]:
    """Return the request to Slurm, one option each."""
    memory = read_mebibytes(job.memory) * job.ranks
    most = f"%{job.at_once}" if job.at_once else ""
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
        "array": f"0-{job.count - 1}{most}" if job.count else "",
    }
    lines = [f"--{name}={value}" for name, value in wanted.items() if value]
    return [*lines, "--requeue", "--open-mode=append", f"--signal=USR1@{NOTICE_S}", *job.options]


def _runs(job: SbatchJob) -> list[str]:
    """Return the lines that set `run`."""
    if not job.count:
        return [f"run={shlex.quote(str(job.runs))}"]
    say = 'echo "the file of runs has no run in line $((SLURM_ARRAY_TASK_ID + 1))" >&2'
    return [
        f"mapfile -t runs < {shlex.quote(str(job.runs))}",
        "run=${runs[SLURM_ARRAY_TASK_ID]}",
        f'if [ -z "$run" ]; then {say}; exit {int(ExitCode.USER)}; fi',
    ]


def _processes(job: SbatchJob) -> list[str]:
    """Return the lines that start the processes and wait for them.

    srun ends with the greatest code of all. It does not kill the others when the first one ends, since they may still
    save; `--wait` bounds how long they may take.
    """
    cores = ['"--cpus-per-task=$SLURM_CPUS_PER_TASK"'] if job.cpus else []  # srun does not inherit it.
    srun = " ".join(["srun", "--kill-on-bad-exit=0", f"--wait={NOTICE_S}", *cores])
    return [
        'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        f"MASTER_PORT=$(({FIRST_PORT} + SLURM_JOB_ID % {PORTS}))",
        "export MASTER_ADDR MASTER_PORT",
        f"{srun} \\",
        "    bash -c 'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID \\",
        f"""    LOCAL_WORLD_SIZE=$SLURM_NTASKS_PER_NODE exec "$@"' worker {shlex.join(job.command)} "$run\"""",
        "code=$?",
    ]


def _end(job: SbatchJob) -> list[str]:
    """Return the lines that requeue the job by the exit code of its training, and end with that.

    A process that was lost ends the others with a fault. The processes of a job that scancel ends also save, but Slurm
    would start it again, if it was requeued.
    """
    this = "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}" if job.count else "$SLURM_JOB_ID"
    wanted = f'[ "$code" -eq {int(ExitCode.REQUEUE)} ]'
    if job.nodes * job.ranks > 1:
        lost = f'[ "$code" -eq {int(ExitCode.FAULT)} ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt {MOST_RETRIES} ]'
        wanted = f"{{ {wanted} || {{ {lost}; }}; }}"
    return [
        "# Slurm takes a job that saved and exited for a failed one. One that was cancelled is COMPLETING by now.",
        f"if {wanted} &&",
        f'    [ "$(squeue --noheader --format=%T --jobs="{this}")" != COMPLETING ]; then',
        f'    scontrol requeue "{this}"',
        "fi",
        'exit "$code"',
    ]

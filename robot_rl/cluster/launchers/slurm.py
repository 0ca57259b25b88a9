"""A Slurm cluster: a run is a job, a sweep an array; a preempted job is requeued and resumes."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from robot_rl.cluster.launchers.launcher import COMMAND, PARTITION, FrozenRun, Launcher, Target, write_job
from robot_rl.cluster.launchers.slurm_checks import ask, ask_slurm, check_slurm, iteration_s, read_slurm
from robot_rl.cluster.manifests.job import ClusterJob
from robot_rl.cluster.manifests.processes import FIRST_PORT, PORTS
from robot_rl.cluster.manifests.quantities import read_mebibytes, read_seconds
from robot_rl.cluster.preflight.finding import Cluster, Finding
from robot_rl.errors import ExitCode, UserError, suggest
from robot_rl.settings.schema import setting

SCRIPT = "slurm.sh"
SHAPE = ("nodes", "gpus", "cpus", "memory", "time", "partition")
"""What a script requests by the same name as a launcher or a manifest's job."""
NOTICE_S = 120
"""How long before the end of its time a job is given notice by SIGUSR1 [s]."""
MOST_RETRIES = 3
"""How often a job of several processes is requeued after a fault, such as a process that was lost."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Partition:
    """What sinfo says of a partition: its name, and the most GPUs and cores of any of its nodes."""

    name: str
    gpus: int
    cores: int
    is_default: bool


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
            raise UserError(what, self.runs, "must be an absolute path without quotes and control characters")
        if not PARTITION.fullmatch(self.name):
            raise UserError("name", self.name[:80], "must be of letters, digits and _ . , : @ + / -")
        for option in self.options:
            if not re.fullmatch(r"--[a-z][a-z-]*(=[^\s\"'\\]+)?", option):
                raise UserError("options", option[:80], "must be written --name=value, without blanks and quotes")
        limit = read_seconds(self.time)
        if limit and limit <= NOTICE_S:
            raise UserError("time", self.time, f"must be longer than the notice of {NOTICE_S} s")


@dataclass(kw_only=True, slots=True)
class Slurm(Launcher):
    """Jobs of sbatch.

    Attributes:
        memory: Memory of each process, such as 16G.
        at_once: Most jobs of a sweep that run at the same time; 0: as many as there is room for.
        options: Further options of sbatch, such as '--account=lab --qos=spot'.
        setup: A shell command before the processes start, such as 'module load cuda'.
    """

    memory: str = ""
    at_once: int = setting(0, least=0, most=100_000)
    options: str = ""
    setup: str = ""

    name: ClassVar[str] = "slurm"
    is_elsewhere: ClassVar[bool] = True
    targets: ClassVar[Mapping[str, Target]] = {
        "sbatch": Target(
            info="A batch script of Slurm, requeued if its processes stopped and saved",
            options=frozenset({"partition", "mount"}),
            is_script=True,
        )
    }

    def __post_init__(self) -> None:
        """Raise UserError if a setting is out of range."""
        Launcher.__post_init__(self)
        read_mebibytes(self.memory, "launcher.memory")

    def check(self) -> None:
        """Raise UserError if Slurm or a partition does not exist, or no node has so many GPUs or cores."""
        if shutil.which("sbatch") is None:
            raise UserError("launcher=slurm: sbatch is not on this machine; give the command on a login node")
        known = list_partitions()
        chosen = [part for part in known if part.name in self.partition.split(",") or not self.partition]
        for name in filter(None, self.partition.split(",")):
            if name not in [part.name for part in known]:
                hint = suggest(name, [part.name for part in known])
                raise UserError("launcher.partition", name, "is not a partition", hint)
        if not self.partition:
            chosen = [part for part in chosen if part.is_default] or chosen
        where = f"in partition {self.partition}" if self.partition else "here"
        for key, wanted, most in (
            ("gpus", self.gpus, max((part.gpus for part in chosen), default=0)),
            ("cpus", self.cpus * self.ranks_a_node, max((part.cores for part in chosen), default=0)),
        ):
            if wanted > most:
                each = f" for each of {self.ranks_a_node} processes" if key == "cpus" and self.ranks_a_node > 1 else ""
                value = getattr(self, key)
                raise UserError(f"launcher.{key}={value}{each}: no node {where} has more than {most}; give fewer")

    def cluster_checks(self, root: Path) -> Sequence[tuple[str, Finding]]:
        """Return the findings about Slurm's own settings."""
        return check_slurm(read_slurm(self, iteration_s(root)))

    def probe_nodes(self, cluster: Cluster, token: str) -> None:
        """Start a probe on each node by srun."""
        ask_slurm(self, cluster, token)

    @classmethod
    def render(cls, job: ClusterJob, target: str) -> str:
        """Return the batch script of a run."""
        log, command = f"{job.directory}/slurm-%j.out", ("robot-rl", "worker", *(["trust=true"] if job.trust else []))
        request = {name: getattr(job, name) for name in (*SHAPE, "name", "ranks", "made_by")}
        return script(SbatchJob(runs=Path(job.directory), log=log, command=command, **request))

    def submit(self, runs: Sequence[FrozenRun], folder: Path) -> int:
        """Submit one job, or for several runs an array of jobs, and print the ids."""
        if len(runs) == 1:
            path = runs[0].run_dir.path.absolute()
            job = self._submit(path / SCRIPT, path, str(path / "slurm-%j.out"), runs)
            names = [job]
        else:
            place = folder.absolute() / f"slurm-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
            place.mkdir(parents=True)
            (place / "runs.txt").write_text("".join(f"{run.run_dir.path.absolute()}\n" for run in runs))
            try:
                job = self._submit(place / SCRIPT, place / "runs.txt", str(place / "%a.out"), runs)
            except BaseException:
                shutil.rmtree(place, ignore_errors=True)
                raise
            names = [f"{job}_{k}" for k in range(len(runs))]
        for name, run in zip(names, runs, strict=True):
            write_job(run.run_dir, self.name, name)
            sys.stdout.write(f"job {name}: {run.run_dir.path}\n")
        sys.stdout.write(f"follow it: robot-rl watch {runs[0].run_dir.words}; end it: scancel {job}\n")
        return 0

    def _submit(self, file: Path, what: Path, log: str, runs: Sequence[FrozenRun]) -> str:
        """Write the batch script and submit it; return the job's id. Without a job no script is left."""
        threads = self.cpus or 1
        setup = [self.setup] if self.setup else []
        if self.size > 1 or self.cpus:
            setup.append(f"export OMP_NUM_THREADS=${{OMP_NUM_THREADS:-{threads}}}")
        options = tuple(dict.fromkeys(word for run in runs for word in run.options))
        is_array = len(runs) > 1
        text = script(
            SbatchJob(
                runs=what,
                count=len(runs) if is_array else 0,
                at_once=self.at_once,
                name=runs[0].run_dir.task if is_array else runs[0].run_dir.run_id,
                ranks=self.ranks_a_node,
                **{each: getattr(self, each) for each in SHAPE},
                options=tuple(shlex.split(self.options)),
                log=log,
                command=(sys.executable, "-m", COMMAND, "worker", *options),
                setup=tuple(setup),
                made_by=shlex.join(["robot-rl", *sys.argv[1:]]),
            )
        )
        file.write_text(text)
        try:
            return ask("sbatch", "--parsable", str(file)).strip().partition(";")[0]
        except UserError:
            file.unlink()
            raise

    @classmethod
    def is_alive(cls, job: str) -> bool:
        """Return whether a job waits or runs."""
        try:
            return bool(ask("squeue", "--noheader", "--jobs", job, "--format=%T").strip())
        except UserError:  # Slurm has forgotten it.
            return False

    @classmethod
    def cancel(cls, job: str) -> None:
        """End a job: one that runs gets SIGINT, after which it saves and is not requeued."""
        states = ask("squeue", "--noheader", "--jobs", job, "--format=%T").split()
        ask("scancel", *(["--signal=INT"] if "RUNNING" in states else []), job)


def list_partitions() -> list[Partition]:
    """Return the partitions, each once for every kind of node in it; raise UserError if Slurm does not answer."""
    partitions = []
    for line in ask("sinfo", "--noheader", "--format=%P|%G|%c").splitlines():
        name, gres, cores = line.strip().split("|")
        counts = [int(count) for count in re.findall(r"gpu(?::[\w.-]+)?:(\d+)", gres)]
        number = int(re.sub(r"\D", "", cores) or 0)
        partitions.append(
            Partition(name=name.rstrip("*"), gpus=sum(counts), cores=number, is_default=name.endswith("*"))
        )
    return partitions


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

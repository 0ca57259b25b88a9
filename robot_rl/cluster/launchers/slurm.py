"""A Slurm cluster: a run is a job, a sweep an array; a preempted job is requeued and resumes."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from robot_rl.cluster.launchers.launcher import COMMAND, FrozenRun, Launcher, write_job
from robot_rl.cluster.manifests.quantities import read_mebibytes
from robot_rl.cluster.manifests.targets.sbatch import SHAPE, SbatchJob, script
from robot_rl.errors import UserError, suggest
from robot_rl.settings.schema import setting

SCRIPT = "slurm.sh"
COMMAND_S = 60
"""How long a command of Slurm's may take [s]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Partition:
    """What sinfo says of a partition: its name, and the most GPUs and cores of any of its nodes."""

    name: str
    gpus: int
    cores: int
    is_default: bool


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

    def __post_init__(self) -> None:
        """Raise UserError if a setting is out of range."""
        Launcher.__post_init__(self)
        read_mebibytes(self.memory, "launcher.memory")

    def check(self) -> None:
        """Raise UserError if Slurm or a partition does not exist, or no node has so many GPUs or cores."""
        if shutil.which("sbatch") is None:
            raise UserError("launcher=slurm: there is no sbatch on this machine; give the command on a login node")
        known = list_partitions()
        mine = [part for part in known if part.name in self.partition.split(",") or not self.partition]
        for name in filter(None, self.partition.split(",")):
            if name not in [part.name for part in known]:
                hint = suggest(name, [part.name for part in known])
                raise UserError(f"launcher.partition={name}: there is no such partition; {hint}")
        if not self.partition:
            mine = [part for part in mine if part.is_default] or mine
        where = f"in partition {self.partition}" if self.partition else "here"
        for key, wanted, most in (
            ("gpus", self.gpus, max((part.gpus for part in mine), default=0)),
            ("cpus", self.cpus * self.ranks_a_node, max((part.cores for part in mine), default=0)),
        ):
            if wanted > most:
                each = f" for each of {self.ranks_a_node} processes" if key == "cpus" and self.ranks_a_node > 1 else ""
                value = getattr(self, key)
                raise UserError(f"launcher.{key}={value}{each}: no node {where} has more than {most}; give fewer")

    def launch(self, runs: Sequence[FrozenRun], folder: Path) -> int:
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
    found = []
    for line in ask("sinfo", "--noheader", "--format=%P|%G|%c").splitlines():
        name, gres, cores = line.strip().split("|")
        counts = [int(count) for count in re.findall(r"gpu(?::[\w.-]+)?:(\d+)", gres)]
        number = int(re.sub(r"\D", "", cores) or 0)
        found.append(Partition(name=name.rstrip("*"), gpus=sum(counts), cores=number, is_default=name.endswith("*")))
    return found


def ask(*command: str) -> str:
    """Return the output of a command of Slurm's; raise UserError with its first line where it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    except FileNotFoundError:
        raise UserError(f"launcher=slurm: there is no {command[0]} on this machine") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"launcher=slurm: {command[0]} did not answer within {COMMAND_S} s") from None
    if done.returncode:
        line = next(iter(done.stderr.strip().splitlines()), f"exit code {done.returncode}")
        right = "" if command[0] == "sbatch" else f"; give the command where Slurm's own {command[0]} works"
        raise UserError(f"launcher=slurm: {command[0]} failed, {line}{right}")
    return done.stdout

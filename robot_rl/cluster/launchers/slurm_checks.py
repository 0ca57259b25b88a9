"""Checks of Slurm's own settings, such as the handling of a preempted job, and probes of its nodes by srun."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from robot_rl.cluster.launchers.launcher import Launcher
from robot_rl.cluster.manifests.quantities import read_seconds
from robot_rl.cluster.preflight.finding import Cluster, Finding, fail, join, ok, refused, warn
from robot_rl.cluster.preflight.gather import exchange
from robot_rl.cluster.preflight.probe import ANSWER_S
from robot_rl.errors import UserError
from robot_rl.runs.run_index import read_runs

COMMAND_S = 60
"""How long a command of Slurm's may take [s]."""
ROOM_S = 60
"""How long Slurm may take to find room for a probe on each node [s]."""
CRED_EXPIRE_S, GOOD_EXPIRE_S = 120, 30
"""Slurm's default time that a requeued job is held [s], and one that is acceptable."""
SAVE_S = 5.0
"""Time for writing a checkpoint, besides the iteration in hand [s]."""


@dataclass(kw_only=True, slots=True)
class SlurmFacts:
    """What Slurm says of itself.

    Attributes:
        launcher: The launcher with its settings.
        refusal: Why the launcher refuses the request; "" if it does not.
        config: The lines of `scontrol show config`.
        partitions: The fields of each partition by its name.
        iteration_s: How long an iteration takes [s]; None if it is unknown.
    """

    launcher: Launcher
    refusal: str = ""
    config: dict[str, str] = field(default_factory=dict)
    partitions: dict[str, dict[str, str]] = field(default_factory=dict)
    iteration_s: float | None = None

    @property
    def mine(self) -> dict[str, dict[str, str]]:
        """Return the partitions that a job would go to: those requested, else the default one."""
        if self.launcher.partition:
            names = self.launcher.partition.split(",")
            return {name: self.partitions[name] for name in names if name in self.partitions}
        return {name: partition for name, partition in self.partitions.items() if partition.get("Default") == "YES"}


def read_slurm(launcher: Launcher, iteration_s: float | None = None) -> SlurmFacts:
    """Return the facts that Slurm gives about itself, and about the request."""
    facts = SlurmFacts(launcher=launcher, iteration_s=iteration_s)
    try:
        launcher.check()
    except UserError as error:
        facts.refusal = str(error)
    try:
        facts.config = parse_config(ask("scontrol", "show", "config"))
        facts.partitions = parse_partitions(ask("scontrol", "--oneliner", "show", "partition"))
    except UserError as error:
        facts.refusal = facts.refusal or str(error)
    return facts


def parse_config(text: str) -> dict[str, str]:
    """Return the names and values of `scontrol show config`."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def parse_partitions(text: str) -> dict[str, dict[str, str]]:
    """Return the fields of each partition in `scontrol --oneliner show partition`."""
    rows = (dict(word.split("=", 1) for word in line.split() if "=" in word) for line in text.splitlines())
    return {row["PartitionName"]: row for row in rows if "PartitionName" in row}


def check_request(facts: SlurmFacts) -> Finding:
    """The partition exists, and has nodes with the GPUs and cores that a run requests."""
    launcher, known = facts.launcher, facts.partitions
    if unknown := [name for name in launcher.partition.split(",") if name and known and name not in known]:
        return fail(f"launcher.partition={unknown[0]}: is not a partition", f"one of {join(list(known), 20)}")
    if facts.refusal:
        return refused(facts.refusal, "a Slurm that answers on this machine")
    for name, partition in facts.mine.items():
        for key in ("MaxNodes", "TotalNodes"):
            most = partition.get(key, "")
            if most.isdecimal() and launcher.nodes > int(most):
                found = f"launcher.nodes={launcher.nodes}: partition {name} has {key}={most}"
                return fail(found, f"at most {most} nodes, or another partition")
        if partition.get("State", "UP") != "UP":
            return fail(f"partition {name} is {partition['State']}", f"one that is up, of {join(list(known))}")
    each = f"nodes={launcher.nodes}, gpus={launcher.gpus}, ranks={launcher.ranks_a_node}"
    return ok(f"partition {join(list(facts.mine)) or 'none'}: {each}")


def check_time(facts: SlurmFacts) -> Finding:
    """The time limit of a run is within the partition's."""
    wanted = read_seconds(facts.launcher.time)
    for name, partition in facts.mine.items():
        given = partition.get("MaxTime", "")
        most = _seconds(given)
        if most is not None and wanted > most:
            found = f"launcher.time={facts.launcher.time}: partition {name} has MaxTime={given}"
            return fail(found, f"at most {given}: a run continues in the next job")
    known = [f"{name}: {partition.get('MaxTime', 'unknown')}" for name, partition in facts.mine.items()]
    return ok(f"MaxTime of {join(known)}" if known else "no partition")


def _seconds(text: str) -> int | None:
    """Return a time of Slurm's [s]; None for no limit."""
    try:
        return read_seconds(text) or None
    except UserError:
        return None


def check_cred_expire(facts: SlurmFacts) -> Finding:
    """A requeued job is not held long until its credential has expired."""
    match = re.search(r"cred_expire=(\d+)", facts.config.get("AuthInfo", ""))
    seconds = int(match[1]) if match else CRED_EXPIRE_S
    what = f"AuthInfo has cred_expire={seconds}" if match else "AuthInfo is without cred_expire"
    if seconds > GOOD_EXPIRE_S:
        found = f"{what}: a requeued job is held for about {seconds} s"
        return warn(found, "AuthInfo=cred_expire=5 in slurm.conf")
    return ok(what)


def check_preemption(facts: SlurmFacts) -> Finding:
    """A preempted job is requeued, after more time than an iteration and a checkpoint take."""
    modes = {name: _mode(facts.config, partition) for name, partition in facts.mine.items()}
    right = "PreemptMode=REQUEUE of the cluster or the partition"
    for name, mode in modes.items():
        if mode == "CANCEL":
            return fail(f"partition {name} has PreemptMode=CANCEL: jobs end", right)
        if mode in ("SUSPEND", "GANG"):
            found = f"partition {name} has PreemptMode={mode}: a stopped job keeps its memory and its peers wait"
            return warn(found, right)
    if all(mode == "OFF" for mode in modes.values()):
        return ok("PreemptMode=OFF: no job is preempted")
    return _check_grace(facts, [name for name, mode in modes.items() if mode == "REQUEUE"])


def _check_grace(facts: SlurmFacts, names: Sequence[str]) -> Finding:
    """Check GraceTime of the partitions in which jobs are requeued."""
    iteration_s = facts.iteration_s or 0.0
    known = f"an iteration takes {iteration_s:.1f} s" if iteration_s else "an iteration and a checkpoint take longer"
    needed = iteration_s + SAVE_S
    for name in names:
        grace = int(facts.mine[name].get("GraceTime", "0") or 0)
        if grace < needed:
            found = f"partition {name} has GraceTime={grace}: {known}"
            return (warn if grace else fail)(found, f"GraceTime={needed:.0f} or more")
    graces = [f"{name} {facts.mine[name].get('GraceTime', '0')} s" for name in names]
    return ok(f"PreemptMode=REQUEUE, GraceTime of {join(graces)}")


def _mode(config: Mapping[str, str], partition: Mapping[str, str]) -> str:
    """Return the mode of preemption in a partition; OFF if the cluster has none."""
    if config.get("PreemptType", "preempt/none").endswith("none"):
        return "OFF"
    mode = partition.get("PreemptMode") or config.get("PreemptMode", "OFF")
    return next((part for part in mode.split(",") if part != "GANG"), mode)


def check_requeue(facts: SlurmFacts) -> Finding:
    """Jobs may be requeued."""
    if facts.config.get("JobRequeue", "1") == "0":
        found = "JobRequeue=0: scripts of launcher=slurm ask for it themselves, yours do not"
        return warn(found, "#SBATCH --requeue in your own scripts")
    return ok("JobRequeue=1")


def check_slurm(facts: SlurmFacts) -> list[tuple[str, Finding]]:
    """Return the findings of all checks that can be made; only the request's if Slurm does not answer."""
    checks = {"request": check_request}
    if facts.mine:
        checks |= {"time limit": check_time, "preemption": check_preemption}
    if facts.config:
        checks |= {"cred_expire": check_cred_expire, "requeue": check_requeue}
    return [(name, check(facts)) for name, check in checks.items()]


def iteration_s(root: Path) -> float | None:
    """Return how long an iteration of the newest run takes [s]; None if there is none."""
    with contextlib.suppress(UserError):
        return next((row.iteration_s for row in read_runs(root) if row.iteration_s), None)
    return None


def ask_slurm(launcher: Launcher, cluster: Cluster, token: str) -> None:
    """Start a probe on each node by srun."""
    command = srun_command(launcher, cluster.root, token)
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    except FileNotFoundError:
        cluster.error = "srun is not on this machine"
        return
    try:
        exchange(cluster, process, ROOM_S + ANSWER_S)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()


def srun_command(launcher: Launcher, root: Path, token: str) -> list[str]:
    """Return the command that starts a probe on each node, with the resources that a run would request of it."""
    wanted = {
        "nodes": launcher.nodes,
        "ntasks": launcher.nodes,
        "ntasks-per-node": 1,
        "job-name": "preflight",
        "time": 5,
        "immediate": ROOM_S,
        "partition": launcher.partition,
        "gres": f"gpu:{launcher.gpus}" if launcher.gpus else "",
        "cpus-per-task": launcher.cpus * launcher.ranks_a_node or "",
        "kill-on-bad-exit": 0,
    }
    words = [f"--{name}={value}" for name, value in wanted.items() if value != ""]
    start = [sys.executable, "-m", "robot_rl.cli.main", "preflight", "probe=true", f"root={root}", f"token={token}"]
    setup = getattr(launcher, "setup", "")
    shell = ["bash", "-c", f'{setup}\nexec "$@"', "probe"] if setup else []
    return ["srun", *words, *shlex.split(getattr(launcher, "options", "")), *shell, *start]


def ask(*command: str) -> str:
    """Return the output of a command of Slurm's; raise UserError with its first line if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    except FileNotFoundError:
        raise UserError(f"launcher=slurm: {command[0]} is not on this machine") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"launcher=slurm: {command[0]} did not answer within {COMMAND_S} s") from None
    if done.returncode:
        line = next(iter(done.stderr.strip().splitlines()), f"exit code {done.returncode}")
        right = "" if command[0] == "sbatch" else f"; give the command where Slurm's own {command[0]} works"
        raise UserError(f"launcher=slurm: {command[0]} failed, {line}{right}")
    return done.stdout

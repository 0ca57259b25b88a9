"""A Slurm cluster on this machine: a controller and two nodes on loopback, without systemd, cgroups and accounting.

    with SlurmCluster() as cluster:
        job = cluster.submit("sleep 60", "--partition=low")
        cluster.wait(job, "RUNNING")

Jobs in the partition `high` preempt those in `low`, which are requeued. It runs as root or as any other user, whose
jobs it then runs. The nodes are called by addresses of loopback, so that a node's name can be connected to.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
NODES = ("127.0.0.1", "127.0.0.2")
CORES = 4
"""Cores that a node says it has, whatever the machine has."""
GRACE_S = 20
"""Time from a preemption's SIGTERM until a job is killed [s]."""
PORTS = range(30_000, 32_768)
"""Below the ports that the kernel gives to clients, above those at which a job's processes meet."""
PATIENCE_S = 60.0
POLL_S = 0.1
SBIN = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])

SETTINGS = {
    "AuthType": "auth/munge",
    "CredType": "cred/munge",
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "MpiDefault": "none",
    "JobAcctGatherType": "jobacct_gather/none",
    "AccountingStorageType": "accounting_storage/none",
    "JobCompType": "jobcomp/none",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core",
    "SlurmdParameters": "config_overrides",
    # How soon a job that was requeued starts again: it waits for cred_expire, then for the next look at the queue.
    "AuthInfo": "cred_expire=5",
    "SchedulerType": "sched/backfill",
    "SchedulerParameters": "sched_interval=1,bf_interval=1,batch_sched_delay=0",
    "PreemptType": "preempt/partition_prio",
    "PreemptMode": "REQUEUE",
    # How soon a lost node is noticed.
    "SlurmdTimeout": "6",
    "ReturnToService": "2",
    "KillWait": "5",
    "MessageTimeout": "5",
    "TCPTimeout": "2",
    "MinJobAge": "3600",
}


class SlurmCluster:
    """Runs while its context is open; what it wrote and started is gone afterwards, even if this process is killed."""

    def __init__(self, settings: Mapping[str, str] | None = None, *, grace_s: int = GRACE_S) -> None:
        """Describe a cluster.

        Args:
            settings: Lines of slurm.conf that are other ones; an empty value leaves a line out.
            grace_s: GraceTime of the partition `low` [s].
        """
        self.settings = {**SETTINGS, **(settings or {})}
        self.grace_s = grace_s
        self._nodes: dict[str, int] = {}

    def __enter__(self) -> "SlurmCluster":
        """Start it and wait until both nodes are idle."""
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-"))
        self.folder.chmod(0o711)  # munged refuses a socket that others cannot reach.
        self.env = {**os.environ, "PATH": SBIN, "SLURM_CONF": str(self.folder / "slurm.conf")}
        self.supervisor = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("supervisor.py")), str(self.folder)],
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes, jobs included, and remove everything."""
        self.supervisor.communicate(timeout=PATIENCE_S)
        assert self.supervisor.returncode == 0, "processes of the cluster are left"

    def _start(self) -> None:
        self._write()
        munge = self.folder / "munge"
        files = [f"--{name}={munge / name}" for name in ("socket", "pid-file", "log-file", "seed-file")]
        self._daemon("munged", "--foreground", "--force", f"--key-file={self.folder / 'munge.key'}", *files)
        self.until((munge / "socket").exists, "munged's socket")
        self._daemon("slurmctld", "-D", "-c")
        self.until(lambda: self._run("scontrol", "ping").returncode == 0, "an answer of slurmctld")
        for node in NODES:
            self.start_node(node)
        self.until(lambda: set(self.node_states().values()) == {"idle"}, "both nodes idle")

    def _write(self) -> None:
        """Write slurm.conf and a key, and make the directories."""
        user = subprocess.run(["id", "-un"], check=True, capture_output=True, text=True).stdout.strip()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        for name in ("munge", "state", *(f"spool-{node}" for node in NODES)):
            (self.folder / name).mkdir(mode=0o755)
        ports = free_ports(1 + len(NODES))
        auth = f"socket={self.folder / 'munge/socket'},{self.settings['AuthInfo']}"
        lines = {
            "ClusterName": "test",
            "SlurmctldHost": "localhost(127.0.0.1)",
            "SlurmctldPort": ports[0],
            "SlurmUser": user,
            "SlurmdUser": user,
            "StateSaveLocation": self.folder / "state",
            "SlurmdSpoolDir": self.folder / "spool-%n",
            "SlurmctldPidFile": self.folder / "slurmctld.pid",
            "SlurmdPidFile": self.folder / "slurmd-%n.pid",
            "CommunicationParameters": listening(),
            # The port at which a job's processes meet comes from its id: another one in each cluster on this machine.
            "FirstJobId": random.SystemRandom().randrange(10_000, 19_000),
            **self.settings,
            "AuthInfo": auth.rstrip(","),
        }
        cores = f"CPUs={CORES} Boards=1 SocketsPerBoard=1 CoresPerSocket={CORES} ThreadsPerCore=1"
        text = [f"{name}={value}" for name, value in lines.items() if value]
        for node, port in zip(NODES, ports[1:], strict=True):
            text.append(f"NodeName={node} NodeAddr=127.0.0.1 Port={port} {cores}")
        nodes = ",".join(NODES)
        text.append(f"PartitionName=low Nodes={nodes} Default=YES PriorityTier=1 GraceTime={self.grace_s}")
        text.append(f"PartitionName=high Nodes={nodes} PriorityTier=10 PreemptMode=OFF")
        (self.folder / "slurm.conf").write_text("\n".join(text) + "\n")

    def _daemon(self, name: str, *words: str) -> int:
        """Start a daemon; return its process id."""
        assert self.supervisor.stdin is not None
        assert self.supervisor.stdout is not None
        command = [shutil.which(name, path=self.env["PATH"]) or name, *words]
        self.supervisor.stdin.write(json.dumps([command, str(self.folder / f"{name}.log")]) + "\n")
        self.supervisor.stdin.flush()
        return int(self.supervisor.stdout.readline())

    def start_node(self, node: str) -> None:
        """Start the daemon of a node."""
        self._nodes[node] = self._daemon("slurmd", "-D", "-N", node)

    def kill_node(self, node: str) -> None:
        """Kill the daemon of a node and all processes of the jobs there, as a power cut would."""
        mine = {self._nodes.pop(node)} if node in self._nodes else set()
        for process in psutil.Process(self.supervisor.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.environ().get("SLURMD_NODENAME") == node:
                    mine |= {process.pid, *(above.pid for above in process.parents() if "slurmstepd" in above.name())}
        for pid in mine:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def node_states(self) -> dict[str, str]:
        """Return the state of each node, such as idle."""
        lines = self.command("sinfo", "--noheader", "--Node", "--partition=low", "--format=%N %T").splitlines()
        return dict(line.split() for line in lines)

    def submit(self, script: str, *options: str) -> str:
        """Submit a script of bash lines with options of sbatch; return the job's id."""
        path = self.folder / "job.sh"
        path.write_text(f"#!/bin/bash\n{script}\n")
        output = f"--output={self.folder}/%j.out"
        return self.command("sbatch", "--parsable", "--open-mode=append", output, *options, str(path)).strip()

    def output(self, job: str) -> str:
        """Return what a job that `submit` submitted has printed so far, in all of its starts."""
        path = self.folder / f"{job}.out"
        return path.read_text() if path.is_file() else ""

    def facts(self, job: str) -> dict[str, str]:
        """Return what Slurm knows of a job, such as JobState, Restarts, ExitCode and NodeList."""
        words = self.command("scontrol", "--oneliner", "show", "job", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def state(self, job: str) -> str:
        """Return the state of a job, such as PENDING."""
        return self.facts(job)["JobState"]

    def wait(self, job: str, *states: str, timeout_s: float = PATIENCE_S) -> dict[str, str]:
        """Wait until a job is in one of some states, and return its facts."""
        self.until(lambda: self.state(job) in states, f"job {job} {' or '.join(states)}", timeout_s)
        return self.facts(job)

    def cancel(self, job: str) -> None:
        """End a job."""
        self.command("scancel", job)

    def clear(self) -> None:
        """Kill all jobs, those that are requeued meanwhile too, and wait until the nodes are there and free."""
        for node, state in self.node_states().items():  # A test that failed has killed it, or slurmd has crashed.
            if not psutil.pid_exists(self._nodes.get(node, -1)) or state.startswith("down"):
                self.kill_node(node)
                self.start_node(node)

        def is_empty() -> bool:
            jobs = self.command("squeue", "--noheader", "--format=%A").split()
            if jobs:
                self._run("scancel", "--signal=KILL", "--full", *jobs)
            return not jobs

        self.until(is_empty, "empty queue")
        self.until(lambda: set(self.node_states().values()) == {"idle"}, "two idle nodes")

    def command(self, *words: str) -> str:
        """Return the output of one of Slurm's commands, which has to succeed."""
        done = self._run(*words)
        assert done.returncode == 0, f"{words[0]}: {done.stderr}"
        return done.stdout

    def logs(self) -> str:
        """Return the ends of the daemons' logs."""
        return "\n".join(f"{path.name}: {path.read_text()[-3000:]}" for path in sorted(self.folder.glob("*.log")))

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    def until(self, look: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait until a function returns True."""
        deadline = time.monotonic() + timeout_s
        while not look():
            assert time.monotonic() < deadline, f"no {what} within {timeout_s:.0f} s\n{self.logs()}"
            time.sleep(POLL_S)


def missing() -> list[str]:
    """Return the programs of Slurm that this machine lacks."""
    return [name for name in PROGRAMS if shutil.which(name, path=SBIN) is None]


def listening() -> str:
    """Return the setting with which daemons listen on loopback only.

    slurmd binds to what the machine's own name resolves to; where that is no address of loopback, the nodes, which are
    on loopback, would not be reached, and it has to listen on all addresses.
    """
    try:
        is_loopback = socket.gethostbyname(socket.gethostname()).startswith("127.")
    except OSError:
        is_loopback = False
    return "NoCtldInAddrAny,NoInAddrAny" if is_loopback else "NoCtldInAddrAny"


def free_ports(count: int) -> list[int]:
    """Return ports on which nothing listens on any address of loopback."""
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no free port")

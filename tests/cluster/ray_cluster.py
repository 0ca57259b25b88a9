"""A real Ray cluster on loopback: a head without cores, and worker nodes that can be killed or drained."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from tests.conftest import Forked

RAY = str(Path(sys.executable).with_name("ray"))
START = """
import json, sys
from ray._private import ray_constants, services
from ray.scripts.scripts import cli

ray_constants.ENABLE_RAY_CLUSTER = True
services.get_node_ip_address = lambda *_: "127.0.0.1"
for words in json.loads(sys.argv[1]):
    cli(["start", "--node-ip-address=127.0.0.1", "--disable-usage-stats", *words], standalone_mode=False)
"""
"""Several `ray start` whose nodes have the address of loopback. Ray gives them the machine's, unless a variable is set
with which it refuses more nodes than one."""
STORE = "--object-store-memory=80000000"
QUICK = {
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "4",
    "RAY_worker_niceness": "0",
}
"""A lost node is noticed in two to four seconds, and processes do not wait behind all others, as with Ray's 15."""

RUNNING = ("RayTrain", "train_alone", "TrainController", "SimulatorProcess", "EvaluatorProcess")
"""What the names of actors and tasks of a training have in them."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def agent_port():
    """Return the option with a port for a node's agent, without which no job is accepted: it has a fixed one."""
    return f"--dashboard-agent-listen-port={free_port()}"


class RayCluster:
    """A head and worker nodes, each a raylet of its own, in a folder; nothing listens beyond loopback."""

    def __init__(self, folder, *, nodes=2, dashboard=False):
        self.folder = folder
        self.address = f"127.0.0.1:{free_port()}"
        self.dashboard = f"http://127.0.0.1:{free_port()}"
        self.environ = {
            **os.environ,
            **QUICK,
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "disabled",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        self.raylets = []
        self._nodes = nodes + 1
        port = self.dashboard.rpartition(":")[2]
        head = ["--head", f"--port={self.address.partition(':')[2]}", "--num-cpus=0", f"--temp-dir={folder}"]
        more = [
            f"--include-dashboard={str(dashboard).lower()}",
            "--dashboard-host=127.0.0.1",
            f"--dashboard-port={port}",
        ]
        self._start([*head, *more], *[self._node() for _ in range(nodes)])

    def _node(self, cores=1):
        # The head's log monitor reads the logs of all nodes, which have one folder.
        return [f"--address={self.address}", f"--num-cpus={cores}", "--include-log-monitor=false"]

    def _start(self, *nodes):
        before = set(self._find_raylets())
        command = [sys.executable, "-c", START, json.dumps([[*words, STORE, agent_port()] for words in nodes])]
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        self.raylets += sorted(set(self._find_raylets()) - before, key=lambda process: process.pid)

    def add_node(self, cores=1):
        """Start a worker node and return its raylet's process."""
        self._start(self._node(cores))
        return self.raylets[-1]

    def processes(self):
        """Return all processes of the cluster, and of what runs on it."""
        found = []
        for process in psutil.process_iter(["cmdline", "ppid"]):
            words = " ".join(process.info["cmdline"] or [])
            # The server of Ray's client has the address among its words, not the folder.
            is_ours = str(self.folder) in words or f" --address={self.address} " in words
            if is_ours and process.pid != os.getpid():
                found.append(process)
        children = [child for process in found for child in _children(process)]
        return list({process.pid: process for process in [*found, *children]}.values())

    def workers(self):
        """Return the processes that train, by raylet's process id."""
        found = {}
        for raylet in self.raylets:
            for child in _children(raylet):
                if "RayTrainWorker" in " ".join(_words(child)):
                    found[raylet.pid] = child
        return found

    def kill_node(self, raylet):
        """Kill a node as if its machine were lost."""
        for process in [raylet, *_children(raylet)]:
            _kill(process)
        self.raylets.remove(raylet)

    def drain(self, raylet, seconds=60):
        """Announce that a node is taken away."""
        words = [
            "--reason=DRAIN_NODE_REASON_PREEMPTION",
            "--reason-message=test",
            f"--deadline-remaining-seconds={seconds}",
        ]
        command = [RAY, "drain-node", f"--address={self.address}", f"--node-id={node_id(raylet)}", *words]
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def run(self, root, *words):
        """Start a robot-rl command and return its process, with the output in a pipe."""
        return Forked(["-m", "robot_rl.cli.main", *words], cwd=root, env=self.environ)

    def busy(self):
        """Return the names of actors and tasks that still run, but for Ray's own that stay."""
        names = [words[0] for raylet in self.raylets for child in _children(raylet) if (words := _words(child))]
        return [name for name in names if any(part in name for part in RUNNING)]

    def is_idle(self, seconds):
        """Whether nothing runs any more within a time."""
        end = time.monotonic() + seconds
        while self.busy() and time.monotonic() < end:
            time.sleep(0.2)
        return not self.busy()

    def is_changed(self):
        """Whether it has not the nodes that it began with."""
        return len(self.raylets) != self._nodes or not all(raylet.is_running() for raylet in self.raylets)

    def stop(self):
        """Kill all of it."""
        for process in self.processes():
            _kill(process)
        psutil.wait_procs(self.processes(), timeout=10)

    def _find_raylets(self):
        found = []
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if words and words[0].endswith("/raylet") and any(str(self.folder) in word for word in words):
                found.append(process)
        return found


class Clusters:
    """One cluster for the tests of a module, in a folder of its own; another where a test left something that runs.

    A test that failed leaves its training, and the next would wait for room. Nothing is left in the end.
    """

    def __init__(self, **options):
        self._options = options
        self._cluster = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stop()

    def idle(self):
        """Return a cluster on which nothing runs."""
        if self._cluster is not None and (self._cluster.is_changed() or not self._cluster.is_idle(30)):
            self._stop()
        if self._cluster is None:
            folder = Path(tempfile.mkdtemp(prefix="ray"))  # Ray's sockets need a short path.
            self._cluster = RayCluster(folder, **self._options)
        return self._cluster

    def _stop(self):
        if self._cluster is None:
            return
        cluster, self._cluster = self._cluster, None
        cluster.stop()
        shutil.rmtree(cluster.folder, ignore_errors=True)
        assert cluster.processes() == []


def node_id(raylet):
    return next(word.partition("=")[2] for word in _words(raylet) if word.startswith("--node_id="))


def rows(path):
    """Return the rows of a run's metrics that are whole."""
    try:
        return [
            json.loads(line)
            for line in (path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
            if line[-1:] == b"\n"
        ]
    except OSError:
        return []


def wait_until(condition, seconds=240, process=None):
    """Wait for a condition; where the process ends before, show what it printed.

    Each process of a training takes ten seconds of a slow core to begin, and there may be six on one.
    """
    end = time.monotonic() + seconds
    while not condition():
        if process is not None and process.poll() is not None:
            raise AssertionError(process.communicate()[0])
        if time.monotonic() > end:
            if process is not None:
                process.kill()
            raise AssertionError("too late" if process is None else process.communicate()[0])
        time.sleep(0.1)


def _children(process):
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _words(process):
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def _kill(process):
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)

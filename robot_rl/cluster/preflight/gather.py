"""The submitter's side: start a probe on each node by the launcher's own means, and measure the clocks."""

from __future__ import annotations

import contextlib
import queue
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from robot_rl.cluster.launchers.launcher import Launcher
from robot_rl.cluster.preflight.facts import NodeFacts
from robot_rl.cluster.preflight.finding import Cluster
from robot_rl.cluster.preflight.probe import ANSWER_S, Messages, probe, without_slurm
from robot_rl.cluster.preflight.shared import SharedRoot

ROOM_S = 60
"""How long Slurm may take to find room for a probe on each node [s]."""
ERRORS_S = 5.0
"""How long the errors of a process that has ended may take to be read [s]."""


def gather(launcher: Launcher, root: Path) -> Cluster:
    """Ask each node of a launcher's, and return their answers; nothing is left below the root."""
    cluster = Cluster(launcher=launcher, root=root, wanted=launcher.nodes if launcher.name in ASKED else 1)
    with SharedRoot(root) as shared:
        cluster.root_error = shared.error
        ask = ASKED.get(launcher.name, _ask_here)
        ask(cluster, shared.token)
        cluster.nodes.sort(key=lambda node: node.name)
        if not shared.error:
            cluster.unseen = shared.missing(node.name for node in cluster.nodes if node.sees_token is not None)
    return cluster


def _ask_here(cluster: Cluster, token: str) -> None:
    """Ask this machine only; other machines of torchrun's are given the same command."""
    cluster.nodes = [probe(cluster.root, "" if cluster.root_error else token, without_slurm())]
    cluster.offsets_s = {node.name: (0.0, 0.0) for node in cluster.nodes}


def _ask_slurm(cluster: Cluster, token: str) -> None:
    """Start a probe on each node by srun."""
    command = srun_command(cluster.launcher, cluster.root, token)
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    except FileNotFoundError:
        cluster.error = "there is no srun on this machine"
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


def exchange(cluster: Cluster, process: Any, patience_s: float, clock: Callable[[], float] = time.time) -> None:
    """Read the nodes' facts from a process, then ask all of them for the time."""
    lines: queue.Queue[tuple[str, float] | None] = queue.Queue()

    def read() -> None:
        for line in process.stdout:
            lines.put((line, clock()))
        lines.put(None)

    errors: list[str] = []
    reader = threading.Thread(target=lambda: errors.extend(process.stderr), daemon=True)
    threading.Thread(target=read, daemon=True).start()
    reader.start()
    sent, messages = None, _messages(lines, time.monotonic() + patience_s)
    for name, message, at_s in messages:
        if "facts" in message:
            cluster.nodes.append(NodeFacts(**message["facts"]))
        elif sent is not None:
            cluster.offsets_s[name] = (message["time_s"] - at_s, message["time_s"] - sent)
        if sent is None and len(cluster.nodes) == cluster.wanted:
            sent = clock()
            with contextlib.suppress(OSError):
                process.stdin.write("\n")
                process.stdin.flush()
        if len(cluster.offsets_s) == cluster.wanted:
            return
    if len(cluster.nodes) < cluster.wanted:
        reader.join(ERRORS_S)
        reasons = [line.strip() for line in errors if line.strip()]
        cluster.error = reasons[-1] if reasons else "no answer"


def _messages(
    lines: queue.Queue[tuple[str, float] | None], deadline: float
) -> Iterator[tuple[str, Mapping[str, Any], float]]:
    """Return each message with its node's name and when it came, until the end or a deadline."""
    found = Messages()
    while (left := deadline - time.monotonic()) > 0:
        try:
            line = lines.get(timeout=left)
        except queue.Empty:
            return
        if line is None:
            return
        if message := found.add(line[0]):
            yield *message, line[1]


def _ask_ray(cluster: Cluster, token: str) -> None:
    """Run a probe as a task on each node of a Ray cluster; without one Ray would be started on this machine."""
    from robot_rl.cluster.preflight.ray_nodes import ask_ray

    if not ask_ray(cluster, token):
        _ask_here(cluster, token)


ASKED: dict[str, Callable[[Cluster, str], None]] = {"slurm": _ask_slurm, "ray": _ask_ray}
"""How the nodes of a launcher are asked; those of others are this machine."""

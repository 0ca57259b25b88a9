"""The submitter's side: start a probe on each node by the launcher's own means, and measure the clocks."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from robot_rl.cluster.preflight.facts import NodeFacts
from robot_rl.cluster.preflight.finding import Cluster, Request
from robot_rl.cluster.preflight.probe import Messages, probe, without_slurm
from robot_rl.cluster.preflight.shared import SharedRoot

ERRORS_S = 5.0
"""How long the errors of a process that has ended may take to be read [s]."""


def gather(launcher: Request, root: Path) -> Cluster:
    """Ask each node of a launcher's, and return their answers; nothing is left below the root."""
    cluster = Cluster(launcher=launcher, root=root, wanted=launcher.nodes)
    with SharedRoot(root) as shared:
        cluster.root_error = shared.error
        launcher.probe_nodes(cluster, shared.token)
        cluster.nodes.sort(key=lambda node: node.name)
        if not shared.error:
            cluster.unseen = shared.missing(node.name for node in cluster.nodes if node.sees_token is not None)
    return cluster


def probe_here(cluster: Cluster, token: str) -> None:
    """Ask this machine only."""
    cluster.nodes = [probe(cluster.root, "" if cluster.root_error else token, without_slurm())]
    cluster.offsets_s = {node.name: (0.0, 0.0) for node in cluster.nodes}


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
    messages = Messages()
    while (left := deadline - time.monotonic()) > 0:
        try:
            line = lines.get(timeout=left)
        except queue.Empty:
            return
        if line is None:
            return
        if message := messages.add(line[0]):
            yield *message, line[1]

"""A node's side: print its facts, and answer the submitter's questions about the root and the clock.

On standard output come the facts, then, when a line comes on standard input, the time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from robot_rl.cluster.manifests.processes import FIRST_PORT, PORTS
from robot_rl.cluster.preflight.facts import NodeFacts, can_bind, read_facts
from robot_rl.cluster.preflight.shared import answer, write_error

ANSWER_S = 120.0
"""How long the nodes may take to answer, from their start on [s]."""
MEET_S = 30.0
"""How long nodes try to reach the first one [s]; they start at different times."""
POLL_S = 0.2
STEP = 5003
"""Distance of the ports that are tried."""
PART = 400
"""Most characters of a message in a line."""


def probe(root: Path, token: str = "", environ: Mapping[str, str] = os.environ, name: str = "") -> NodeFacts:
    """Return the facts of this machine, and whether it sees the submitter's token and meets the first node.

    Args:
        root: The directory of runs.
        token: The submitter's, as in `SharedRoot`; "" without a submitter.
        environ: Environment variables.
        name: The node's name; Slurm's, or else the machine's, by default.
    """
    facts = read_facts(root, environ)
    facts.name = name or facts.name
    if token:
        facts.sees_token, facts.root_error = answer(root, token, facts.name)
    else:
        facts.root_error = write_error(root)
    size = int(environ.get("SLURM_NTASKS", "1"))
    if token and size > 1:
        first, ports = _first_node(environ), candidates(int(environ["SLURM_JOB_ID"]))
        if environ["SLURM_PROCID"] == "0":
            facts.meets = accept(ports, size - 1, token)
        else:
            facts.meets = reach(first, ports, token)
    return facts


def without_slurm() -> dict[str, str]:
    """Return this process's environment without the variables that a job of Slurm adds to it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}


def serve(facts: NodeFacts, asked: IO[str] = sys.stdin, out: IO[str] = sys.stdout) -> None:
    """Print the facts, then answer one line of the submitter's with the time [s since 1970]."""
    send(out, facts.name, {"facts": dataclasses.asdict(facts)})
    if asked.readline():
        send(out, facts.name, {"time_s": time.time()})


def send(out: IO[str], name: str, message: object) -> None:
    """Write a message as lines that srun passes on whole; it mixes parts of the nodes' longer lines."""
    text = json.dumps(message)
    parts = [text[k : k + PART] for k in range(0, len(text), PART)]
    out.writelines(json.dumps([name, k, len(parts), part]) + "\n" for k, part in enumerate(parts))
    out.flush()


class Messages:
    """Puts the lines of `send` together again."""

    def __init__(self) -> None:
        self._parts: dict[str, list[str]] = {}

    def add(self, line: str) -> tuple[str, dict[str, Any]] | None:
        """Return a node's name and its message if a line completes it; None otherwise, as for other lines."""
        try:
            name, k, count, part = json.loads(line)
        except (ValueError, TypeError):
            return None
        parts = self._parts.setdefault(str(name), [])
        if k != len(parts):
            return None
        parts.append(part)
        if len(parts) < count:
            return None
        return str(name), json.loads("".join(self._parts.pop(str(name))))


def candidates(job: int) -> list[int]:
    """Return ports of the range in which a job's processes meet, its own first: one may be taken."""
    return [FIRST_PORT + (job + k * STEP) % PORTS for k in range(4)]


def reach(host: str, ports: Sequence[int], token: str, *, patience_s: float = MEET_S) -> str:
    """Connect to the process that accepts at one of some ports with this token; return why it failed, or ""."""
    deadline, reason = time.monotonic() + patience_s, ""
    while time.monotonic() < deadline:
        for port in ports:
            try:
                with socket.create_connection((host, port), timeout=2) as connection:
                    if connection.recv(len(token), socket.MSG_WAITALL) == token.encode():
                        return ""
                    reason = f"port {port} is another program's"
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
        time.sleep(POLL_S)
    return f"{host} cannot be reached at ports {', '.join(map(str, ports))} ({reason})"


def accept(ports: Sequence[int], count: int, token: str, *, patience_s: float = MEET_S) -> str:
    """Accept a number of processes at the first port that is free, with a token; return why it failed, or ""."""
    deadline = time.monotonic() + patience_s
    port = next((port for port in ports if can_bind(port)), ports[0])
    try:
        with socket.create_server(("", port), backlog=count) as server:
            for k in range(count):
                server.settimeout(max(0.1, deadline - time.monotonic()))
                try:
                    with server.accept()[0] as connection:
                        connection.sendall(token.encode())
                except TimeoutError:
                    return f"{k} of {count} other nodes connected to port {port}"
    except OSError as error:
        return f"port {port} cannot be used ({(error.strerror or str(error)).lower()})"
    return ""


def _first_node(environ: Mapping[str, str]) -> str:
    """Return the name of a job's first node, as the batch script finds it."""
    nodes = environ.get("SLURM_JOB_NODELIST", "")
    with contextlib.suppress(OSError, subprocess.SubprocessError, IndexError):
        words = ["scontrol", "show", "hostnames", nodes]
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True)
        return done.stdout.split()[0]
    return nodes

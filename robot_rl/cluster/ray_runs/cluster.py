"""A Ray cluster: connect to one, or start one on this machine, and ask it for how many processes there is room."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_rl.errors import UserError
from robot_rl.machine import count_cores

QUICK = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "4",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    "RAY_TRAIN_ENABLE_STATE_ACTOR_RECONCILIATION": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}
"""Variables that make Ray Train notice a lost process within a second, and wait seconds for one that cannot come back.
Notices are watched for by each process of a run (`robot_rl.cluster.ray_runs.rank`)."""
LOCAL = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_worker_niceness": "0"}
"""Make a cluster that is started here listen on loopback only, which Ray does by itself on other systems, and its
processes as important as others: Ray gives them a niceness of 15."""
PROBE_S = 5.0
"""How long a cluster's address may take to answer [s]."""
STORE_BYTES = 80_000_000
"""Of a local cluster's object store, through which nearly nothing goes."""
SEGMENTS_BYTES = 500_000_000
"""The same with simulators: their segments go through it."""
SHARED_CPU = 0.001
"""The request of a process without its own cores: a machine that takes work at all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A machine of a cluster.

    Attributes:
        node_id: Ray's name of it.
        total: Its resources.
        free: Those that nothing uses; empty if it is being taken away.
    """

    node_id: str
    total: Mapping[str, float]
    free: Mapping[str, float]


def import_ray() -> Any:
    """Return Ray; raise UserError if it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    for name, value in QUICK.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        right = "install the extra ray: pip install 'robot-rl[ray]'"
        raise UserError(f"launcher=ray: the package {error.name or 'ray'} is missing; {right}") from None
    return ray


def connect(address: str, store_bytes: int = STORE_BYTES) -> str:
    """Connect to a cluster and return its address; "local" if one was started for this process. Once is enough.

    Args:
        address: host:port of a cluster; "auto": the one that runs on this machine, or a new one; "local": a new one.
        store_bytes: Size of the object store, if a new cluster is started.

    Raises:
        UserError: Ray is not installed, or nothing answers at the address.
    """
    if "ray" in sys.modules and sys.modules["ray"].is_initialized():
        return str(sys.modules["ray"].get_runtime_context().gcs_address)
    running = find_running() if address == "auto" else address
    if running and running != "local":
        ray = import_ray()
        _probe(running, address)
        try:
            ray.init(address=running, log_to_driver=False, logging_level="ERROR")
        except Exception as error:
            line = " ".join(str(error).split()) or type(error).__name__
            raise UserError("launcher.address", address, f"no Ray cluster can be used there ({line})") from None
        return running
    os.environ.update(LOCAL)
    ray = import_ray()
    try:
        ray.init(
            address="local",
            num_cpus=count_cores(),
            include_dashboard=False,
            object_store_memory=store_bytes,
            log_to_driver=False,
            logging_level="ERROR",
        )
    except Exception as error:  # Ray does not have its own class for a node that does not come up in time.
        line = " ".join(str(error).split()) or type(error).__name__
        raise UserError("launcher.address", address, f"no Ray can be started on this machine ({line})") from None
    return "local"


def disconnect() -> None:
    """Leave the cluster; one that was started for this process ends."""
    import_ray().shutdown()


def find_running(environ: Mapping[str, str] = os.environ) -> str:
    """Return the address of the cluster that runs on this machine or that RAY_ADDRESS names; empty if none does."""
    named = environ.get("RAY_ADDRESS", "")
    if named and named not in ("auto", "local"):
        return named
    file = Path(environ.get("RAY_TMPDIR") or tempfile.gettempdir()) / "ray" / "ray_current_cluster"
    address = file.read_text().strip() if file.is_file() else ""
    return address if address and answers(address) else ""


def list_nodes() -> list[Node]:
    """Return the machines of the cluster that is connected, which are alive."""
    import ray
    from ray._private.state import available_resources_per_node, state

    # Ray Train asks for draining nodes by the same function; Ray does not have a public one.
    leaving, free = state.get_draining_nodes(), available_resources_per_node()
    return [
        Node(node_id=name, total=node["Resources"], free={} if name in leaving else free.get(name, {}))
        for node in ray.nodes()
        if node["Alive"] and (name := node["NodeID"])
    ]


def is_leaving(node_id: str) -> bool:
    """Return whether a machine is being taken away: Ray's drain, with which preemption is announced."""
    from ray._private.state import state

    return node_id in state.get_draining_nodes()


def count(resources: Mapping[str, float], need: Mapping[str, float]) -> int:
    """Return how many processes that need so much each fit into resources."""
    return int(min(resources.get(name, 0.0) // amount for name, amount in need.items() if amount > 0))


def room(nodes: list[Node], need: Mapping[str, float], *, total: bool = False) -> int:
    """Return for how many processes machines have room; `total`: if nothing else ran on them."""
    return sum(count(node.total if total else node.free, need) for node in nodes)


def _probe(running: str, address: str) -> None:
    if not answers(running):
        right = "start a cluster (ray start --head), or omit it for one on this machine"
        raise UserError("launcher.address", address, f"nothing answers at {running}", right)


def answers(address: str) -> bool:
    """Return whether something listens at host:port."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return False
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_S).close()
    except OSError:
        return False
    return True


def last_line(error: Exception) -> str:
    """Return the last line of an error of Ray's, which is the error of a process; without one the error's class."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def result(ref: Any, lost: Callable[[Exception], Exception]) -> Any:
    """Return the result of a call of a process; raise its own error, or `lost` of Ray's if the process is gone."""
    import ray
    from ray import exceptions

    try:
        return ray.get(ref)
    except exceptions.RayTaskError as error:
        raise error.as_instanceof_cause() from None
    except exceptions.RayError as error:
        raise lost(error) from None


def make_actor(process: type, cpus: float, gpus: float, threads: int, **options: Any) -> Any:
    """Return an actor that is not started yet; 0 `cpus`: it shares a machine with any other work."""
    import ray

    return ray.remote(process).options(
        num_cpus=cpus or SHARED_CPU,
        num_gpus=gpus,
        runtime_env={"env_vars": {"OMP_NUM_THREADS": str(threads)}},
        scheduling_strategy="SPREAD",
        **options,
    )

"""Probes as tasks on each node of a Ray cluster."""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from pathlib import Path
from typing import Any

from robot_rl.preflight.facts import NodeFacts
from robot_rl.preflight.finding import Cluster

ANSWER_S = 120.0


def ask_ray(cluster: Cluster, token: str) -> bool:
    """Ask as many living nodes as a run would have, those with its GPUs first; return False where no cluster runs."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ModuleNotFoundError:
        cluster.error = "ray is not installed here (pip install 'robot-rl[ray]')"
        return True
    address = getattr(cluster.launcher, "address", "auto")
    if "://" in address:
        cluster.error = f"launcher.address={address}: preflight needs host:port of the cluster itself"
        return True
    was_connected = ray.is_initialized()
    try:
        if not was_connected:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        if address == "auto" and isinstance(error, ConnectionError):
            return False
        cluster.error = " ".join(str(error).split())[:200]
        return True
    try:
        _ask(ray, cluster, token)
    finally:
        if not was_connected:
            ray.shutdown()
    return True


def _ask(ray: Any, cluster: Cluster, token: str) -> None:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    gpus = cluster.launcher.gpus
    alive = [node for node in ray.nodes() if node["Alive"]]
    alive.sort(key=lambda node: node["Resources"].get("GPU", 0) >= gpus, reverse=True)
    facts, now = ray.remote(num_cpus=0, max_retries=0)(_facts), ray.remote(num_cpus=0, max_retries=0)(_now)
    asked = []
    for node in alive[: cluster.wanted]:
        place = {"scheduling_strategy": NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)}
        options = {**place, "num_gpus": gpus} if gpus else place
        asked.append((place, facts.options(**options).remote(str(cluster.root), token, node["NodeManagerAddress"])))
    for place, answer in asked:
        try:
            node = NodeFacts(**ray.get(answer, timeout=ANSWER_S))
            sent = time.time()
            seconds = ray.get(now.options(**place).remote(), timeout=ANSWER_S)
        except ray.exceptions.RayError as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            cluster.error = lines[-1].strip()[:200] if lines else type(error).__name__
            continue
        cluster.nodes.append(node)
        cluster.offsets_s[node.name] = (seconds - time.time(), seconds - sent)


def _now() -> float:
    return time.time()


def _facts(root: str, token: str, address: str) -> dict[str, Any]:
    """Return the facts of the node on which this task runs."""
    from robot_rl.preflight.probe import probe

    environ = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    facts = probe(Path(root), token, environ)
    return {**dataclasses.asdict(facts), "name": f"{facts.name} ({address})"}

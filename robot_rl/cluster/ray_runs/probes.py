"""Probes as tasks on each node of a Ray cluster."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robot_rl.cluster.preflight.facts import NodeFacts
from robot_rl.cluster.preflight.finding import Cluster
from robot_rl.cluster.preflight.probe import ANSWER_S, probe, without_slurm
from robot_rl.cluster.ray_runs.cluster import import_ray, last_line
from robot_rl.cluster.ray_runs.jobs import is_job_address


def ask_ray(cluster: Cluster, address: str, token: str) -> None:
    """Ask as many nodes of the cluster that is connected as a run would have, those with its GPUs and cores first."""
    if is_job_address(address):
        cluster.error = f"launcher.address={address}: preflight needs host:port of the cluster itself"
        return
    ray = import_ray()
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    gpus = cluster.launcher.gpus
    alive = [node for node in ray.nodes() if node["Alive"]]
    cores = max(1, cluster.launcher.cpus * cluster.launcher.ranks_a_node)
    alive.sort(key=lambda node: _has(node["Resources"], {"GPU": gpus, "CPU": cores}), reverse=True)
    facts, now = ray.remote(num_cpus=0, max_retries=0)(_facts), ray.remote(num_cpus=0, max_retries=0)(_now)
    asked = []
    for node in alive[: cluster.wanted]:
        place = {"scheduling_strategy": NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)}
        options = {**place, "num_gpus": gpus} if gpus else place
        name = f"{node['NodeManagerAddress']} ({node['NodeID'][:8]})"
        asked.append((place, facts.options(**options).remote(str(cluster.root), token, name)))
    for place, answer in asked:
        try:
            node = NodeFacts(**ray.get(answer, timeout=ANSWER_S))
            sent = time.time()
            seconds = ray.get(now.options(**place).remote(), timeout=ANSWER_S)
        except ray.exceptions.RayError as error:
            cluster.error = last_line(error)[:200]
            continue
        cluster.nodes.append(node)
        cluster.offsets_s[node.name] = (seconds - time.time(), seconds - sent)


def _has(resources: Mapping[str, float], wanted: Mapping[str, float]) -> bool:
    """Return whether a node has so much: a head may not offer any cores."""
    return all(resources.get(name, 0) >= amount for name, amount in wanted.items())


def _now() -> float:
    return time.time()


def _facts(root: str, token: str, name: str) -> dict[str, Any]:
    """Return the facts of the node on which this task runs."""
    return dataclasses.asdict(probe(Path(root), token, without_slurm(), name))

"""All checks of a launcher, in order."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from robot_rl.cluster.launchers.launcher import Launcher
from robot_rl.cluster.preflight import network_checks, node_checks, slurm_checks
from robot_rl.cluster.preflight.finding import FAIL, Cluster, Finding, ok, refused
from robot_rl.cluster.preflight.gather import gather
from robot_rl.errors import UserError
from robot_rl.runs.run_index import read_runs


def preflight(launcher: Launcher, root: Path) -> Iterator[tuple[str, Finding]]:
    """Return each check's name and its finding.

    Where Slurm would refuse the request, its nodes are not asked.
    """
    request = _check_launcher(launcher, root)
    yield from request
    if any(finding.status == FAIL for name, finding in request if name == "request"):
        return
    yield from check_cluster(gather(launcher, root))


def check_cluster(cluster: Cluster) -> Iterator[tuple[str, Finding]]:
    """Return the findings from the nodes' answers; without an answer only that."""
    for name, check in {**node_checks.CHECKS, **network_checks.CHECKS}.items():
        if cluster.nodes or name == "nodes":
            yield name, check(cluster)


def _check_launcher(launcher: Launcher, root: Path) -> list[tuple[str, Finding]]:
    """Return the findings of the request, before a node is asked."""
    if launcher.name == "slurm":
        return slurm_checks.check_slurm(slurm_checks.read_slurm(launcher, _iteration_s(root)))
    try:
        launcher.check()
    except UserError as error:
        return [("request", refused(error))]
    return [("request", ok(f"launcher={launcher.name} accepts it"))]


def _iteration_s(root: Path) -> float | None:
    """Return how long an iteration of the newest run takes [s]; None if there is none."""
    with contextlib.suppress(UserError):
        return next((row.iteration_s for row in read_runs(root) if row.iteration_s), None)
    return None

"""All checks of a launcher, in order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from robot_rl.cluster.preflight import network_checks, node_checks
from robot_rl.cluster.preflight.finding import FAIL, Cluster, Finding, Request
from robot_rl.cluster.preflight.gather import gather


def preflight(launcher: Request, root: Path) -> Iterator[tuple[str, Finding]]:
    """Return each check's name and its finding.

    If the cluster would refuse the request, its nodes are not asked.
    """
    findings = launcher.cluster_checks(root)
    yield from findings
    if not any(finding.status == FAIL for name, finding in findings if name == "request"):
        yield from check_cluster(gather(launcher, root))


def check_cluster(cluster: Cluster) -> Iterator[tuple[str, Finding]]:
    """Return the findings from the nodes' answers; without an answer only that."""
    for name, check in {**node_checks.CHECKS, **network_checks.CHECKS}.items():
        if cluster.nodes or name == "nodes":
            yield name, check(cluster)

"""An Indexed Job of Kubernetes with a pod for each node: the object that JobSet and Kueue start."""

from __future__ import annotations

from typing import Any

from robot_rl.cluster.manifests import processes
from robot_rl.cluster.manifests.exit_codes import pod_failure_policy
from robot_rl.cluster.manifests.job import ClusterJob
from robot_rl.cluster.manifests.pod import CONTAINER, template, to_env
from robot_rl.cluster.manifests.quantities import read_seconds


def spec(job: ClusterJob, address: str, *, retries: int, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the Job's spec.

    Args:
        job: The job.
        address: The host name of the first pod.
        retries: How many pods may fail before the Job does, those of its podFailurePolicy excepted.
        annotations: Annotations of its pods.
    """
    limit = read_seconds(job.time)
    words = processes.command(job)
    return {
        "completionMode": "Indexed",
        "completions": job.nodes,
        "parallelism": job.nodes,
        "backoffLimit": retries,
        **({"activeDeadlineSeconds": limit} if limit else {}),
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": pod_failure_policy(CONTAINER),
        "template": template(job, _variables(job, address), words, annotations=annotations),
    }


def _variables(job: ClusterJob, address: str) -> list[dict[str, Any]]:
    if job.size == 1:
        return []
    index = {"name": processes.index_name(job), "valueFrom": {"fieldRef": {"fieldPath": processes.INDEX}}}
    return [index, *to_env(processes.variables(job, address))]

"""Who may reach a run's pods: the run's own, what looks for metrics, and of Ray the operator that submits the job."""

from __future__ import annotations

from typing import Any

from robot_rl.manifests.job import ClusterJob
from robot_rl.manifests.pod import RUN_LABEL, labels

OPERATOR = {"app.kubernetes.io/name": "kuberay-operator"}
"""The label of KubeRay's operator, as its chart sets it."""
DASHBOARD = 8265
"""The port of Ray's head to which the operator submits the job."""


def policy(job: ClusterJob, *, has_ray: bool = False) -> dict[str, Any]:
    """Return the NetworkPolicy of a run's pods.

    Whoever reaches the store by which the processes meet, or a Ray cluster, can run code in them.
    """
    own = {"matchLabels": {RUN_LABEL: job.name}}
    rules: list[dict[str, Any]] = [{"from": [{"podSelector": own}]}]
    if job.metrics_port:
        rules.append({"ports": [{"port": job.metrics_port, "protocol": "TCP"}]})
    if has_ray:
        operator = {"namespaceSelector": {}, "podSelector": {"matchLabels": OPERATOR}}
        rules.append({"from": [operator], "ports": [{"port": DASHBOARD, "protocol": "TCP"}]})
    place = {"namespace": job.namespace} if job.namespace else {}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": job.name, **place, "labels": labels(job)},
        "spec": {"podSelector": own, "policyTypes": ["Ingress"], "ingress": rules},
    }

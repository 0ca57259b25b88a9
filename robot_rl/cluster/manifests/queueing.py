"""Kueue: the placement of pods, and an example of a queue with flavours."""

from __future__ import annotations

from typing import Any

from robot_rl.cluster.manifests.job import ClusterJob
from robot_rl.cluster.manifests.pod import GPU, SPOT_LABELS, spot_tolerations
from robot_rl.cluster.manifests.quantities import read_mebibytes

QUEUE_NAME = "kueue.x-k8s.io/queue-name"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
API = "kueue.x-k8s.io/v1beta2"
ON_DEMAND, SPOT, TOPOLOGY = "robot-rl-on-demand", "robot-rl-spot", "robot-rl-topology"


def pod_annotations(job: ClusterJob) -> dict[str, str]:
    """Return the annotations of the pods: where Kueue should place them."""
    return {PREFERRED: job.topology} if job.topology and job.queue else {}


def queue_documents(job: ClusterJob) -> list[dict[str, Any]]:
    """Return a local queue, its cluster queue of this job's size, and its flavours, where requested."""
    if not (job.queues and job.queue):
        return []
    flavors = [_flavor(SPOT if job.spot else ON_DEMAND, job)]
    cluster = {
        "apiVersion": API,
        "kind": "ClusterQueue",
        "metadata": {"name": job.queue},
        "spec": {
            "namespaceSelector": {},
            "queueingStrategy": "BestEffortFIFO",
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [_quotas(job, [flavor["metadata"]["name"] for flavor in flavors])],
        },
    }
    local = {
        "apiVersion": API,
        "kind": "LocalQueue",
        "metadata": {"name": job.queue, "namespace": job.namespace or "default"},
        "spec": {"clusterQueue": job.queue},
    }
    return [*_topology(job), *flavors, cluster, local]


def _topology(job: ClusterJob) -> list[dict[str, Any]]:
    if not job.topology:
        return []
    levels = [{"nodeLabel": job.topology}, {"nodeLabel": "kubernetes.io/hostname"}]
    spec = {"levels": levels[:1] if job.topology == "kubernetes.io/hostname" else levels}
    return [{"apiVersion": API, "kind": "Topology", "metadata": {"name": TOPOLOGY}, "spec": spec}]


def _flavor(name: str, job: ClusterJob) -> dict[str, Any]:
    """Return a flavour; that of machines which may be taken away has Google's label, to be changed elsewhere."""
    key, value = SPOT_LABELS[0]
    nodes = {key: value} if name == SPOT else {"kubernetes.io/os": "linux"}
    spec: dict[str, Any] = {"nodeLabels": nodes}
    if name == SPOT:
        spec["tolerations"] = spot_tolerations()[:1]
    if job.topology:
        spec["topologyName"] = TOPOLOGY
    return {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}


def _quotas(job: ClusterJob, flavors: list[str]) -> dict[str, Any]:
    """Return quotas for one job of this size: of every resource that it requests."""
    memory = read_mebibytes(job.memory) * job.size
    wanted = {"cpu": job.cpus * job.size, "memory": f"{memory}Mi" if memory else 0, GPU: job.gpus * job.nodes}
    quotas = [{"name": name, "nominalQuota": amount} for name, amount in wanted.items() if amount]
    quotas = quotas or [{"name": "pods", "nominalQuota": job.nodes}]
    return {
        "coveredResources": [quota["name"] for quota in quotas],
        "flavors": [{"name": name, "resources": quotas} for name in flavors],
    }

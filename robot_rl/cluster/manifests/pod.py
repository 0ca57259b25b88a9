"""The pod of a node: container, resources, volumes, security, and the nodes it may run on."""

from __future__ import annotations

import re
from typing import Any

from robot_rl.cluster.manifests.exit_codes import GRACE_S
from robot_rl.cluster.manifests.job import ClusterJob
from robot_rl.cluster.manifests.quantities import read_mebibytes
from robot_rl.errors import UserError

CONTAINER = "train"
GPU = "nvidia.com/gpu"
CACHE = "/cache"
USER_ID = 1000
"""The user of the Dockerfile."""
SANDBOX = "gvisor"
RUN_LABEL = "robot-rl/run"
JOB_NAME = "batch.kubernetes.io/job-name"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
SPOT_LABELS = (
    ("cloud.google.com/gke-spot", "true"),
    ("eks.amazonaws.com/capacityType", "SPOT"),
    ("karpenter.sh/capacity-type", "spot"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
)
"""Labels of nodes that may be taken away, at Google, Amazon (the second: by Karpenter) and Azure; taints, as well."""


def template(
    job: ClusterJob, variables: list[dict[str, Any]], args: list[str], *, annotations: dict[str, str] | None = None
) -> dict[str, Any]:
    """Return the pod's template.

    Args:
        job: The job.
        variables: The container's environment, in addition to its caches' places.
        args: The container's arguments; none for a controller that writes its own.
        annotations: The pod's annotations, in addition to Prometheus'.
    """
    check_mount(job.mount)
    container = {
        "name": CONTAINER,
        "image": job.image,
        **({"args": args} if args else {}),
        "env": [*variables, *_caches(job)],
        "resources": resources(job),
        "volumeMounts": [
            {"name": "runs", "mountPath": job.mount},
            *({"name": name, "mountPath": path} for name, path in _SCRATCH),
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    all_annotations = {**(annotations or {}), **_scraped(job)}
    metadata = {"labels": labels(job), **({"annotations": all_annotations} if all_annotations else {})}
    return {"metadata": metadata, "spec": {**_spec(job), "containers": [container]}}


def check_mount(mount: str) -> None:
    """Raise UserError if a volume cannot be mounted at a path, or would hide files that the pod needs there."""
    taken = ("/dev", "/proc", "/sys", "/tmp", CACHE)
    is_taken = any(mount == path or mount.startswith(f"{path}/") for path in taken)
    if not re.fullmatch(r"(/[A-Za-z0-9_-][A-Za-z0-9._-]*){1,20}", mount) or is_taken:
        raise UserError("mount", mount[:80], f"must be a plain path such as /runs, and not below {', '.join(taken)}")


def labels(job: ClusterJob) -> dict[str, str]:
    """Return the labels of everything that belongs to a run."""
    return {"app.kubernetes.io/name": "robot-rl", RUN_LABEL: job.name}


def resources(job: ClusterJob) -> dict[str, Any]:
    """Return the resources of a node's processes. Cores are not limited: a process may use more for a moment."""
    memory = read_mebibytes(job.memory) * job.ranks
    bounded = {**({"memory": f"{memory}Mi"} if memory else {}), **({GPU: job.gpus} if job.gpus else {})}
    wanted = {**({"cpu": job.cpus * job.ranks} if job.cpus else {}), **bounded}
    return {**({"requests": wanted} if wanted else {}), **({"limits": bounded} if bounded else {})}


_GPU_TOLERATIONS = ({"key": GPU, "operator": "Exists", "effect": "NoSchedule"},)
"""Nodes with GPUs are often kept for pods that request one."""
_SCRATCH = (("shm", "/dev/shm"), ("cache", CACHE), ("tmp", "/tmp"))


def _spec(job: ClusterJob) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
    }
    if job.sandbox:
        spec["runtimeClassName"] = SANDBOX
    if job.spot:
        spec["affinity"] = {"nodeAffinity": _spot_affinity()}
    if job.spot or job.gpus:
        spec["tolerations"] = [*(_GPU_TOLERATIONS if job.gpus else ()), *(spot_tolerations() if job.spot else ())]
    spec["securityContext"] = {
        "runAsNonRoot": True,
        "runAsUser": USER_ID,
        "runAsGroup": USER_ID,
        "fsGroup": USER_ID,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    spec["volumes"] = [
        {"name": "runs", "persistentVolumeClaim": {"claimName": job.claim}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
        {"name": "cache", "emptyDir": {"sizeLimit": "16Gi"}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "16Gi"}},
    ]
    return spec


def _caches(job: ClusterJob) -> list[dict[str, Any]]:
    """Return where compiled kernels and state go, since the container's own file system can only be read."""
    places = {"HOME": "/tmp", "XDG_CACHE_HOME": CACHE, "XDG_STATE_HOME": f"{CACHE}/state"}
    if job.cpus:
        places["OMP_NUM_THREADS"] = str(job.cpus)
    return to_env(places)


def to_env(variables: dict[str, str]) -> list[dict[str, Any]]:
    """Return environment variables as a container has them."""
    return [{"name": name, "value": value} for name, value in variables.items()]


def _scraped(job: ClusterJob) -> dict[str, str]:
    if not job.metrics_port:
        return {}
    port = str(job.metrics_port)
    return {"prometheus.io/scrape": "true", "prometheus.io/port": port, "prometheus.io/path": "/metrics"}


def _spot_affinity() -> dict[str, Any]:
    """Return the affinity to nodes with any of the labels: terms are alternatives."""
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]} for key, value in SPOT_LABELS]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}


def spot_tolerations() -> list[dict[str, Any]]:
    """Return the tolerations that let a pod run on nodes that may be taken away."""
    return [{"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"} for key, value in SPOT_LABELS]

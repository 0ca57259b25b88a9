"""A RayJob of KubeRay: a Ray cluster for one run, which grows and shrinks with the machines there are."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

from robot_rl.cluster.manifests.documents import metadata, to_text
from robot_rl.cluster.manifests.job import ClusterJob
from robot_rl.cluster.manifests.pod import RUN_LABEL, template
from robot_rl.cluster.manifests.quantities import read_seconds
from robot_rl.cluster.manifests.queueing import pod_annotations

RAY_VERSION = "2.60.0"
RETRIES = 2
"""How often a new cluster is made: for a head that was lost. Ray itself replaces lost workers."""
IDLE_S = 300


def render_rayjob(job: ClusterJob) -> str:
    """Return the RayJob, its NetworkPolicy, and Kueue's queue where requested."""
    limit = read_seconds(job.time)
    is_scaled = not job.queue  # Kueue reserves a cluster's resources at its start, and refuses one that grows.
    cluster = {
        "rayVersion": RAY_VERSION,
        **_scaling(is_scaled),
        "headGroupSpec": _head(job, is_scaled=is_scaled),
        "workerGroupSpecs": _workers(job, is_scaled=is_scaled),
    }
    spec = {
        **({"suspend": True} if job.queue else {}),
        "entrypoint": entrypoint(job),
        "submissionMode": "HTTPMode",
        "backoffLimit": RETRIES,
        **({"activeDeadlineSeconds": limit} if limit else {}),
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": IDLE_S,
        "rayClusterSpec": cluster,
    }
    document = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata(job), "spec": spec}
    return to_text(job, document, has_ray=True)


def entrypoint(job: ClusterJob) -> str:
    """Return the driver's command: the run of that directory resumes, or begins if it does not have a checkpoint.

    It runs the settings that were resolved, not the command that run.yaml says the run was made by.
    """
    least = 1 if job.spot and job.nodes > 1 else 0  # With fewer machines the run continues with those.
    launcher = {"nodes": job.nodes, "min_nodes": least, "ranks": job.ranks, "gpus": job.gpus, "cpus": job.cpus}
    words = ["launcher=ray", *(f"launcher.{name}={value}" for name, value in launcher.items() if value)]
    trust = ["trust=true"] if job.trust else []
    return shlex.join(["robot-rl", "resume", f"run={job.task}/{job.run_id}", f"root={job.mount}", *trust, *words])


def _scaling(is_scaled: bool) -> dict[str, Any]:
    if not is_scaled:
        return {"enableInTreeAutoscaling": False}
    return {
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": {
            "version": "v2",
            "upscalingMode": "Default",
            "idleTimeoutSeconds": IDLE_S,
            "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        },
    }


def _head(job: ClusterJob, *, is_scaled: bool) -> dict[str, Any]:
    """Return the head: it starts the run and holds no worker, on a machine that stays."""
    stays = replace(job, spot=False, gpus=0, ranks=1, nodes=1, cpus=2, memory="8G", metrics_port=0)
    pod = _pod(stays, {})
    if is_scaled:  # The autoscaler next to it requests pods of Kubernetes.
        del pod["spec"]["automountServiceAccountToken"]
    return {"rayStartParams": {"num-cpus": "0", "dashboard-host": "0.0.0.0"}, "template": pod}


def _workers(job: ClusterJob, *, is_scaled: bool) -> list[dict[str, Any]]:
    """Return the groups of workers: on machines that stay, and, where allowed, on such that may be taken away."""
    least = 0 if is_scaled else job.nodes
    groups = {"spot": job, "workers": replace(job, spot=False)} if job.spot and is_scaled else {"workers": job}
    return [
        {
            "groupName": name,
            "replicas": least if number else job.nodes,
            "minReplicas": least,
            "maxReplicas": job.nodes,
            "rayStartParams": {"num-cpus": str(max(1, group.cpus) * group.ranks)},
            "template": _pod(group, pod_annotations(job)),
        }
        for number, (name, group) in enumerate(groups.items())
    ]


def _pod(job: ClusterJob, annotations: dict[str, str]) -> dict[str, Any]:
    """Return a pod of Ray: KubeRay writes its command."""
    variables = [{"name": "RAY_USAGE_STATS_ENABLED", "value": "0"}]
    pod = template(job, variables, [], annotations=annotations)
    del pod["spec"]["restartPolicy"]  # KubeRay replaces pods by itself.
    if job.topology and not job.queue and job.nodes > 1:
        near = {"labelSelector": {"matchLabels": {RUN_LABEL: job.name}}, "topologyKey": job.topology}
        affinity = pod["spec"].setdefault("affinity", {})
        affinity["podAffinity"] = {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": near}]
        }
    return pod

"""A Kubernetes cluster: a run is a JobSet, or a Job in a queue of Kueue, with a pod for each node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from robot_rl.cluster.launchers.applied import Applied
from robot_rl.cluster.launchers.launcher import Target
from robot_rl.cluster.manifests import processes
from robot_rl.cluster.manifests.documents import OPTIONS, metadata, to_text
from robot_rl.cluster.manifests.exit_codes import RETRIES, pod_failure_policy
from robot_rl.cluster.manifests.job import CLAIM, ClusterJob
from robot_rl.cluster.manifests.pod import CONTAINER, EXCLUSIVE, JOB_NAME, labels, template, to_env
from robot_rl.cluster.manifests.quantities import read_seconds
from robot_rl.cluster.manifests.queueing import pod_annotations
from robot_rl.errors import UserError

REPLICATED = "nodes"


@dataclass(kw_only=True, slots=True)
class Kubernetes(Applied):
    """Jobs of Kubernetes, by kubectl.

    Attributes:
        namespace: The namespace; empty: that of kubectl's context.
        queue: Local queue of Kueue; empty: none, which only a JobSet can do without.
        claim: The persistent volume claim with the runs.
        spot: Whether it runs on machines that may be taken away.
    """

    namespace: str = ""
    queue: str = ""
    claim: str = CLAIM
    spot: bool = False

    name: ClassVar[str] = "kubernetes"
    unused: ClassVar[tuple[str, ...]] = ("partition",)
    program: ClassVar[tuple[str, ...]] = ("kubectl", "apply", "--filename")
    targets: ClassVar[Mapping[str, Target]] = {
        "jobset": Target(
            info="A JobSet of Kubernetes: a pod for each node, all started again when one is lost", options=OPTIONS
        ),
        "kueue": Target(
            info="A Job of Kubernetes that waits in a queue of Kueue, with a pod for each node", options=OPTIONS
        ),
    }

    @classmethod
    def render(cls, job: ClusterJob, target: str) -> str:
        """Return the JobSet, or the Job and its service, with a NetworkPolicy, and Kueue's queue if requested."""
        return _render_jobset(job) if target == "jobset" else _render_kueue(job)


def _render_jobset(job: ClusterJob) -> str:
    """Return the JobSet, its NetworkPolicy, and Kueue's queue where requested.

    A pod that stopped and saved, or was evicted, is replaced. After any other failure the Job fails at once and the
    JobSet starts all its pods again, which counts one incident however many processes saw it; a code for which
    the pods' policy fails the Job also fails the JobSet.
    """
    address = f"{job.name}-{REPLICATED}-0-0.{job.name}"
    exclusive = {EXCLUSIVE: job.topology} if job.topology and not job.queue else {}
    spec = {
        **({"suspend": True} if job.queue else {}),
        "network": {"enableDNSHostnames": True, "subdomain": job.name},
        "coordinator": {"replicatedJob": REPLICATED, "jobIndex": 0, "podIndex": 0},
        "successPolicy": {"operator": "All", "targetReplicatedJobs": [REPLICATED]},
        "failurePolicy": {
            "maxRestarts": RETRIES,
            "restartStrategy": "BlockingRecreate",
            "rules": [
                {
                    "name": "giveUp",
                    "action": "FailJobSet",
                    "onJobFailureReasons": ["PodFailurePolicy", "DeadlineExceeded"],
                }
            ],
        },
        "replicatedJobs": [
            {
                "name": REPLICATED,
                "replicas": 1,
                "template": {
                    "metadata": {"labels": labels(job)},
                    "spec": _job_spec(job, address, retries=0, annotations=pod_annotations(job)),
                },
            }
        ],
    }
    document = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata(job, exclusive),
        "spec": spec,
    }
    return to_text(job, document)


def _render_kueue(job: ClusterJob) -> str:
    """Return the Job, its NetworkPolicy, the service that finds its first pod, and Kueue's queue where requested.

    A lost process ends the others, so that as many pods may fail as there are for each of the retries.
    """
    if not job.queue:
        raise UserError("queue: is missing; name the local queue of Kueue that the job waits in")
    document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(job),
        "spec": {
            "suspend": True,
            **_job_spec(job, f"{job.name}-0.{job.name}", retries=RETRIES * job.nodes, annotations=pod_annotations(job)),
        },
    }
    document["spec"]["template"]["spec"]["subdomain"] = job.name
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(job, is_queued=False),
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {JOB_NAME: job.name}},
    }
    return to_text(job, service, document)


def _job_spec(
    job: ClusterJob, address: str, *, retries: int, annotations: dict[str, str] | None = None
) -> dict[str, Any]:
    """Return the spec of an Indexed Job with a pod for each node: the object that JobSet and Kueue start.

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

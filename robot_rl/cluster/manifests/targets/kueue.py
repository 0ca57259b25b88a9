"""A Job of Kubernetes that waits in a queue of Kueue, with a pod for each node."""

from __future__ import annotations

from robot_rl.cluster.manifests import indexed_job
from robot_rl.cluster.manifests.documents import USED, metadata, to_text
from robot_rl.cluster.manifests.exit_codes import RETRIES
from robot_rl.cluster.manifests.job import ClusterJob
from robot_rl.cluster.manifests.queueing import pod_annotations
from robot_rl.errors import UserError

__all__ = ["USED"]
JOB_NAME = "batch.kubernetes.io/job-name"


def render(job: ClusterJob) -> str:
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
            **indexed_job.spec(
                job, f"{job.name}-0.{job.name}", retries=RETRIES * job.nodes, annotations=pod_annotations(job)
            ),
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

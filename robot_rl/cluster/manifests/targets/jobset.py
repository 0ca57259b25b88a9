"""A JobSet of Kubernetes: a pod for each node, all started again when one is lost."""

from __future__ import annotations

from robot_rl.cluster.manifests import indexed_job
from robot_rl.cluster.manifests.documents import USED, metadata, to_text
from robot_rl.cluster.manifests.exit_codes import RETRIES
from robot_rl.cluster.manifests.job import ClusterJob
from robot_rl.cluster.manifests.pod import labels
from robot_rl.cluster.manifests.queueing import pod_annotations

__all__ = ["USED"]
REPLICATED = "nodes"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"


def render(job: ClusterJob) -> str:
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
                    "spec": indexed_job.spec(job, address, retries=0, annotations=pod_annotations(job)),
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

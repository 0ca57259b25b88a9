"""Jobs that are rendered for every target, and the runs that they are of."""

import yaml

from robot_rl.cluster.launchers import list_targets
from robot_rl.cluster.manifests.job import ClusterJob

RUN = {"run_id": "rough-1", "task": "go2_rough", "made_by": "robot-rl manifest run=rough-1"}
JOBS = {
    "one node": {"gpus": 1, "metrics_port": 9400},
    "two nodes x 4 GPUs": {"nodes": 2, "ranks": 4, "gpus": 4, "cpus": 8, "memory": "16G", "time": "1-04:00:00"},
    "CPU only": {"cpus": 4, "memory": "8G"},
    "untrusted": {"gpus": 1, "sandbox": True, "trust": True},
    "spot": {
        "nodes": 2,
        "ranks": 2,
        "gpus": 2,
        "cpus": 4,
        "memory": "8G",
        "time": "04:00:00",
        "metrics_port": 9400,
        "spot": True,
        "topology": "topology.kubernetes.io/zone",
        "namespace": "robots",
        "partition": "h100",
    },
}
QUEUED = {"queue": "team", "queues": True}
TARGETS = ("jobset", "kueue", "osmo", "rayjob", "sbatch")


def make(target, case, **more):
    """The job of a case; one for Kueue waits in a queue."""
    return ClusterJob(**{**RUN, **(QUEUED if target == "kueue" else {}), **JOBS[case], **more})


def render(target, case, **more):
    return list_targets()[target].render(make(target, case, **more), target)


def documents(target, case, **more):
    return list(yaml.safe_load_all(render(target, case, **more)))


def of_kind(kind, target, case, **more):
    (found,) = [document for document in documents(target, case, **more) if document.get("kind") == kind]
    return found

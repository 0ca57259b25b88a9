"""What the documents of a job of Kubernetes have in common: names, labels, who may reach its pods, and its queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from robot_rl.cluster.manifests.job import ClusterJob
from robot_rl.cluster.manifests.pod import RUN_LABEL, labels
from robot_rl.cluster.manifests.queueing import QUEUE_NAME, queue_documents

OPTIONS = frozenset(
    {"namespace", "queue", "claim", "spot", "topology", "sandbox", "metrics_port", "image", "mount", "queues"}
)
"""The options of `robot-rl manifest` that have an effect on Kubernetes."""
OPERATOR = {"app.kubernetes.io/name": "kuberay-operator"}
"""The label of KubeRay's operator, as its chart sets it."""
DASHBOARD = 8265
"""The port of Ray's head to which the operator submits the job."""


def to_text(job: ClusterJob, *documents: dict[str, Any], has_ray: bool = False) -> str:
    """Return documents as YAML, after Kueue's queue, where requested, and the NetworkPolicy."""
    return to_yaml([*queue_documents(job), policy(job, has_ray=has_ray), *documents], job.made_by)


def metadata(job: ClusterJob, annotations: dict[str, str] | None = None, *, is_queued: bool = True) -> dict[str, Any]:
    """Return the metadata of a document, with the job's queue if this is the document that waits there."""
    return {
        "name": job.name,
        **({"namespace": job.namespace} if job.namespace else {}),
        "labels": {**labels(job), **({QUEUE_NAME: job.queue} if job.queue and is_queued else {})},
        **({"annotations": annotations} if annotations else {}),
    }


def policy(job: ClusterJob, *, has_ray: bool) -> dict[str, Any]:
    """Return the NetworkPolicy of a run's pods.

    Whoever reaches the store by which the processes meet, or a Ray cluster, can run code in them. So only these may
    reach them: the run's own pods, the collector of metrics and, of Ray, the operator that submits the job.
    """
    own_pods = {"matchLabels": {RUN_LABEL: job.name}}
    rules: list[dict[str, Any]] = [{"from": [{"podSelector": own_pods}]}]
    if job.metrics_port:
        rules.append({"ports": [{"port": job.metrics_port, "protocol": "TCP"}]})
    if has_ray:
        operator = {"namespaceSelector": {}, "podSelector": {"matchLabels": OPERATOR}}
        rules.append({"from": [operator], "ports": [{"port": DASHBOARD, "protocol": "TCP"}]})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(job, is_queued=False),
        "spec": {"podSelector": own_pods, "policyTypes": ["Ingress"], "ingress": rules},
    }


def to_yaml(documents: Sequence[Mapping[str, Any]], made_by: str) -> str:
    """Return documents as YAML: keys in their order, texts of several lines as blocks, nothing abbreviated.

    Args:
        documents: Dicts, lists, texts, numbers and flags.
        made_by: The command that made them.
    """
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes YAML for a person to edit."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            del indentless  # Items of a list are indented, as Kubernetes' own examples have them.
            super().increase_indent(flow, False)

    def text(dumper: yaml.SafeDumper, value: str) -> Any:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    body = yaml.dump_all(documents, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120)
    return f"# Made by:\n# {made_by}\n{body}"

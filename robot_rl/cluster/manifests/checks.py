"""What the schemas do not know: names that are almost right, values that a controller would refuse, and references."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from robot_rl.cluster.manifests import pod, queueing

LABELS = frozenset(
    {
        *(
            f"app.kubernetes.io/{name}"
            for name in ("name", "instance", "version", "component", "part-of", "managed-by")
        ),
        *("kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "kubernetes.io/metadata.name"),
        *("topology.kubernetes.io/zone", "topology.kubernetes.io/region", "node.kubernetes.io/instance-type"),
        *(pod.JOB_NAME, "batch.kubernetes.io/job-completion-index", "batch.kubernetes.io/controller-uid"),
        *(queueing.QUEUE_NAME, "kueue.x-k8s.io/priority-class", "kueue.x-k8s.io/pod-group-name"),
        *(f"kueue.x-k8s.io/podset-{kind}-topology" for kind in ("preferred", "required", "unconstrained")),
        *(pod.EXCLUSIVE, "jobset.sigs.k8s.io/jobset-name"),
        *(f"prometheus.io/{name}" for name in ("scrape", "port", "path", "scheme")),
        *(key for key, _ in pod.SPOT_LABELS),
        pod.RUN_LABEL,
        pod.GPU,
    }
)
"""Labels and annotations that mean something; others are the user's own, unless they are almost one of these."""
VARIABLES = frozenset(
    {
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"),
        *("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "OMP_NUM_THREADS", "RAY_USAGE_STATS_ENABLED", "MUJOCO_GL"),
    }
)
LABEL_MAPS = ("labels", "annotations", "matchLabels", "nodeSelector", "nodeLabels")
NEAR_LABEL, NEAR_VARIABLE = 0.85, 0.75
VALUES = {
    "restartPolicy": ("Never", "OnFailure", "Always"),
    "completionMode": ("Indexed", "NonIndexed"),
    "podReplacementPolicy": ("Failed", "TerminatingOrFailed"),
    "action": ("Ignore", "FailJob", "FailIndex", "Count"),
    "effect": ("NoSchedule", "PreferNoSchedule", "NoExecute"),
    "medium": ("", "Memory", "HugePages"),
    "fsGroupChangePolicy": ("OnRootMismatch", "Always"),
    "imagePullPolicy": ("Always", "IfNotPresent", "Never"),
    "operator": ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal", "All", "Any"),
    "status": ("True", "False", "Unknown"),
}
"""Values of keys that Kubernetes' schemas leave open, wherever the keys are."""
_QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|[MGTP]|[KMGTP]i)?")
_RESOURCE = re.compile(r"cpu|memory|ephemeral-storage|pods|hugepages-\w+|(requests\.)?[a-z0-9.-]+\.[a-z]+/[\w.-]+")


def check_document(document: Mapping[str, Any]) -> list[str]:
    """Return the errors in a document that fits its schema, one line each."""
    empty = [path for path, value in _walk(document) if path and value is None and isinstance(path[-1], int)]
    if empty:
        return [f"{place(path)}: is empty" for path in empty]
    lines = [line for path, value in _walk(document) for line in _check_value(path, value, document)]
    return [*lines, *_check_pods(document), *_check_jobset(document), *_check_osmo(document)]


def check_all(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the mismatches between the documents of one file."""
    named: dict[str, set[str]] = {}
    for document in documents:
        if "kind" in document:
            named.setdefault(document["kind"], set()).add(document["metadata"].get("name", ""))
    lines = []
    for document in documents:
        kind, spec = document.get("kind"), document.get("spec", {})
        labels = (document.get("metadata") or {}).get("labels") or {}
        if kind == "ClusterQueue":
            flavors = [flavor["name"] for group in spec.get("resourceGroups", []) for flavor in group["flavors"]]
            lines += _missing("ClusterQueue", "ResourceFlavor", flavors, named)
        elif kind == "LocalQueue":
            lines += _missing("LocalQueue", "ClusterQueue", [spec["clusterQueue"]], named)
        elif kind == "ResourceFlavor" and "topologyName" in spec:
            lines += _missing("ResourceFlavor", "Topology", [spec["topologyName"]], named)
        if queue := labels.get(queueing.QUEUE_NAME):
            lines += _missing(str(kind), "LocalQueue", [queue], named)
    return lines


def _missing(who: str, kind: str, wanted: Sequence[str], named: Mapping[str, set[str]]) -> list[str]:
    """Return a line for each name that no document of a kind has, if the file has documents of that kind at all."""
    known = named.get(kind)
    return [
        f"{who}: names {kind} '{name}', which this file does not have" for name in wanted if known and name not in known
    ]


def _walk(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield every value with its path."""
    yield path, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _walk(inner, (*path, key))


def _check_value(path: tuple[Any, ...], value: Any, document: Mapping[str, Any]) -> Iterator[str]:
    key = path[-1] if path else ""
    is_service = document.get("kind") == "Service" and key == "selector"
    if (key in LABEL_MAPS or is_service) and isinstance(value, dict):
        yield from _almost(path, value, LABELS, NEAR_LABEL)
    elif key == "environment" and isinstance(value, dict):
        yield from _almost(path, value, VARIABLES, NEAR_VARIABLE)
    elif key == "env" and isinstance(value, list):
        yield from _almost(path, [entry.get("name") for entry in value], VARIABLES, NEAR_VARIABLE)
    elif key in ("requests", "limits") and isinstance(value, dict):
        yield from _almost(path, value, {pod.GPU}, NEAR_LABEL)
        for name, amount in value.items():
            if not _RESOURCE.fullmatch(str(name)):
                yield f"{place(path)}: '{name}' is not a resource"
            yield from _check_quantity((*path, name), amount)
    elif key in ("sizeLimit", "nominalQuota", "borrowingLimit", "lendingLimit"):
        yield from _check_quantity(path, value)
    elif key in VALUES and isinstance(value, str) and "annotations" not in path and "labels" not in path:
        known = VALUES[key]
        if value not in known and not {"failurePolicy", "dependsOn"} & set(path):  # Those are in a schema of ours.
            yield f"{place(path)}: '{value}' must be one of {', '.join(filter(None, known))}"
    elif key == "fieldPath" and not re.fullmatch(r"(metadata|spec|status)\.\w+(\['[^']+'\])?", str(value)):
        yield f"{place(path)}: '{value}' is not a field of a pod"


def _check_quantity(path: tuple[Any, ...], amount: Any) -> Iterator[str]:
    is_number = isinstance(amount, int | float) and not isinstance(amount, bool)
    if not is_number and not _QUANTITY.fullmatch(str(amount)):
        yield f"{place(path)}: '{amount}' is not an amount; write it as 16Gi, 500m or 4"


def _almost(path: tuple[Any, ...], names: Any, known: frozenset[str] | set[str], cutoff: float) -> Iterator[str]:
    """Yield a line for each name that is not known, but close to a known one."""
    plain = {name.lower(): name for name in sorted(known)}
    for name in names:
        if name in known or not isinstance(name, str):
            continue
        near = difflib.get_close_matches(name.lower(), plain, n=1, cutoff=cutoff)
        if near:
            yield f"{place(path)}: '{name}': did you mean '{plain[near[0]]}'?"


def _check_pods(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield mounts of volumes that a pod does not have, and containers that a policy names and no pod has."""
    containers: set[str] = set()
    for path, value in _walk(document):
        if not (isinstance(value, dict) and isinstance(value.get("containers"), list)):
            continue
        volumes = {volume["name"] for volume in value.get("volumes") or ()}
        for container in [*value["containers"], *(value.get("initContainers") or ())]:
            containers.add(container["name"])
            for mount in container.get("volumeMounts") or ():
                if (volume := mount["name"]) not in volumes:
                    yield f"{place(path)}: container '{container['name']}' mounts '{volume}', which is not a volume"
    for path, value in _walk(document):
        if isinstance(value, dict) and value.get("podFailurePolicy"):
            policy = ((value.get("template") or {}).get("spec") or {}).get("restartPolicy")
            if policy != "Never":
                yield f"{place(path)}: a podFailurePolicy needs pods with restartPolicy: Never, not {policy}"
        if path and path[-1] == "containerName" and containers and value not in containers:
            yield f"{place(path)}: no container is called '{value}'"


def _check_jobset(document: Mapping[str, Any]) -> Iterator[str]:
    if document.get("kind") != "JobSet":
        return
    spec = document["spec"]
    known = [replicated["name"] for replicated in spec["replicatedJobs"]]
    wanted = list(spec.get("successPolicy", {}).get("targetReplicatedJobs", []))
    if coordinator := spec.get("coordinator"):
        wanted.append(coordinator["replicatedJob"])
    for rule in spec.get("failurePolicy", {}).get("rules", []):
        wanted += rule.get("targetReplicatedJobs", [])
    for name in wanted:
        if name not in known:
            yield f"spec: names the replicated job '{name}'; there is {', '.join(known)}"


def _check_osmo(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield resources and tasks of a workflow that are named and not there, and groups without one lead."""
    workflow = document.get("workflow")
    if not isinstance(workflow, dict):
        return
    groups = workflow.get("groups", [])
    tasks = [task for group in groups for task in group["tasks"]] + workflow.get("tasks", [])
    names = [task["name"] for task in tasks]
    known = workflow.get("resources", {})
    for task in tasks:
        resource = task.get("resource", "default")
        if resource not in known and (known or "resource" in task):
            yield f"task {task['name']}: resource '{resource}' is not among those of the workflow"
        for host in re.findall(r"\{\{host:([^}]*)\}\}", str(task)):
            if host not in names:
                yield f"task {task['name']}: '{host}' is not a task"
        codes = [code for text in task.get("exitActions", {}).values() for code in _codes(text)]
        if len(codes) != len(set(codes)):
            yield f"task {task['name']}: exitActions: a code has two actions"
    for group in groups:
        if sum(task.get("lead", False) for task in group["tasks"]) != 1:
            yield f"group {group['name']}: must have one task with lead: true"


def _codes(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def place(path: Iterable[Any]) -> str:
    """Return a path of keys and numbers as a person writes it."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")

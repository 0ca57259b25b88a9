"""Validate manifests strictly: unknown keys, wrong types, names that nothing has.

Kinds of Kubernetes itself are validated by kubernetes-validate, the others by schemas of ours, written after their
documentation, with the pods and jobs in them validated as those of Kubernetes. What no schema knows, such as a label
that is almost one of Kueue's, `robot_rl.cluster.manifests.checks` finds.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources, util
from typing import Any

from robot_rl.cluster.manifests.checks import check_all, check_document, place
from robot_rl.errors import suggest
from robot_rl.files import read_yaml

EXTRA = ("kubernetes_validate", "jsonschema")
"""The packages of the extra "kubernetes"."""
OSMO = ""
"""What stands for the kind that OSMO's workflows do not have."""
WITH_SPEC = ("Job", "Pod", "Service")
"""Kinds that are nothing without a spec, which their schemas do not require."""
MOST_LINE = 300


def can_validate() -> bool:
    """Return whether the packages of the extra "kubernetes" are installed."""
    return all(util.find_spec(name) is not None for name in EXTRA)


def validate(text: str) -> list[str]:
    """Return the errors in the YAML of one document or several, one line each; empty if there are none."""
    documents: list[Any] = []
    for number, part in enumerate(_split(text), start=1):
        try:
            documents.append(read_yaml(part))
        except ValueError as error:
            return [f"document {number}: no YAML, {error}"]
    return validate_documents([document for document in documents if document is not None])


def validate_documents(documents: Sequence[Any]) -> list[str]:
    """Return the errors in documents that were read from YAML, one line each; empty if there are none."""
    if not documents:
        return ["the file is without a document"]
    lines = []
    for number, document in enumerate(documents, start=1):
        who = _name(document, number, len(documents))
        lines += [f"{who}{line}" for line in _validate_document(document)]
    return [line[:MOST_LINE] for line in lines or check_all(documents)]


def _split(text: str) -> list[str]:
    """Return the documents of a file; within a block no line begins with ---."""
    return re.split(r"^---(?:[ \t].*)?$", text, flags=re.MULTILINE)


def _name(document: Any, number: int, count: int) -> str:
    kind = document.get("kind") if isinstance(document, dict) else None
    kind = kind if isinstance(kind, str) else "document"
    return f"{kind} (document {number}): " if count > 1 else f"{kind}: " if kind != "document" else ""


def _validate_document(document: Any) -> list[str]:
    if not isinstance(document, dict):
        return ["must be a group of keys, such as apiVersion, kind and metadata"]
    if "apiVersion" not in document and "kind" not in document:
        lines = _errors(OSMO, document)
    else:
        lines = list(_validate_kubernetes(document))
    return lines or check_document(document)


def _validate_kubernetes(document: dict[str, Any]) -> Iterator[str]:
    api, kind = document.get("apiVersion"), document.get("kind")
    for key, value in (("apiVersion", api), ("kind", kind)):
        if not isinstance(value, str) or not value:
            yield f"{key}: is missing, or no text; {_near(key, document)}"
            return
    if schema := _schemas().get(str(kind)):
        version = schema["properties"]["apiVersion"]["const"]
        if api == version:
            yield from _errors(str(kind), document) or _embedded(document)
        else:
            yield f"apiVersion={api}: no version of {kind} known here; use {version}"
    elif lines := _builtin(document):
        yield from lines
    else:
        metadata = document.get("metadata") or {}
        if not metadata.get("name") and not metadata.get("generateName"):
            yield "metadata.name: is missing"


def _near(key: str, document: Mapping[str, Any]) -> str:
    others = [name for name in document if name not in ("apiVersion", "kind", "metadata", "spec")]
    return f"there is {', '.join(map(repr, others[:3]))}" if others else f"write {key}: ..."


def _builtin(document: dict[str, Any], at: str = "") -> list[str]:
    """Return the error that kubernetes-validate finds in a document, one line at most: it ends with the first."""
    return list(_builtin_text(json.dumps(document, default=str), at))


@functools.lru_cache(maxsize=64)
def _builtin_text(text: str, at: str) -> tuple[str, ...]:
    import kubernetes_validate

    document = json.loads(text)
    if document["kind"] in WITH_SPEC and not document.get("spec"):
        return (f"{at}.spec: is missing".lstrip("."),)
    if document["kind"] == "PodTemplate" and not document["template"].get("spec"):
        return (f"{at}.template.spec: is missing",)
    try:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.SchemaNotFoundError:
        kinds = ("Job", "Service", "PersistentVolumeClaim", "ConfigMap", "Pod", *filter(None, _schemas()))
        near = suggest(str(document["kind"]), kinds)
        return (
            f"apiVersion={document['apiVersion']} kind={document['kind']}: is not a kind that is known here; {near}",
        )
    except kubernetes_validate.ValidationError as error:
        return (_line(error, at),)
    return ()


def _embedded(document: dict[str, Any]) -> list[str]:
    """Return the errors in the jobs and pods inside a document of another kind."""
    lines: list[str] = []
    for at, api, kind, template in _templates(document):
        body = {"template": template} if kind == "PodTemplate" else template
        lines += _builtin({"apiVersion": api, "kind": kind, **body}, at)
    return lines


def _templates(document: dict[str, Any]) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Yield (path, apiVersion, kind, content) of each template of a job or a pod; the schema was found to fit."""
    spec = document["spec"]
    for number, replicated in enumerate(spec.get("replicatedJobs", [])):
        yield f"spec.replicatedJobs[{number}].template", "batch/v1", "Job", replicated["template"]
    cluster = spec.get("rayClusterSpec", {})
    if "headGroupSpec" in cluster:
        at = "spec.rayClusterSpec.headGroupSpec"
        yield at, "v1", "PodTemplate", cluster["headGroupSpec"]["template"]
    for number, group in enumerate(cluster.get("workerGroupSpecs", [])):
        yield f"spec.rayClusterSpec.workerGroupSpecs[{number}]", "v1", "PodTemplate", group["template"]
    if "submitterPodTemplate" in spec:
        yield "spec.submitterPodTemplate", "v1", "PodTemplate", spec["submitterPodTemplate"]


def _errors(kind: str, document: Any) -> list[str]:
    """Return the errors in a document by our schema of a kind."""
    from jsonschema.exceptions import best_match

    errors = sorted(_validator(kind).iter_errors(document), key=lambda error: [str(part) for part in error.path])
    return [_line(best_match([error]) or error) for error in errors]


@functools.cache
def _validator(kind: str) -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(_schemas()[kind])


@functools.cache
def _schemas() -> dict[str, Any]:
    """Return our schemas by kind."""
    content = read_yaml((resources.files("robot_rl.cluster.manifests") / "schemas.yaml").read_text())
    schemas = {OSMO: _closed(content["workflow"])}
    for kind, about in content["kinds"].items():
        keys = {"apiVersion": {"const": about["apiVersion"]}, "kind": {"const": kind}}
        keys |= {"metadata": content["metadata"], "spec": about["spec"]}
        schemas[kind] = _closed({"required": list(keys), "properties": keys})
    return schemas


def _closed(schema: Any) -> Any:
    """Return a schema in which each part with properties is an object without others."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    added = {"type": "object", "additionalProperties": False} if "properties" in schema else {}
    return {**added, **{key: _closed(part) for key, part in schema.items()}}


def _line(error: Any, at: str = "") -> str:
    """Return an error of jsonschema as one line: where, and what; long values are cut."""
    where = ".".join(part for part in (at, place(error.path)) if part)
    message = " ".join(error.message.split())
    if len(message) > 160:
        message = f"{message[:60]} ... {message[-90:]}"
    return f"{where}: {message}" if where else message

"""NVIDIA OSMO: a run is a workflow with a task for each node, scheduled again by its exit code."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from robot_rl.cluster.launchers.applied import Applied
from robot_rl.cluster.launchers.launcher import Target
from robot_rl.cluster.manifests import processes
from robot_rl.cluster.manifests.documents import to_yaml
from robot_rl.cluster.manifests.exit_codes import exit_actions
from robot_rl.cluster.manifests.job import ClusterJob
from robot_rl.cluster.manifests.pod import check_mount
from robot_rl.cluster.manifests.quantities import read_mebibytes, read_seconds
from robot_rl.errors import UserError

RESOURCE = "node"
LEAST_CPUS, LEAST_MEMORY, STORAGE = 2, "8G", "32Gi"
RUN, SCRIPT = "/tmp/run.sh", "/tmp/node.sh"
SAVED_EVERY = "5m"
HOST = "{{{{host:{name}}}}}"
"""OSMO's word for the host name of a task."""


@dataclass(kw_only=True, slots=True)
class Osmo(Applied):
    """Workflows of OSMO, by its command line program.

    Attributes:
        bucket: URL of an object store that a run of a single node is read from and kept in; empty: `mount`.
    """

    bucket: str = ""

    name: ClassVar[str] = "osmo"
    program: ClassVar[tuple[str, ...]] = ("osmo", "workflow", "submit")
    flow_renderer: ClassVar[str] = "robot_rl.cluster.flow.osmo:render"
    targets: ClassVar[Mapping[str, Target]] = {
        "osmo": Target(
            info="A workflow of NVIDIA OSMO: a task for each node, scheduled again by its exit code",
            options=frozenset({"image", "mount", "partition", "topology", "bucket"}),
        )
    }

    @classmethod
    def render(cls, job: ClusterJob, target: str) -> str:
        """Return the workflow.

        The runs are in a directory that all nodes mount, or, of a single node, in an object store: fetched when the
        task begins, and written there every few minutes and at its end.
        """
        if not job.bucket:
            check_mount(job.mount)
        if job.bucket and job.nodes > 1:
            raise UserError("bucket", job.bucket, f"nodes={job.nodes} need a directory that all of them see", "omit it")
        memory = f"{read_mebibytes(job.memory or LEAST_MEMORY) * job.ranks}Mi"
        node = resource((job.cpus or LEAST_CPUS) * job.ranks, job.gpus, memory, STORAGE, job.partition)
        if job.topology:
            node["topology"] = [{"key": job.topology, "requirementType": "preferred"}]
        tasks = [_task(job, index) for index in range(job.nodes)]
        # A task that is scheduled again takes the others with it: they would wait for it in vain.
        group = {"name": "train", "barrier": True, "ignoreNonleadStatus": False, "tasks": tasks}
        return workflow(job.name, read_seconds(job.time), {RESOURCE: node}, {"groups": [group]}, job.made_by)


def workflow(name: str, limit: int, resources: dict[str, Any], tasks: dict[str, Any], made_by: str) -> str:
    """Return the text of a workflow.

    Args:
        name: Its name.
        limit: The longest time of a task [s]; 0 for none.
        resources: What tasks request, by name.
        tasks: Its "groups", or its "tasks".
        made_by: The command that makes it, for its header.
    """
    timeout = {"timeout": {"exec_timeout": f"{limit}s"}} if limit else {}
    return to_yaml([{"workflow": {"name": name, **timeout, "resources": resources, **tasks}}], made_by)


def resource(cpus: int, gpus: int, memory: str, storage: str, platform: str) -> dict[str, Any]:
    """Return a task's request: cores, GPUs, memory and disk such as 8Gi, and a platform; "" for any."""
    wanted = {"cpu": cpus, "gpu": gpus, "memory": memory, "storage": storage, "platform": platform}
    return {name: value for name, value in wanted.items() if value}


def _task(job: ClusterJob, index: int) -> dict[str, Any]:
    """Return the task of a node."""
    variables = {"HOME": "/tmp", "XDG_CACHE_HOME": "/tmp/cache"}
    if job.cpus:
        variables["OMP_NUM_THREADS"] = str(job.cpus)
    if job.size > 1:
        variables |= processes.variables(job, HOST.format(name=_name(0))) | {processes.index_name(job): str(index)}
    store = {
        "inputs": [{"url": f"{job.bucket}/{job.task}/{job.run_id}"}],
        "checkpoint": [
            {"path": job.directory, "url": f"{job.bucket}/{job.task}/{job.run_id}", "frequency": SAVED_EVERY}
        ],
    }
    return {
        "name": _name(index),
        **({"lead": True} if index == 0 else {}),
        "image": job.image,
        "command": ["tini", "--"],
        "args": ["bash", RUN],
        "environment": variables,
        "files": _files(job),
        "resource": RESOURCE,
        **(store if job.bucket else {"volumeMounts": [job.mount]}),
        "exitActions": exit_actions(job),
    }


def _name(index: int) -> str:
    return f"node-{index}"


def _files(job: ClusterJob) -> list[dict[str, str]]:
    """Return the scripts of a task."""
    words = shlex.join(job.worker)
    lines = ["#!/bin/bash"]
    if job.bucket:
        place = shlex.quote(job.directory)
        lines += [f"mkdir -p {place}", f"cp -rn {{{{input:0}}}}/. {place}"]
    lines.append(f"exec {words}" if job.ranks == 1 else f"exec bash {SCRIPT} {words}")
    files = [{"path": RUN, "contents": "\n".join(lines) + "\n"}]
    if job.ranks > 1:
        files.append({"path": SCRIPT, "contents": processes.SCRIPT})
    return files

"""A run as a cluster's job: its processes, the resources of each of them, and the place of its directory there."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from robot_rl.cluster.manifests.quantities import read_mebibytes, read_seconds
from robot_rl.errors import UserError

MOST_NODES, MOST_RANKS, MOST_GPUS, MOST_CPUS = 4096, 64, 16, 1024
"""Bounds of a job: nodes, and per node processes and GPUs (no machine has more GPUs), and cores of a process."""
IMAGE, CLAIM, MOUNT = "robot-rl:0.2.0", "robot-rl-runs", "/runs"
"""The container's image, and the volume claim and the directory with the runs, by default."""
DCGM_PORT = 9400
"""The port of NVIDIA's DCGM exporter."""
MOST_NAME = 40
"""Longest name of a job: Kubernetes allows a pod's name of 63, and controllers add indices and a suffix."""
_DNS = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_IMAGE = re.compile(r"[a-z0-9][a-zA-Z0-9._/:-]*(@sha256:[0-9a-f]{64})?")
_LABEL = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterJob:
    """A run as a job of a cluster.

    Attributes:
        run_id: The run's id.
        task: The folder of its task's runs.
        made_by: The command that makes the manifest, for its header.
        image: The container's image, with a tag.
        namespace: Kubernetes' namespace; "" for that of the context.
        queue: Kueue's local queue; "" for none.
        claim: The persistent volume claim with the runs.
        mount: Where the runs are in the container; the run is at <mount>/<task>/<run id>.
        nodes: Number of nodes.
        ranks: Number of processes on each node.
        gpus: Number of GPUs on each node, one for each process; 0 for none.
        cpus: Number of cores of each process; 0: the target's default.
        memory: Memory of each process, such as 16G; "": the target's default.
        time: Time limit as Slurm reads it; "" for none.
        partition: Slurm's partition, OSMO's platform; "" for the default one.
        spot: Whether it runs on machines that may be taken away.
        topology: Label of nodes that the processes should have in common, such as a rack's; "" for none.
        sandbox: Whether the container runs in gVisor, for code that is not ours.
        trust: Whether the processes may import the code that the run's settings name.
        metrics_port: The port at which Prometheus looks for metrics of the pods; 0: it does not look.
        queues: Whether the manifest comes with Kueue's queue and flavours.
        bucket: URL of an object store that the run is read from and kept in, for OSMO; "" for a shared directory.
    """

    run_id: str
    task: str
    made_by: str = ""
    image: str = IMAGE
    namespace: str = ""
    queue: str = ""
    claim: str = CLAIM
    mount: str = MOUNT
    nodes: int = 1
    ranks: int = 1
    gpus: int = 0
    cpus: int = 0
    memory: str = ""
    time: str = ""
    partition: str = ""
    spot: bool = False
    topology: str = ""
    sandbox: bool = False
    trust: bool = False
    metrics_port: int = 0
    queues: bool = False
    bucket: str = ""

    def __post_init__(self) -> None:
        """Raise UserError if a value is out of its range, or no cluster would take it."""
        bounds = {"nodes": (1, MOST_NODES), "gpus": (0, MOST_GPUS), "ranks": (1, MOST_RANKS), "cpus": (0, MOST_CPUS)}
        for name, (least, most) in bounds.items():
            where = " on a node" if name in ("gpus", "ranks") else ""
            if not least <= getattr(self, name) <= most:
                raise UserError(name, getattr(self, name), f"must be at least {least} and at most {most}{where}")
        if self.gpus and self.gpus != self.ranks:
            right = f"give ranks={self.gpus}, or gpus={self.ranks}"
            raise UserError("gpus", self.gpus, f"each of the ranks={self.ranks} processes of a node uses one", right)
        if self.metrics_port and not 1024 <= self.metrics_port <= 65535:
            raise UserError("metrics_port", self.metrics_port, "must be from 1024 to 65535, or 0 for none")
        read_mebibytes(self.memory)
        read_seconds(self.time)
        for name, form, most in (("namespace", _DNS, 63), ("queue", _SUBDOMAIN, 63), ("claim", _SUBDOMAIN, 253)):
            _check_word(name, getattr(self, name), form, most, "lower-case letters, digits and -")
        _check_word("topology", self.topology, _LABEL, 316, "a label of nodes such as topology.kubernetes.io/zone")
        _check_word("partition", self.partition, _LABEL, 63, "a name of letters, digits and - _ .")
        _check_image(self.image)
        if not PurePosixPath(self.mount).is_absolute() or ".." in PurePosixPath(self.mount).parts:
            raise UserError("mount", self.mount[:80], "must be an absolute path such as /runs")
        if self.bucket and not re.fullmatch(r"[a-z0-9]+://[^\s{}\"'\\]+", self.bucket):
            raise UserError("bucket", self.bucket[:80], "must be a URL such as s3://bucket/runs")

    @property
    def size(self) -> int:
        """Return the number of processes."""
        return self.nodes * self.ranks

    @property
    def directory(self) -> str:
        """Return the run's directory in the container."""
        return str(PurePosixPath(self.mount) / self.task / self.run_id)

    @property
    def worker(self) -> list[str]:
        """Return the command of one process."""
        return ["robot-rl", "worker", self.directory, *(["trust=true"] if self.trust else [])]

    @property
    def name(self) -> str:
        """Return the job's name: the run's id as a DNS label, with a hash where something had to go."""
        plain = re.sub(r"[^a-z0-9]+", "-", self.run_id.lower()).strip("-") or "run"
        plain = plain if plain[0].isalpha() else f"run-{plain}"
        if plain.removeprefix("run-") == self.run_id.removeprefix("run-") and len(plain) <= MOST_NAME:
            return plain
        mark = hashlib.sha256(self.run_id.encode()).hexdigest()[:6]
        return f"{plain[: MOST_NAME - 7].rstrip('-')}-{mark}"


def _check_word(name: str, value: str, form: re.Pattern[str], most: int, right: str) -> None:
    if value and (len(value) > most or not form.fullmatch(value)):
        raise UserError(name, value[:80], f"must be {right}, at most {most} characters")


def _check_image(image: str) -> None:
    """Refuse an image that is not pinned: the image pulled tomorrow has to be the one tested today."""
    last = image.rpartition("/")[2]
    if not _IMAGE.fullmatch(image):
        raise UserError("image", image[:120], "must be an image such as registry.example.org/robot-rl:0.2.0")
    if "@" not in last and (":" not in last or last.endswith((":latest", ":"))):
        raise UserError("image", image[:120], "is not pinned", "name a tag other than latest, or a digest")

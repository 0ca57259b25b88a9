"""The processes of a node: how they find each other, and how their exit codes become the container's."""

from __future__ import annotations

from robot_rl.cluster.manifests.job import ClusterJob

FIRST_PORT, PORTS = 20_000, 10_000
"""Ports at which a job's processes meet: above those of Ray's workers, below those that a kernel hands out."""
PORT = 29500
"""The port of the first process; each pod has its own address."""
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
"""Where Kubernetes writes which of an Indexed Job's pods it is."""
SCRIPT = """\
# The processes of this node; ends with the greatest of their exit codes, which torchrun would not.
pids=()
notices=0
trap '((notices += 1)); kill -TERM "${pids[@]}" 2>/dev/null' TERM INT
for ((i = 0; i < LOCAL_WORLD_SIZE; i++)); do
  ((rank = NODE_RANK * LOCAL_WORLD_SIZE + i))
  RANK=$rank LOCAL_RANK=$i "$@" &
  pids+=($!)
done
code=0
for pid in "${pids[@]}"; do
  until before=$notices; wait "$pid"; ended=$?; [ "$before" -eq "$notices" ]; do :; done
  if [ "$ended" -gt "$code" ]; then code=$ended; fi
done
exit "$code"
"""
"""A shell's wait ends early when a notice comes, and is then repeated. No $( ), which Kubernetes would expand."""


def command(job: ClusterJob) -> list[str]:
    """Return the words that start the processes of a node; the image's entry point passes signals on to them."""
    return job.worker if job.ranks == 1 else ["bash", "-c", SCRIPT, "node", *job.worker]


def variables(job: ClusterJob, address: str) -> dict[str, str]:
    """Return the variables by which the processes find each other, without the node's own index.

    Args:
        job: The job.
        address: The host name of the first node.
    """
    meeting = {
        "WORLD_SIZE": str(job.size),
        "LOCAL_WORLD_SIZE": str(job.ranks),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(PORT),
    }
    return {"LOCAL_RANK": "0", **meeting} if job.ranks == 1 else meeting


def index_name(job: ClusterJob) -> str:
    """Return the variable that is the node's index: of a single process on each node that is its rank."""
    return "RANK" if job.ranks == 1 else "NODE_RANK"

"""Checks of the nodes by themselves and against each other: software, hardware, clocks, the shared root, disks."""

from __future__ import annotations

from typing import Any

from robot_rl.preflight.facts import SHM
from robot_rl.preflight.finding import FAIL, WARN, Cluster, Finding, join, odd_ones

MAX_OFFSET_S = 2.0
"""Most difference of two clocks [s]; ages of files and rows are compared between machines."""
LEAST_ROOT, GOOD_ROOT = 2**30, 20 * 2**30
"""Free bytes of the root below which a run would soon end, and below which a long one may."""
LEAST_SHM = 2**28
"""Free bytes of /dev/shm for the buffers of processes on one machine."""
LEAST_FILES = 4096
GIB = 2**30


def check_answers(cluster: Cluster) -> Finding:
    """Every node answered."""
    count = len(cluster.nodes)
    if cluster.error or count < cluster.wanted:
        why = f": {cluster.error}" if cluster.error else ""
        return Finding(
            status=FAIL,
            found=f"{count} of {cluster.wanted} answered{why}",
            right="robot-rl preflight probe=true has to work on each node, and the nodes have to be free",
        )
    return Finding(found=f"{count} answered: {join([node.name for node in cluster.nodes])}")


def check_versions(cluster: Cluster) -> Finding:
    """Python and the packages have the same versions everywhere."""
    differing: list[str] = []
    for package in dict.fromkeys(name for node in cluster.nodes for name in node.versions):
        common, others = odd_ones({node.name: node.versions.get(package, "none") for node in cluster.nodes})
        differing += [f"{name} has {package} {version}, not {common}" for name, version in others.items()]
    if differing:
        return Finding(status=FAIL, found=join(differing), right="install the same versions on every node")
    versions = cluster.nodes[0].versions if cluster.nodes else {}
    some = [f"{name} {versions[name]}" for name in ("python", "torch", "warp-lang", "mujoco") if name in versions]
    return Finding(found=", ".join(some))


def check_source(cluster: Cluster) -> Finding:
    """The sources are of the same commit everywhere, and unchanged."""
    commits = {node.name: str(node.git.get("commit", "none"))[:12] for node in cluster.nodes}
    common, others = odd_ones(commits)
    if others:
        found = join([f"{name} has commit {commit}, not {common}" for name, commit in others.items()])
        return Finding(status=FAIL, found=found, right="check out the same commit on every node")
    if dirty := [node.name for node in cluster.nodes if node.git.get("dirty")]:
        return Finding(
            status=WARN, found=f"changed since commit {common} on {join(dirty)}", right="commit, to find it again"
        )
    return Finding(found="installed, no checkout" if common == "none" else f"commit {common}")


def check_system(cluster: Cluster) -> Finding:
    """The operating system's kernel and the GPU driver are the same."""
    for what, values in (
        ("driver", {node.name: node.driver or "none" for node in cluster.nodes}),
        ("CUDA", {node.name: node.cuda or "none" for node in cluster.nodes}),
        ("kernel", {node.name: node.kernel for node in cluster.nodes}),
    ):
        common, others = odd_ones(values)
        if others:
            return Finding(
                status=FAIL if what == "CUDA" else WARN,
                found=join([f"{name} has {what} {value}, not {common}" for name, value in others.items()]),
                right=f"the same {what} on every node",
            )
    first = cluster.nodes[0] if cluster.nodes else None
    parts = [] if first is None else [f"kernel {first.kernel}", f"driver {first.driver or 'none'}"]
    return Finding(found=", ".join(parts))


def check_gpus(cluster: Cluster) -> Finding:
    """Each node has the GPUs that a run requests, of the same model."""
    wanted = cluster.launcher.gpus
    if few := [f"{node.name} has {len(node.gpus)}" for node in cluster.nodes if len(node.gpus) < wanted]:
        return Finding(
            status=FAIL,
            found=f"launcher.gpus={wanted}, torch sees fewer: {join(few)}",
            right="a driver, a torch built for CUDA, and CUDA_VISIBLE_DEVICES unset",
        )
    kinds = {node.name: join(sorted(set(node.gpus))) or "none" for node in cluster.nodes}
    common, others = odd_ones(kinds)
    if others:
        found = join([f"{name} has {kind}, not {common}" for name, kind in others.items()])
        return Finding(status=WARN, found=found, right="one model of GPU: all wait for the slowest")
    return Finding(found=f"{common or 'none'} on each node" if cluster.nodes else "none")


def check_processors(cluster: Cluster) -> Finding:
    """The processors are of the same model, with the same instructions, and have the cores that a run requests."""
    wanted = cluster.launcher.cpus * cluster.launcher.ranks_a_node
    if few := [f"{node.name} has {node.cores}" for node in cluster.nodes if node.cores < wanted]:
        return Finding(
            status=FAIL, found=f"{wanted} cores are requested: {join(few)}", right="a smaller launcher.cpus="
        )
    common, others = odd_ones({node.name: node.cpu for node in cluster.nodes})
    _, other_flags = odd_ones({node.name: tuple(node.flags) for node in cluster.nodes})
    if others or other_flags:
        most = set.union(*(set(node.flags) for node in cluster.nodes))
        lacks = [sorted(most - set(node.flags))[:3] for node in cluster.nodes if node.name in other_flags]
        lines = [f"{name} is {model}, not {common}" for name, model in others.items()]
        lines += [f"{name} lacks {', '.join(less)}" for name, less in zip(other_flags, lacks, strict=True) if less]
        right = "one kind of node (--constraint=): another processor has other bits, and may not run compiled kernels"
        return Finding(status=WARN, found=join(lines or list(other_flags)), right=right)
    return Finding(found=str(common or ""))


def check_clocks(cluster: Cluster) -> Finding:
    """The clocks agree with the submitter's."""
    wrong, unknown, worst = [], [], 0.0
    for name, (least, most) in cluster.offsets_s.items():
        if least > MAX_OFFSET_S or most < -MAX_OFFSET_S:
            ahead = least if least > 0 else most
            wrong.append(f"{name} is {abs(ahead):.1f} s {'ahead' if ahead > 0 else 'behind'}")
        elif least < -MAX_OFFSET_S or most > MAX_OFFSET_S:
            unknown.append(name)
        worst = max(worst, abs(least), abs(most))
    if wrong:
        return Finding(status=FAIL, found=join(wrong), right="synchronized clocks (chrony or ntpd on every node)")
    if missing := [*unknown, *(node.name for node in cluster.nodes if node.name not in cluster.offsets_s)]:
        found = f"not measured to {MAX_OFFSET_S:g} s on {join(missing)}"
        return Finding(status=WARN, found=found, right="an answer within 2 s; try again when the network is quiet")
    return Finding(found=f"within {worst:.2f} s of this machine's")


def check_shared_root(cluster: Cluster) -> Finding:
    """The root is one directory that the submitter and all nodes see."""
    if cluster.root_error:
        return Finding(
            status=FAIL,
            found=f"root={cluster.root}: cannot be written here ({cluster.root_error})",
            right="a directory that can be written",
        )
    blind = [node.name for node in cluster.nodes if node.sees_token is False]
    names = list(dict.fromkeys([*blind, *cluster.unseen]))
    if names:
        return Finding(
            status=FAIL,
            found=f"root={cluster.root}: not the same directory on {join(names)}",
            right="root= on a file system that every node mounts at this path",
        )
    return Finding(found=f"{cluster.root}: seen by all")


def check_writable(cluster: Cluster) -> Finding:
    """Every node may write to the root."""
    wrong = [f"{node.name}: {node.root_error}" for node in cluster.nodes if node.root_error]
    if wrong:
        return Finding(status=FAIL, found=join(wrong), right=f"permission to write to {cluster.root} on every node")
    return Finding(found="files can be written to root= from every node")


def check_disks(cluster: Cluster) -> Finding:
    """There is room for checkpoints, compiled kernels, and buffers between processes."""
    full, low = [], []
    for node in cluster.nodes:
        for place, least, good in (
            ("root", LEAST_ROOT, GOOD_ROOT),
            ("cache", LEAST_ROOT, LEAST_ROOT),
            (SHM, LEAST_SHM if cluster.launcher.ranks_a_node > 1 else 0, 0),
        ):
            free = node.disks.get(place)
            if free is not None and free < least:
                full.append(f"{node.name}: {free / GIB:.1f} GiB free in {place}")
            elif free is not None and free < good:
                low.append(f"{node.name}: {free / GIB:.1f} GiB free in {place}")
    if full:
        return Finding(status=FAIL, found=join(full), right="1 GiB in root and cache, 0.25 GiB in /dev/shm at least")
    if low:
        return Finding(
            status=WARN, found=join(low), right="20 GiB in root for a long run, or a smaller keep_checkpoints="
        )
    least_free = min((node.disks.get("root") or 0 for node in cluster.nodes), default=0)
    return Finding(found=f"{least_free / GIB:.0f} GiB free in root")


def check_limits(cluster: Cluster) -> Finding:
    """Processes may open enough files, and lock memory where NCCL uses InfiniBand."""
    files = {node.name: node.limits.get("nofile") for node in cluster.nodes}
    if few := [f"{name}: {limit}" for name, limit in files.items() if limit is not None and limit < LEAST_FILES]:
        return Finding(
            status=WARN, found=f"open files at most {join(few)}", right=f"ulimit -n {LEAST_FILES} in launcher.setup"
        )
    locked = [node for node in cluster.nodes if node.gpus and _has_infiniband(node.interfaces)]
    if little := [node.name for node in locked if node.limits.get("memlock") is not None]:
        return Finding(
            status=WARN,
            found=f"memory that may be locked is limited on {join(little)}, which InfiniBand needs",
            right="ulimit -l unlimited (LimitMEMLOCK=infinity of slurmd)",
        )
    return Finding(found=f"{_least(files)} open files")


def _has_infiniband(interfaces: dict[str, str]) -> bool:
    return any(name.startswith("ib") for name in interfaces)


def _least(values: dict[str, Any]) -> str:
    known = [value for value in values.values() if value is not None]
    return str(min(known)) if known else "unlimited"


CHECKS = {
    "nodes": check_answers,
    "versions": check_versions,
    "source": check_source,
    "system": check_system,
    "GPUs": check_gpus,
    "processors": check_processors,
    "clocks": check_clocks,
    "shared root": check_shared_root,
    "permissions": check_writable,
    "disks": check_disks,
    "limits": check_limits,
}

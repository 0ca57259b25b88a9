"""Checks of the nodes by themselves and against each other: software, hardware, clocks, the shared root, disks."""

from __future__ import annotations

from robot_rl.cluster.preflight.facts import SHM
from robot_rl.cluster.preflight.finding import Cluster, Finding, differing, fail, join, odd_ones, ok, warn

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
        right = "robot-rl preflight probe=true has to work on each node, and the nodes have to be free"
        return fail(f"{count} of {cluster.wanted} answered{why}", right)
    return ok(f"{count} answered: {join([node.name for node in cluster.nodes])}")


def check_versions(cluster: Cluster) -> Finding:
    """Python and the packages have the same versions everywhere."""
    packages = dict.fromkeys(name for node in cluster.nodes for name in node.versions)
    lines: list[str] = []
    for package in packages:
        lines += differing({node.name: node.versions.get(package, "none") for node in cluster.nodes}, f"has {package}")
    if lines:
        return fail(join(lines), "install the same versions on every node")
    versions = cluster.nodes[0].versions if cluster.nodes else {}
    some = [f"{name} {versions[name]}" for name in ("python", "torch", "warp-lang", "mujoco") if name in versions]
    return ok(", ".join(some))


def check_source(cluster: Cluster) -> Finding:
    """The sources are of the same commit everywhere, and unchanged."""
    commits = {node.name: str(node.git.get("commit", "none"))[:12] for node in cluster.nodes}
    if lines := differing(commits, "has commit"):
        return fail(join(lines), "check out the same commit on every node")
    common, _ = odd_ones(commits)
    if dirty := [node.name for node in cluster.nodes if node.git.get("dirty")]:
        return warn(f"changed since commit {common} on {join(dirty)}", "commit, to find it again")
    return ok("installed, no checkout" if common == "none" else f"commit {common}")


def check_system(cluster: Cluster) -> Finding:
    """The operating system's kernel and the GPU driver are the same."""
    for what, values in (
        ("driver", {node.name: node.driver or "none" for node in cluster.nodes}),
        ("CUDA", {node.name: node.cuda or "none" for node in cluster.nodes}),
        ("kernel", {node.name: node.kernel for node in cluster.nodes}),
    ):
        if lines := differing(values, f"has {what}"):
            return (fail if what == "CUDA" else warn)(join(lines), f"the same {what} on every node")
    return ok(join([f"kernel {node.kernel}, driver {node.driver or 'none'}" for node in cluster.nodes[:1]]))


def check_gpus(cluster: Cluster) -> Finding:
    """Each node has the GPUs that a run requests, of the same model."""
    wanted = cluster.launcher.gpus
    if few := [f"{node.name} has {len(node.gpus)}" for node in cluster.nodes if len(node.gpus) < wanted]:
        right = "a driver, a torch built for CUDA, and CUDA_VISIBLE_DEVICES unset"
        return fail(f"launcher.gpus={wanted}, torch sees fewer: {join(few)}", right)
    kinds = {node.name: join(sorted(set(node.gpus))) or "none" for node in cluster.nodes}
    if lines := differing(kinds, "has"):
        return warn(join(lines), "one model of GPU: all wait for the slowest")
    return ok(f"{odd_ones(kinds)[0]} on each node" if kinds else "none")


def check_processors(cluster: Cluster) -> Finding:
    """The processors are of the same model, with the same instructions, and have the cores that a run requests."""
    wanted = cluster.launcher.cpus * cluster.launcher.ranks_a_node
    if few := [f"{node.name} has {node.cores}" for node in cluster.nodes if node.cores < wanted]:
        return fail(f"{wanted} cores are requested: {join(few)}", "a smaller launcher.cpus=")
    models = {node.name: node.cpu for node in cluster.nodes}
    lines = differing(models, "is")
    _, other_flags = odd_ones({node.name: tuple(node.flags) for node in cluster.nodes})
    if lines or other_flags:
        most = set.union(*(set(node.flags) for node in cluster.nodes))
        lacks = {name: sorted(most - set(flags))[:3] for name, flags in other_flags.items()}
        lines += [f"{name} lacks {', '.join(less)}" for name, less in lacks.items() if less]
        right = "one kind of node (--constraint=): another processor has other bits, and may not run compiled kernels"
        return warn(join(lines or list(other_flags)), right)
    return ok(odd_ones(models)[0] or "")


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
        return fail(join(wrong), "synchronized clocks (chrony or ntpd on every node)")
    if missing := [*unknown, *(node.name for node in cluster.nodes if node.name not in cluster.offsets_s)]:
        right = "an answer within 2 s; try again when the network is quiet"
        return warn(f"not measured to {MAX_OFFSET_S:g} s on {join(missing)}", right)
    return ok(f"within {worst:.2f} s of this machine's")


def check_shared_root(cluster: Cluster) -> Finding:
    """The root is one directory that the submitter and all nodes see."""
    root = f"root={cluster.root}"
    if cluster.root_error:
        return fail(f"{root}: cannot be written here ({cluster.root_error})", "a directory that can be written")
    blind = [node.name for node in cluster.nodes if node.sees_token is False]
    if names := list(dict.fromkeys([*blind, *cluster.unseen])):
        right = "root= on a file system that every node mounts at this path"
        return fail(f"{root}: not the same directory on {join(names)}", right)
    return ok(f"{cluster.root}: seen by all")


def check_writable(cluster: Cluster) -> Finding:
    """Every node may write to the root."""
    if wrong := [f"{node.name}: {node.root_error}" for node in cluster.nodes if node.root_error]:
        return fail(join(wrong), f"permission to write to {cluster.root} on every node")
    return ok("files can be written to root= from every node")


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
            if free is not None and free < max(least, good):
                (full if free < least else low).append(f"{node.name}: {free / GIB:.1f} GiB free in {place}")
    if full:
        return fail(join(full), "1 GiB in root and cache, 0.25 GiB in /dev/shm at least")
    if low:
        return warn(join(low), "20 GiB in root for a long run, or a smaller keep_checkpoints=")
    least_free = min((node.disks.get("root") or 0 for node in cluster.nodes), default=0)
    return ok(f"{least_free / GIB:.0f} GiB free in root")


def check_limits(cluster: Cluster) -> Finding:
    """Processes may open enough files, and lock memory where NCCL uses InfiniBand."""
    files = {node.name: node.limits.get("nofile") for node in cluster.nodes}
    known = [limit for limit in files.values() if limit is not None]
    if few := [f"{name}: {limit}" for name, limit in files.items() if limit is not None and limit < LEAST_FILES]:
        return warn(f"open files at most {join(few)}", f"ulimit -n {LEAST_FILES} in launcher.setup")
    locked = [node for node in cluster.nodes if node.gpus and any(name.startswith("ib") for name in node.interfaces)]
    if little := [node.name for node in locked if node.limits.get("memlock") is not None]:
        found = f"memory that may be locked is limited on {join(little)}, which InfiniBand needs"
        return warn(found, "ulimit -l unlimited (LimitMEMLOCK=infinity of slurmd)")
    return ok(f"{min(known) if known else 'unlimited'} open files")


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

"""Checks of how processes find each other: ports, interfaces, and the variables of NCCL and Gloo."""

from __future__ import annotations

from robot_rl.cluster.manifests.processes import FIRST_PORT, PORTS
from robot_rl.cluster.preflight.finding import Cluster, Finding, differing, fail, join, ok, warn

MANY_TAKEN = 200
"""Taken ports of the range from which on a job is likely to meet one."""
SLOW = {
    "NCCL_P2P_DISABLE": ("1", "GPUs of a machine exchange gradients through its memory"),
    "NCCL_SHM_DISABLE": ("1", "processes of a machine exchange gradients through the network"),
    "NCCL_IB_DISABLE": ("1", "InfiniBand is not used"),
    "NCCL_NET_GDR_LEVEL": ("LOC", "the network card does not read from the GPU"),
    "NCCL_DEBUG": ("TRACE", "every message is logged"),
    "CUDA_LAUNCH_BLOCKING": ("1", "every kernel is waited for"),
    "TORCH_DISTRIBUTED_DEBUG": ("DETAIL", "every exchange is checked"),
}
"""Variables, the value that costs speed, and how."""
LOCAL = (
    *("MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"),
    *("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"),
)
"""Variables that may differ between nodes."""


def check_ports(cluster: Cluster) -> Finding:
    """The ports at which processes meet can be bound, and the kernel does not give them away itself."""
    last = FIRST_PORT + PORTS - 1
    full = [f"{len(node.taken_ports)} on {node.name}" for node in cluster.nodes if len(node.taken_ports) >= MANY_TAKEN]
    if full:
        return fail(
            f"ports {FIRST_PORT} to {last} are taken: {join(full)}", "end the programs that listen there (ss -ltnp)"
        )
    if given := [node for node in cluster.nodes if node.client_ports and node.client_ports[0] <= last]:
        found = f"{join([node.name for node in given])} gives ports from {given[0].client_ports[0]} to connections"
        return warn(found, f"net.ipv4.ip_local_port_range from {last + 1} on: else a job may find its port taken")
    taken = sum(len(node.taken_ports) for node in cluster.nodes)
    return ok(f"{FIRST_PORT} to {last}, {taken} of them taken")


def check_master_port(cluster: Cluster) -> Finding:
    """If MASTER_PORT is set, it is free."""
    if taken := [node for node in cluster.nodes[:1] if node.master_port is False]:
        found = f"MASTER_PORT={taken[0].variables.get('MASTER_PORT', '')} is taken on {taken[0].name}"
        return fail(found, "another port, or MASTER_PORT unset: launchers choose one")
    ports = {node.variables["MASTER_PORT"] for node in cluster.nodes if "MASTER_PORT" in node.variables}
    return ok(f"{join(sorted(ports))} is free" if ports else "not set: the launcher chooses a free one")


def check_meeting(cluster: Cluster) -> Finding:
    """Every node reaches the first one at a port of the range."""
    if wrong := [f"{node.name}: {node.meets}" for node in cluster.nodes if node.meets]:
        right = f"no firewall between nodes for ports {FIRST_PORT} to {FIRST_PORT + PORTS - 1}"
        return fail(join(wrong), right)
    tried = [node for node in cluster.nodes if node.meets is not None]
    if cluster.launcher.nodes > 1 and not tried:
        return warn("not tried", "launcher=slurm tries it")
    return ok("every node reaches the first one" if tried else "one machine")


def check_interfaces(cluster: Cluster) -> Finding:
    """The interfaces that NCCL and Gloo are to use exist, and a machine's name does not lead to itself only."""
    for node in cluster.nodes:
        for variable in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
            value = node.variables.get(variable, "")
            if value and not _has_interface(value, list(node.interfaces), is_prefix=variable.startswith("NCCL")):
                right = f"one of {join(list(node.interfaces), 8)}"
                return fail(f"{variable}={value}: {node.name} does not have it", right)
    if cluster.launcher.nodes > 1:
        inward = [
            f"{node.name} to {node.name_address or 'nothing'}"
            for node in cluster.nodes
            if (node.name_address or "127.").startswith("127.") and "GLOO_SOCKET_IFNAME" not in node.variables
        ]
        if inward:
            right = "GLOO_SOCKET_IFNAME=<interface> in launcher.setup, or another line in /etc/hosts"
            return warn(f"a name leads to the machine itself: {join(inward)}", right)
    names = list(dict.fromkeys(name for node in cluster.nodes for name in node.interfaces))
    return ok(join(names, 6))


def _has_interface(value: str, names: list[str], *, is_prefix: bool) -> bool:
    """Return whether a list of interfaces, as NCCL or Gloo reads it, names one that exists.

    NCCL's are prefixes, exact behind "=", and excluded behind "^".
    """
    excluded, exact = is_prefix and value.startswith("^"), not is_prefix
    text = value[1:] if excluded else value
    if is_prefix and text.startswith("="):
        exact, text = True, text[1:]
    wanted = [word.partition(":")[0] for word in text.split(",") if word]

    def is_named(name: str) -> bool:
        return any(name == word if exact else name.startswith(word) for word in wanted)

    return any(is_named(name) != excluded for name in names)


def check_variables(cluster: Cluster) -> Finding:
    """No variable costs speed, and those of NCCL and Gloo are the same everywhere."""
    for variable, (slow, how) in SLOW.items():
        if having := [node.name for node in cluster.nodes if node.variables.get(variable, "").upper() == slow]:
            return warn(f"{variable}={slow} on {join(having)}: {how}", f"unset {variable}")
    for variable in dict.fromkeys(name for node in cluster.nodes for name in node.variables if name not in LOCAL):
        values = {node.name: node.variables.get(variable, "unset") for node in cluster.nodes}
        if lines := differing(values, f"has {variable}"):
            return warn(join(lines), "the same on every node, in launcher.setup")
    names = dict.fromkeys(f"{k}={v}" for node in cluster.nodes for k, v in node.variables.items() if k not in LOCAL)
    return ok(join(list(names)) or "none set")


CHECKS = {
    "ports": check_ports,
    "MASTER_PORT": check_master_port,
    "meeting": check_meeting,
    "interfaces": check_interfaces,
    "variables": check_variables,
}

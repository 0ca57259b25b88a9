"""Each check of the nodes: a node that differs, or lacks something, is named."""

import dataclasses
from pathlib import Path

import pytest

from robot_rl.cluster.launchers.slurm import Slurm
from robot_rl.cluster.preflight import network_checks, node_checks
from robot_rl.cluster.preflight.facts import NodeFacts
from robot_rl.cluster.preflight.finding import FAIL, OK, WARN, Cluster, odd_ones
from robot_rl.cluster.preflight.preflight import check_cluster

GIB = 2**30
CHECKS = {**node_checks.CHECKS, **network_checks.CHECKS}
NODE = NodeFacts(
    name="n1",
    versions={"python": "3.11.7", "torch": "2.13.0", "warp-lang": "1.19.0", "mujoco": "4.0.0"},
    git={"commit": "a" * 40, "dirty": False},
    kernel="6.1.0",
    driver="580.1",
    cuda="13.0",
    gpus=["H100"] * 4,
    cpu="Xeon",
    flags=["avx2", "avx512f"],
    cores=32,
    disks={"root": 100 * GIB, "cache": 10 * GIB, "/dev/shm": 10 * GIB},
    limits={"nofile": 65536, "memlock": None},
    interfaces={"lo": "127.0.0.1", "eth0": "10.0.0.1", "ib0": "10.1.0.1"},
    name_address="10.0.0.1",
    master_port=None,
    client_ports=[32768, 60999],
    sees_token=True,
    meets="",
)


def make_cluster(launcher=None, nodes=3, **changes):
    """Nodes n1, n2, n3; of the second one some facts are others."""
    launcher = launcher or Slurm(nodes=nodes, gpus=4, cpus=2)
    found = [dataclasses.replace(NODE, name=f"n{k + 1}", **(changes if k == 1 else {})) for k in range(nodes)]
    offsets = {node.name: (-0.01, 0.01) for node in found}
    return Cluster(launcher=launcher, root=Path("/runs"), wanted=nodes, nodes=found, offsets_s=offsets)


def test_everything_is_right():
    findings = dict(check_cluster(make_cluster()))
    assert list(findings) == list(CHECKS)
    assert {finding.status for finding in findings.values()} == {OK}
    assert all(finding.found and not finding.right for finding in findings.values())


DIFFERENT = [
    ("versions", {"versions": {**NODE.versions, "torch": "2.12.0"}}, FAIL, "n2 has torch 2.12.0, not 2.13.0"),
    ("versions", {"versions": {"python": "3.11.7"}}, FAIL, "n2 has torch none"),
    ("source", {"git": {"commit": "b" * 40, "dirty": False}}, FAIL, "n2 has commit bbbbbbbbbbbb, not aaaaaaaaaaaa"),
    ("source", {"git": {"commit": "a" * 40, "dirty": True}}, WARN, "changed since commit aaaaaaaaaaaa on n2"),
    ("source", {"git": {}}, FAIL, "n2 has commit none"),
    ("system", {"kernel": "5.15.0"}, WARN, "n2 has kernel 5.15.0, not 6.1.0"),
    ("system", {"driver": "570.9"}, WARN, "n2 has driver 570.9, not 580.1"),
    ("system", {"cuda": "12.8"}, FAIL, "n2 has CUDA 12.8, not 13.0"),
    ("GPUs", {"gpus": ["H100"] * 3}, FAIL, "launcher.gpus=4, torch sees fewer: n2 has 3"),
    ("GPUs", {"gpus": ["A100"] * 4}, WARN, "n2 has A100, not H100"),
    ("processors", {"cores": 7}, FAIL, "8 cores are requested: n2 has 7"),
    ("processors", {"cpu": "EPYC"}, WARN, "n2 is EPYC, not Xeon"),
    ("processors", {"flags": ["avx2"]}, WARN, "n2 lacks avx512f"),
    ("shared root", {"sees_token": False}, FAIL, "root=/runs: not the same directory on n2"),
    ("permissions", {"root_error": "permission denied"}, FAIL, "n2: permission denied"),
    ("disks", {"disks": {**NODE.disks, "root": GIB // 2}}, FAIL, "n2: 0.5 GiB free in root"),
    ("disks", {"disks": {**NODE.disks, "root": 5 * GIB}}, WARN, "n2: 5.0 GiB free in root"),
    ("disks", {"disks": {**NODE.disks, "cache": 0}}, FAIL, "n2: 0.0 GiB free in cache"),
    ("disks", {"disks": {**NODE.disks, "/dev/shm": 64 * 2**20}}, FAIL, "n2: 0.1 GiB free in /dev/shm"),
    ("limits", {"limits": {"nofile": 1024, "memlock": None}}, WARN, "open files at most n2: 1024"),
    ("limits", {"limits": {"nofile": None, "memlock": 65536}}, WARN, "limited on n2, which InfiniBand needs"),
    ("ports", {"taken_ports": list(range(20_000, 20_200))}, FAIL, "ports 20000 to 29999 are taken: 200 on n2"),
    ("ports", {"client_ports": [1024, 65535]}, WARN, "n2 gives ports from 1024 to connections"),
    ("meeting", {"meets": "n1 cannot be reached (timed out)"}, FAIL, "n2: n1 cannot be reached (timed out)"),
    ("interfaces", {"variables": {"GLOO_SOCKET_IFNAME": "eth1"}}, FAIL, "GLOO_SOCKET_IFNAME=eth1: n2 does not have it"),
    ("interfaces", {"variables": {"NCCL_SOCKET_IFNAME": "bond"}}, FAIL, "NCCL_SOCKET_IFNAME=bond: n2 does not have it"),
    ("interfaces", {"name_address": "127.0.1.1"}, WARN, "n2 to 127.0.1.1"),
    ("variables", {"variables": {"NCCL_P2P_DISABLE": "1"}}, WARN, "NCCL_P2P_DISABLE=1 on n2"),
    ("variables", {"variables": {"NCCL_DEBUG": "trace"}}, WARN, "NCCL_DEBUG=TRACE on n2"),
    ("variables", {"variables": {"NCCL_ALGO": "Ring"}}, WARN, "n2 has NCCL_ALGO Ring, not unset"),
]


@pytest.mark.parametrize(("check", "changes", "status", "found"), DIFFERENT)
def test_a_node_that_differs_is_named(check, changes, status, found):
    findings = dict(check_cluster(make_cluster(**changes)))
    assert findings[check].status == status
    assert found in findings[check].found
    assert findings[check].right
    others = {name: finding.found for name, finding in findings.items() if finding.status != OK and name != check}
    assert others == {}


def test_every_check_is_seen_to_fail():
    apart = {"nodes", "clocks", "MASTER_PORT"}
    assert {check for check, *_ in DIFFERENT} | apart == set(CHECKS)


def test_nodes_that_do_not_answer():
    cluster = make_cluster()
    cluster.nodes = []
    cluster.error = "srun: error: Unable to allocate resources: Requested nodes are busy"
    ((name, finding),) = check_cluster(cluster)
    assert (name, finding.status) == ("nodes", FAIL)
    assert finding.found == f"0 of 3 answered: {cluster.error}"


@pytest.mark.parametrize(
    ("offset", "status", "found"),
    [
        ((4.99, 5.01), FAIL, "n2 is 5.0 s ahead"),
        ((-7.3, -7.1), FAIL, "n2 is 7.1 s behind"),
        ((-0.1, 3.0), WARN, "not measured to 2 s on n2"),
        (None, WARN, "not measured to 2 s on n2"),
        ((-1.9, 1.9), OK, "within 1.90 s"),
    ],
)
def test_clocks(offset, status, found):
    cluster = make_cluster()
    cluster.offsets_s.pop("n2")
    if offset:
        cluster.offsets_s["n2"] = offset
    finding = node_checks.check_clocks(cluster)
    assert (finding.status, found in finding.found) == (status, True)


def test_a_root_that_the_submitter_does_not_see_or_cannot_write():
    cluster = make_cluster()
    cluster.unseen = ["n3"]
    assert "not the same directory on n3" in node_checks.check_shared_root(cluster).found
    cluster.root_error = "read-only file system"
    finding = node_checks.check_shared_root(cluster)
    assert (finding.status, "cannot be written here (read-only file system)" in finding.found) == (FAIL, True)


def test_master_port():
    cluster = make_cluster()
    cluster.nodes[0].variables = {"MASTER_PORT": "29500"}
    cluster.nodes[0].master_port = True
    assert network_checks.check_master_port(cluster).found == "29500 is free"
    cluster.nodes[0].master_port = False
    finding = network_checks.check_master_port(cluster)
    assert (finding.status, finding.found) == (FAIL, "MASTER_PORT=29500 is taken on n1")


@pytest.mark.parametrize(
    ("variable", "value", "status"),
    [
        ("NCCL_SOCKET_IFNAME", "eth,bond", OK),
        ("NCCL_SOCKET_IFNAME", "ib", OK),
        ("NCCL_SOCKET_IFNAME", "=ib", FAIL),
        ("NCCL_SOCKET_IFNAME", "=eth0", OK),
        ("NCCL_SOCKET_IFNAME", "^lo", OK),
        ("NCCL_SOCKET_IFNAME", "^lo,eth,ib", FAIL),
        ("GLOO_SOCKET_IFNAME", "eth0", OK),
        ("GLOO_SOCKET_IFNAME", "eth", FAIL),
    ],
)
def test_interfaces_as_nccl_and_gloo_read_them(variable, value, status):
    cluster = make_cluster()
    for node in cluster.nodes:
        node.variables = {variable: value}
    assert network_checks.check_interfaces(cluster).status == status


def test_shared_memory_matters_only_to_several_processes():
    cluster = make_cluster(Slurm(nodes=3), disks={**NODE.disks, "/dev/shm": 0})
    assert node_checks.check_disks(cluster).status == OK


def test_the_most_frequent_value_is_the_common_one():
    assert odd_ones({"a": 1, "b": 2, "c": 2}) == (2, {"a": 1})
    assert odd_ones({"a": 1, "b": 2}) == (1, {"b": 2})
    assert odd_ones({}) == (None, {})

"""Which Ray cluster is asked, without one: a hung connection is never waited for."""

import socket
from pathlib import Path

import pytest

from robot_rl.cluster.launchers.ray import Ray
from robot_rl.cluster.preflight.finding import Cluster
from robot_rl.cluster.preflight.preflight import preflight


@pytest.fixture(autouse=True)
def no_cluster(tmp_path, monkeypatch):
    """No cluster runs on this machine."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))


def refusal(launcher, root):
    ((name, finding),) = preflight(launcher, root)
    assert (name, finding.status) == ("request", "fail")
    return finding


def test_an_address_at_which_nothing_answers(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    line = f"launcher.address={address}: nothing answers at {address}"
    assert refusal(Ray(nodes=2, address=address), tmp_path / "runs").found == line


def test_a_dashboard_is_no_cluster():
    launcher = Ray(nodes=2, address="http://head:8265")
    cluster = Cluster(launcher=launcher, root=Path("/runs"), wanted=2)
    launcher.probe_nodes(cluster, "token")
    assert cluster.error.endswith("preflight needs host:port of the cluster itself")

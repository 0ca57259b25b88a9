"""Which Ray cluster is asked, without one: a hung connection is never waited for."""

import socket
import sys
from pathlib import Path

import pytest

from robot_rl.cluster.launchers.ray import Ray
from robot_rl.cluster.preflight.finding import Cluster
from robot_rl.cluster.preflight.gather import gather
from robot_rl.cluster.ray_runs.probes import ask_ray


@pytest.fixture(autouse=True)
def no_cluster(tmp_path, monkeypatch):
    """No cluster runs on this machine."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    return tmp_path


def make_cluster(address):
    return Cluster(launcher=Ray(nodes=2, address=address), root=Path("/runs"), wanted=2)


def free_address():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_without_a_cluster_this_machine_is_asked(no_cluster, tmp_path):
    assert not ask_ray(make_cluster("auto"), "token")
    (no_cluster / "ray").mkdir()
    (no_cluster / "ray" / "ray_current_cluster").write_text(free_address())
    assert not ask_ray(make_cluster("auto"), "token")
    cluster = gather(make_cluster("auto").launcher, tmp_path / "runs")
    assert len(cluster.nodes) == 1


def test_an_address_at_which_nothing_answers():
    address = free_address()
    cluster = make_cluster(address)
    assert ask_ray(cluster, "token")
    assert cluster.error == f"launcher.address={address}: nothing answers at {address}"


def test_a_dashboard_is_no_cluster():
    cluster = make_cluster("http://head:8265")
    assert ask_ray(cluster, "token")
    assert cluster.error.endswith("preflight needs host:port of the cluster itself")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    cluster = make_cluster("auto")
    assert ask_ray(cluster, "token")
    assert cluster.error == "ray is not installed here (pip install 'robot-rl[ray]')"

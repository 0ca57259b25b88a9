"""Where the store of several processes listens, and what a machine's name means there."""

import os
import socket

import psutil
import pytest

from robot_rl.learn import stores
from robot_rl.learn.stores import address_toward, is_here, listen, open_store, own_address
from robot_rl.sim2sim.link import free_ports


def listening(port):
    sockets = psutil.Process(os.getpid()).connections("tcp")
    return {one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN and one.laddr.port == port}


def test_a_store_listens_on_the_address_that_is_named_only():
    (port,) = free_ports(1)
    first = open_store("127.0.0.1", port, is_first=True)
    other = open_store("localhost", port, is_first=False)
    other.set("here", "yes")
    assert first.get("here") == b"yes"
    assert listening(port) == {"127.0.0.1"}


def test_a_port_in_use_is_an_error():
    with listen("127.0.0.1", 0) as taken, pytest.raises(OSError, match="in use"):
        open_store("127.0.0.1", taken.getsockname()[1], 2, is_first=True)


@pytest.fixture
def names(monkeypatch):
    """Names and their addresses; this machine has 127.0.0.0/8 and 10.0.0.5, from which it reaches all others."""
    known = {"debian": "127.0.1.1", "lan": "10.0.0.5", "service": "10.9.9.9", "node2": "10.0.0.6"}

    def find(host, *_, **__):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (known.get(host, host), 0))]

    monkeypatch.setattr(socket, "getaddrinfo", find)
    monkeypatch.setattr(stores, "is_own", lambda address: address.startswith("127.") or address == "10.0.0.5")
    monkeypatch.setattr(stores, "_source", lambda other, default: "10.0.0.5")


def test_a_name_of_this_machine_is_the_address_that_others_reach(names):
    assert [own_address(host) for host in ("debian", "lan", "service", "10.0.0.5")] == ["10.0.0.5"] * 4
    assert [own_address(host) for host in ("127.0.0.1", "127.0.0.2")] == ["127.0.0.1", "127.0.0.2"]
    assert [is_here(host) for host in ("debian", "lan", "service", "node2")] == [True, True, False, False]
    assert [address_toward(host) for host in ("debian", "node2", "127.0.0.1")] == ["10.0.0.5", "10.0.0.5", "127.0.0.1"]

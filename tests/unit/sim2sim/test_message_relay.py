"""What carries messages between the binaries of a team."""

import contextlib
import socket
import time
from types import SimpleNamespace

import pytest

from robot_rl.sim2sim.message_relay import MessageRelay


def address(word: str) -> tuple[str, int]:
    _, host, port = word.split(":")
    return host, int(port)


@pytest.fixture
def make_relay():
    """make(messages): a relay of three robots, and for each its bound socket and the address it sends to."""
    with contextlib.ExitStack() as stack:

        def make(*messages):
            relay = stack.enter_context(contextlib.closing(MessageRelay(("a", "b", "c"), messages, seed=1)))
            sockets, addresses = {}, {}
            for name in "abc":
                words = relay.arguments(name)
                assert words[:2] == ["--team-name", name]
                sockets[name] = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                sockets[name].bind(address(words[3]))
                sockets[name].setblocking(False)
                addresses[name] = address(words[5])
            return relay, sockets, addresses

        yield make


def received(one) -> list[bytes]:
    found = []
    with contextlib.suppress(BlockingIOError):
        while True:
            found.append(one.recv(100))
    return found


def send(address, *words: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for word in words:
            one.sendto(word, address)


def message(latency_s=(0.0, 0.0), loss=0.0):
    return SimpleNamespace(latency_s=latency_s, loss=loss)


def test_all_others_receive_it_and_not_the_sender(make_relay):
    relay, sockets, addresses = make_relay(message())
    send(addresses["b"], b"one", b"two")
    relay.carry(1.0)
    assert {name: received(one) for name, one in sockets.items()} == {
        "a": [b"one", b"two"],
        "b": [],
        "c": [b"one", b"two"],
    }
    assert (relay.sent, relay.lost) == (2, 0)


def test_a_message_arrives_after_its_latency(make_relay):
    relay, sockets, addresses = make_relay(message(latency_s=(0.05, 0.1)), message(latency_s=(0.02, 0.08)))
    send(addresses["a"], b"now")
    relay.carry(10.0)
    relay.carry(10.049)
    assert received(sockets["b"]) == received(sockets["c"]) == []
    relay.carry(10.1)
    assert received(sockets["b"]) == received(sockets["c"]) == [b"now"]


def test_some_get_lost(make_relay):
    relay, sockets, addresses = make_relay(message(loss=0.25))
    send(addresses["a"], *(b"x" for _ in range(200)))
    relay.carry(0.0)
    counts = [len(received(sockets[name])) for name in "bc"]
    assert sum(counts) == 400 - relay.lost
    assert relay.lost == pytest.approx(100, abs=30)
    assert counts[0] != counts[1]  # Each link has losses of its own.


def test_it_waits_for_a_message_of_each_sender_and_no_longer_than_it_may(make_relay):
    relay, _, addresses = make_relay(message())
    send(addresses["a"], b"one")
    begun = time.monotonic()
    relay.wait(["a", "b"], 0.05)
    assert time.monotonic() - begun >= 0.05
    send(addresses["b"], b"two")
    relay.wait(["a", "b"], 1e9)
    relay.carry(0.0)
    assert relay.sent == 2

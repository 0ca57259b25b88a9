"""What carries messages between the binaries of a team."""

import contextlib
import socket
import time
from types import SimpleNamespace

import pytest

from robot_rl.sim2sim.ether import Ether


def address(word: str) -> tuple[str, int]:
    _, host, port = word.split(":")
    return host, int(port)


@pytest.fixture
def talk():
    """make(messages): an ether of three robots, and for each its ear (a bound socket) and where it tells."""
    with contextlib.ExitStack() as stack:

        def make(*messages):
            ether = stack.enter_context(contextlib.closing(Ether(("a", "b", "c"), messages, seed=1)))
            ears, mouths = {}, {}
            for name in "abc":
                words = ether.arguments(name)
                assert words[:2] == ["--name", name]
                ears[name] = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                ears[name].bind(address(words[3]))
                ears[name].setblocking(False)
                mouths[name] = address(words[5])
            return ether, ears, mouths

        yield make


def heard(ear) -> list[bytes]:
    found = []
    with contextlib.suppress(BlockingIOError):
        while True:
            found.append(ear.recv(100))
    return found


def tell(mouth, *words: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for word in words:
            one.sendto(word, mouth)
    time.sleep(0.01)


def message(latency_s=(0.0, 0.0), loss=0.0):
    return SimpleNamespace(latency_s=latency_s, loss=loss)


def test_all_others_hear_and_not_oneself(talk):
    ether, ears, mouths = talk(message())
    tell(mouths["b"], b"one", b"two")
    ether.carry(1.0)
    time.sleep(0.01)
    assert {name: heard(ear) for name, ear in ears.items()} == {"a": [b"one", b"two"], "b": [], "c": [b"one", b"two"]}
    assert (ether.told, ether.lost) == (2, 0)


def test_a_message_arrives_after_its_latency(talk):
    ether, ears, mouths = talk(message(latency_s=(0.05, 0.1)), message(latency_s=(0.02, 0.08)))
    tell(mouths["a"], b"now")
    ether.carry(10.0)
    ether.carry(10.049)
    time.sleep(0.01)
    assert heard(ears["b"]) == heard(ears["c"]) == []
    ether.carry(10.1)
    time.sleep(0.01)
    assert heard(ears["b"]) == heard(ears["c"]) == [b"now"]


def test_some_get_lost(talk):
    ether, ears, mouths = talk(message(loss=0.25))
    tell(mouths["a"], *(b"x" for _ in range(200)))
    ether.carry(0.0)
    time.sleep(0.02)
    counts = [len(heard(ears[name])) for name in "bc"]
    assert sum(counts) == 400 - ether.lost
    assert ether.lost == pytest.approx(100, abs=30)
    assert counts[0] != counts[1]  # Each link loses its own.

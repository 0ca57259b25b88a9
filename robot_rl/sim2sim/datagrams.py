"""Datagrams of the loopback: sockets that do not block, and deliveries at a later time."""

from __future__ import annotations

import contextlib
import heapq
import socket
from collections.abc import Callable
from typing import Any

MAX_BYTES = 65535


class Delayed:
    """Deliveries that wait for their time, by any clock."""

    def __init__(self) -> None:
        """Begin without any."""
        self._waiting: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0

    def add(self, due: float, deliver: Callable[[], object]) -> None:
        """Call a function at a time; those of the same time in the order in which they were added."""
        self._count += 1
        heapq.heappush(self._waiting, (due, self._count, deliver))

    def deliver(self, now: float) -> None:
        """Call those whose time has come."""
        while self._waiting and self._waiting[0][0] <= now:
            heapq.heappop(self._waiting)[2]()

    @property
    def next_due(self) -> float | None:
        """Time of the next one; None without any."""
        return self._waiting[0][0] if self._waiting else None


def address_of(text: str) -> tuple[str, int]:
    """Return host and port of "udp:host:port" or "host:port"."""
    host, _, port = text.removeprefix("udp:").rpartition(":")
    return host, int(port)


def make_socket(*, bind: tuple[str, int] | None = None, connect: tuple[str, int] | None = None) -> socket.socket:
    """Return a socket that does not block, bound or connected to an address."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    if bind is not None:
        sock.bind(bind)
    if connect is not None:
        sock.connect(connect)
    return sock


def drain(sock: Any, handle: Callable[[bytes, Any], object]) -> None:
    """Call a function with each datagram that has arrived, and its sender."""
    while True:
        try:
            data, sender = sock.recvfrom(MAX_BYTES)
        except BlockingIOError:
            return
        except ConnectionError:  # nobody listens there yet
            continue
        handle(data, sender)


def send(sock: socket.socket, address: Any, data: bytes) -> None:
    """Send a datagram, which may be lost; without an address to the peer of a connected socket."""
    with contextlib.suppress(BlockingIOError, ConnectionError):
        sock.send(data) if address is None else sock.sendto(data, address)

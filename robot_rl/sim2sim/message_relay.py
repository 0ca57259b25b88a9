"""What carries the messages between the binaries of a team: datagrams, late and lost as the contract declares."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import select
import socket
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from robot_rl.sim2sim.link import LOOPBACK, free_ports

BYTES = 10_240
"""The largest datagram of the runtime's protocol."""


class MessageRelay:
    """Receives the messages of each robot's binary, and sends them to the others after their latency, or not at all.

    Attributes:
        sent: Number of messages received from the binaries.
        lost: Number of times that one did not get to one of its receivers.
    """

    def __init__(self, team: Sequence[str], messages: Sequence[Any], seed: int) -> None:
        """Open the sockets.

        Args:
            team: Names of the robots.
            messages: The contract's messages, `robot_rl_deploy.messages.MessageSpec`; they travel together, so the
                longest latency and the largest loss are those of all.
            seed: Of the draws; each pair of sender and receiver has its own latency.
        """
        self._random = np.random.default_rng(seed)
        low, high = (max(message.latency_s[end] for message in messages) for end in (0, 1))
        self._loss = max(message.loss for message in messages)
        self._receivers = {name: (LOOPBACK, port) for name, port in zip(team, free_ports(len(team)), strict=True)}
        self._latency = {
            (sender, receiver): float(self._random.uniform(low, high))
            for sender, receiver in itertools.permutations(team, 2)
        }
        self.sent = self.lost = 0
        self._due: list[tuple[float, int, str, bytes]] = []
        with contextlib.ExitStack() as stack:
            self._sockets: dict[str, socket.socket] = {}
            for name in team:
                own = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                own.setblocking(False)
                own.bind((LOOPBACK, 0))
                self._sockets[name] = own
            self._stack = stack.pop_all()

    def arguments(self, name: str) -> list[str]:
        """Return the words with which a robot's binary uses this relay."""
        ends = {"--team-listen": self._receivers[name], "--team-send": self._sockets[name].getsockname()}
        return ["--team-name", name, *(word for key, at in ends.items() for word in (key, f"udp:{at[0]}:{at[1]}"))]

    def wait(self, senders: Iterable[str], timeout_s: float) -> None:
        """Wait until there is something of each of these robots to `carry`, or the time is over."""
        end = time.monotonic() + timeout_s
        waiting = {self._sockets[name] for name in senders}
        while waiting and (left := end - time.monotonic()) > 0:
            waiting -= set(select.select(list(waiting), [], [], left)[0])

    def carry(self, now_s: float) -> None:
        """Receive what was sent up to now, and send on what is due; the time is of a clock of the caller's [s]."""
        for sender, own in self._sockets.items():
            with contextlib.suppress(BlockingIOError):
                while True:
                    data = own.recv(BYTES)
                    self.sent += 1
                    for receiver in self._receivers:
                        if receiver == sender:
                            continue
                        if self._random.random() < self._loss:
                            self.lost += 1
                            continue
                        at = now_s + self._latency[sender, receiver]
                        heapq.heappush(self._due, (at, self.sent, receiver, data))
        while self._due and self._due[0][0] <= now_s:
            _, _, receiver, data = heapq.heappop(self._due)
            with contextlib.suppress(OSError):  # Its binary was killed.
                self._sockets[receiver].sendto(data, self._receivers[receiver])

    def close(self) -> None:
        """Close the sockets."""
        self._stack.close()

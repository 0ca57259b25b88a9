"""What carries the messages between the binaries of a team: datagrams, late and lost as the contract declares."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import socket
from collections.abc import Sequence
from typing import Any

import numpy as np

from robot_rl.sim2sim.link import LOOPBACK, free_ports

BYTES = 10_240
"""The largest datagram of the runtime's protocol."""


class Ether:
    """Takes what each robot's binary tells, and hands it to the others after their latency, or not at all.

    Attributes:
        told: Number of messages taken.
        lost: Number of those to one receiver each that were lost.
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
        self._ears = {name: (LOOPBACK, port) for name, port in zip(team, free_ports(len(team)), strict=True)}
        self._latency = {
            (sender, receiver): float(self._random.uniform(low, high))
            for sender, receiver in itertools.permutations(team, 2)
        }
        self.told = self.lost = 0
        self._due: list[tuple[float, int, str, bytes]] = []
        with contextlib.ExitStack() as stack:
            self._mouths: dict[str, socket.socket] = {}
            for name in team:
                mouth = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                mouth.setblocking(False)
                mouth.bind((LOOPBACK, 0))
                self._mouths[name] = mouth
            self._stack = stack.pop_all()

    def arguments(self, name: str) -> list[str]:
        """Return the words with which a robot's binary hears and tells here."""
        ear, mouth = self._ears[name], self._mouths[name].getsockname()
        return ["--name", name, "--hear", f"udp:{ear[0]}:{ear[1]}", "--tell", f"udp:{mouth[0]}:{mouth[1]}"]

    def carry(self, now_s: float) -> None:
        """Take what was told up to now, and hand on what is due; the time is of a clock of the caller's [s]."""
        for sender, mouth in self._mouths.items():
            with contextlib.suppress(BlockingIOError):
                while True:
                    data = mouth.recv(BYTES)
                    self.told += 1
                    for receiver in self._ears:
                        if receiver == sender:
                            continue
                        if self._random.random() < self._loss:
                            self.lost += 1
                            continue
                        at = now_s + self._latency[sender, receiver]
                        heapq.heappush(self._due, (at, self.told, receiver, data))
        while self._due and self._due[0][0] <= now_s:
            _, _, receiver, data = heapq.heappop(self._due)
            with contextlib.suppress(OSError):  # Its binary was killed.
                self._mouths[receiver].sendto(data, self._ears[receiver])

    def close(self) -> None:
        """Close the sockets."""
        self._stack.close()

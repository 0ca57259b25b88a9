"""The fault proxy over UDP: passes the datagrams of robot and binary on, or does not, as its script says."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from robot_rl.sim2sim.between import INTRUDE_EVERY_S, INTRUDER, Between, address_of, bound, drain, send, sending
from robot_rl.sim2sim.faults import Fault
from robot_rl.sim2sim.mutate import Mutator


class Proxy(Between):
    """Passes datagrams on; see `run`."""

    def __init__(
        self, *, front: str, robot: str, desk: str, operator: str, faults: Sequence[Fault], seed: int = 0
    ) -> None:
        """Binds.

        Args:
            front: host:port that the binary takes for the robot.
            robot: host:port of the robot.
            desk: See `Between`.
            operator: See `Between`.
            faults: The script.
            seed: Of what is drawn.
        """
        super().__init__(desk=desk, operator=operator, faults=faults, seed=seed)
        self._front, self._robot = bound(front), address_of(robot)
        self._routes: dict[Any, socket.socket] = {}
        self._mutators: dict[Any, Mutator] = {}
        self._intruder: socket.socket | None = None
        self._intruded_ns, self._intrusions, self._joints, self._layout = 0, 0, 0, 0
        self._selector.register(self._front, selectors.EVENT_READ, "front")

    def run(self) -> None:
        """Passes datagrams on until `stop`."""
        handlers = {
            "desk": lambda data, _: self._from_operator(data),
            "front": self._from_binary,
        }
        while not self._is_over:
            for key, _ in self._selector.select(self._timeout()):
                drain(key.fileobj, handlers.get(key.data) or partial(self._from_robot, client=key.data))
            self._intrude()
            self._send_due()

    # -- what comes in -----------------------------------------------------------------------------------------------

    def _from_binary(self, data: bytes, sender: Any) -> None:
        command = self._runtime.read_command(data)
        if command is not None:
            self._joints = int(command.joints)
            self._hear(command)
        self._pass_command(sending(self._route(sender), None, data))

    def _from_robot(self, data: bytes, _: Any, client: Any) -> None:
        kind = self._runtime.frame_kind(data)
        if kind is None or kind[0] != self._runtime.Message.STATE:
            send(self._front, client, data)
            return
        self._layout = kind[1]
        mutator = self._mutators.setdefault(client, Mutator(self._runtime, self._random))
        now = time.monotonic_ns()
        for due, changed in mutator.apply(data, now, self._active("state")):
            self._queue(due, sending(self._front, client, changed))
        self._left_alone("state", now)

    def _route(self, client: Any) -> socket.socket:
        """The socket that stands for a client at the robot."""
        if client not in self._routes:
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.setblocking(False)
            sock.connect(self._robot)
            self._selector.register(sock, selectors.EVENT_READ, client)
            self._routes[client] = sock
        return self._routes[client]

    # -- the second commander ----------------------------------------------------------------------------------------

    def _timeout(self) -> float:
        if not self._active("link"):
            return super()._timeout()
        due = self._intruded_ns + round(INTRUDE_EVERY_S * 1e9)
        return min(super()._timeout(), max(0.0, (due - time.monotonic_ns()) / 1e9))

    def _intrude(self) -> None:
        """Commands the robot as somebody else."""
        now = time.monotonic_ns()
        active = self._active("link")
        if not active or not self._layout or now - self._intruded_ns < INTRUDE_EVERY_S * 1e9:
            return
        if self._intruder is None:
            self._intruder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._intruder.connect(self._robot)
            send(self._intruder, None, self._runtime.write_hello(INTRUDER, False))
        command = self._runtime.LowCommand()
        self._intrusions += 1
        command.sequence, command.commander, command.joints = self._intrusions, INTRUDER, self._joints
        command.phase, command.send_time_ns = self._runtime.Phase.DAMPING, now
        send(self._intruder, None, self._runtime.write_command(command, self._layout))
        self._intruded_ns = now
        for _, journal in active:
            journal.begin(now)

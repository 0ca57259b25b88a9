"""What stands between robot and binary and does as a script of faults says, whatever carries the messages.

Its clock starts with the first command of the policy. What each fault did and when the binary damped is written down.
"""

from __future__ import annotations

import heapq
import random
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from robot_rl.sim2sim.binary import load_runtime
from robot_rl.sim2sim.faults import KINDS, Fault

INTRUDER = 0x0BAD
"""Commander id of the second commander."""
INTRUDE_EVERY_S = 0.01
MAX_DATAGRAM = 65535


@dataclass(slots=True)
class Journal:
    """What a fault did; times of CLOCK_MONOTONIC [ns], 0: not yet.

    Attributes:
        kind: Its kind.
        first_ns: When the first message was changed, kept back or added.
        first_sequence: Of the first state that was changed.
        last_good_ns: When the last message that it left alone was passed on before that.
        damping_ns: When the first damping command after that was sent.
        fault: What the binary called it.
        active_after: Commands that answered a changed state and did not damp.
        oldest_answered_ns: Greatest age of the state of such a command that was not damping.
    """

    kind: str
    first_ns: int = 0
    first_sequence: int = 0
    last_good_ns: int = 0
    damping_ns: int = 0
    fault: str = ""
    active_after: int = 0
    oldest_answered_ns: int = 0

    def begin(self, now_ns: int, sequence: int = 0) -> None:
        """Takes note of the first message that the fault touched."""
        if not self.first_ns:
            self.first_ns, self.first_sequence = now_ns, sequence

    def hear(self, command: Any, phase: str, fault: str) -> None:
        """Takes note of a command."""
        if not self.first_ns or self.damping_ns or phase == "BOOT" or command.send_time_ns < self.first_ns:
            return
        if phase == "DAMPING":
            self.damping_ns, self.fault = int(command.send_time_ns), fault
            return
        self.oldest_answered_ns = max(self.oldest_answered_ns, int(command.state_age_ns))
        if self.first_sequence and command.state_sequence >= self.first_sequence:
            self.active_after += 1

    def row(self) -> dict[str, Any]:
        """As the report has it: what was done, what the binary called it and how long it took."""
        took = (self.damping_ns - self.first_ns) / 1e6 if self.damping_ns else None
        since_good = (self.damping_ns - self.last_good_ns) / 1e6 if self.damping_ns and self.last_good_ns else None
        return {
            "kind": self.kind,
            "happened": bool(self.first_ns),
            "fault": self.fault,
            "damping_after_ms": took,
            "damping_after_last_good_ms": since_good,
            "active_after": self.active_after,
            "oldest_answered_ms": self.oldest_answered_ns / 1e6,
        }


class Between:
    """The script, the books and the operator's side of a proxy; a subclass carries states and commands.

    The operator speaks UDP whatever the robot speaks.
    """

    def __init__(self, *, desk: str, operator: str, faults: Sequence[Fault], seed: int = 0) -> None:
        """Binds the operator's side.

        Args:
            desk: host:port that the operator takes for the binary.
            operator: host:port where the binary hears the operator.
            faults: The script.
            seed: Of what is drawn.
        """
        self._runtime = load_runtime()
        self._runtime.LowState().joint_pos[0] = 0.0  # loads NumPy now and not when the first fault begins
        self._desk, self._operator = bound(desk), address_of(operator)
        self._random, self._faults = random.Random(seed), list(faults)
        self._journals = [Journal(fault.kind) for fault in faults]
        self._waiting: list[tuple[int, int, Callable[[], object]]] = []
        self._count, self._start_ns = 0, 0
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._desk, selectors.EVENT_READ, "desk")
        self._is_over = False

    def run(self) -> None:
        """Passes messages on until `stop`."""
        raise NotImplementedError

    def stop(self, *_: object) -> None:
        """Ends `run`."""
        self._is_over = True

    def report(self) -> list[dict[str, Any]]:
        """A row a fault; see `Journal.row`."""
        return [journal.row() for journal in self._journals]

    # -- the script --------------------------------------------------------------------------------------------------

    def _active(self, where: str) -> list[tuple[Fault, Journal]]:
        """The faults that are on, about messages of that kind."""
        if not self._start_ns:
            return []
        seconds = (time.monotonic_ns() - self._start_ns) / 1e9
        return [
            (fault, journal)
            for fault, journal in zip(self._faults, self._journals, strict=True)
            if KINDS[fault.kind].where == where and fault.start_s <= seconds < fault.end_s
        ]

    def _left_alone(self, where: str, now_ns: int) -> None:
        """Takes note that a message of that kind was passed on, for the faults that have not begun."""
        for journal in self._journals:
            if not journal.first_ns and KINDS[journal.kind].where == where:
                journal.last_good_ns = now_ns

    def _hear(self, command: Any) -> None:
        """Takes note of a command of the binary; the policy's first starts the clock."""
        phase, fault = self._runtime.name_of(command.phase), self._runtime.name_of(command.fault)
        if phase == "POLICY" and not self._start_ns:
            self._start_ns = time.monotonic_ns()
        for journal in self._journals:
            journal.hear(command, phase, fault)

    def _pass_command(self, deliver: Callable[[], object]) -> None:
        """Delivers a command, later or never where the script says so."""
        now, due = time.monotonic_ns(), 0
        for fault, journal in self._active("command"):
            if fault.kind == "command_drop" and self._random.random() < fault.value:
                journal.begin(now)
                return
            if fault.kind == "command_delay":
                journal.begin(now)
                due = now + round(fault.value * 1e9)
        self._queue(due, deliver)

    # -- the operator ------------------------------------------------------------------------------------------------

    def _from_operator(self, data: bytes) -> None:
        now = time.monotonic_ns()
        for fault, journal in self._active("operator"):
            journal.begin(now)
            if fault.kind == "operator_silence":
                return
            found = self._runtime.read_operator(data)
            if found is not None:
                message, source = found
                message.request = self._runtime.Request.DAMP
                data = self._runtime.write_operator(message, source)
        self._left_alone("operator", now)
        send(self._desk, self._operator, data)

    # -- what goes out later -----------------------------------------------------------------------------------------

    def _queue(self, due_ns: int, deliver: Callable[[], object]) -> None:
        """Delivers at a time; 0: now."""
        if not due_ns:
            deliver()
            return
        self._count += 1
        heapq.heappush(self._waiting, (due_ns, self._count, deliver))

    def _send_due(self) -> None:
        now = time.monotonic_ns()
        while self._waiting and self._waiting[0][0] <= now:
            heapq.heappop(self._waiting)[2]()

    def _timeout(self) -> float:
        """How long there is nothing to do but to wait for messages [s]."""
        due = self._waiting[0][0] if self._waiting else time.monotonic_ns() + 50_000_000
        return max(0.0, (due - time.monotonic_ns()) / 1e9)


def drain(sock: Any, handle: Callable[[bytes, Any], object]) -> None:
    """Hands over all datagrams that are there, with their senders."""
    while True:
        try:
            data, sender = sock.recvfrom(MAX_DATAGRAM)
        except BlockingIOError:
            return
        except ConnectionError:  # nobody listens there yet
            continue
        handle(data, sender)


def address_of(text: str) -> tuple[str, int]:
    """Host and port of "udp:host:port", or of it without its head."""
    host, _, port = text.removeprefix("udp:").rpartition(":")
    return host, int(port)


def bound(text: str) -> socket.socket:
    """A socket that listens there."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    sock.bind(address_of(text))
    return sock


def send(sock: socket.socket, address: Any, data: bytes) -> None:
    """Sends a datagram, to where the socket is connected without an address; it may be lost."""
    try:
        if address is None:
            sock.send(data)
        else:
            sock.sendto(data, address)
    except (BlockingIOError, ConnectionError):
        pass


def sending(sock: socket.socket, address: Any, data: bytes) -> Callable[[], None]:
    """`send`, to be called later."""
    return partial(send, sock, address, data)

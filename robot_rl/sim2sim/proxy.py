"""The fault proxy: a process between robot and binary that passes their datagrams on, or does not, as its script says.

It stands in for a bad network, a broken sensor, a second commander or an absent operator. Its clock starts with the
first command of the policy. What each fault did and when the binary damped is written down at the end.
"""

from __future__ import annotations

import heapq
import json
import random
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_rl.sim2sim.binary import hurried, load_runtime
from robot_rl.sim2sim.faults import KINDS, Fault, dump_faults, load_faults
from robot_rl.sim2sim.mutate import Mutator

INTRUDER = 0x0BAD
"""Commander id of the second commander."""
INTRUDE_EVERY_S = 0.01
READY = "ready"
MAX_DATAGRAM = 65535
START_S, STOP_S = 20.0, 5.0


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


class Proxy:
    """Passes datagrams on; see `run`."""

    def __init__(
        self, *, front: str, robot: str, desk: str, operator: str, faults: Sequence[Fault], seed: int = 0
    ) -> None:
        """Binds.

        Args:
            front: host:port that the binary takes for the robot.
            robot: host:port of the robot.
            desk: host:port that the operator takes for the binary.
            operator: host:port where the binary hears the operator.
            faults: The script.
            seed: Of what is drawn.
        """
        self._runtime = load_runtime()
        self._runtime.LowState().joint_pos[0] = 0.0  # loads NumPy now and not when the first fault begins
        self._front, self._desk = _bound(front), _bound(desk)
        self._robot, self._operator = _address(robot), _address(operator)
        self._routes: dict[Any, socket.socket] = {}
        self._random, self._faults = random.Random(seed), list(faults)
        self._journals = [Journal(fault.kind) for fault in faults]
        self._mutators: dict[Any, Mutator] = {}
        self._waiting: list[tuple[int, int, socket.socket, Any, bytes]] = []
        self._count, self._start_ns, self._layout = 0, 0, 0
        self._intruder: socket.socket | None = None
        self._intruded_ns, self._intrusions, self._joints = 0, 0, 0
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._front, selectors.EVENT_READ, None)
        self._selector.register(self._desk, selectors.EVENT_READ, "desk")
        self._is_over = False

    def stop(self, *_: object) -> None:
        """Ends `run`."""
        self._is_over = True

    def run(self) -> None:
        """Passes datagrams on until `stop`."""
        while not self._is_over:
            for key, _ in self._selector.select(self._timeout()):
                handler = {None: self._from_binary, "desk": self._from_operator}.get(key.data, self._from_robot)
                self._drain(key.fileobj, key.data, handler)
            self._intrude()
            self._send_due()

    def report(self) -> list[dict[str, Any]]:
        """A row a fault; see `Journal.row`."""
        return [journal.row() for journal in self._journals]

    # -- what comes in -----------------------------------------------------------------------------------------------

    def _drain(self, sock: Any, peer: Any, handler: Any) -> None:
        while True:
            try:
                data, sender = sock.recvfrom(MAX_DATAGRAM)
            except BlockingIOError:
                return
            except ConnectionError:  # nobody listens there yet
                continue
            handler(data, sender if peer in (None, "desk") else peer)

    def _from_binary(self, data: bytes, sender: Any) -> None:
        command = self._runtime.read_command(data)
        if command is not None:
            self._hear(command, data)
        now, due = time.monotonic_ns(), 0
        for fault, journal in self._active("command"):
            if fault.kind == "command_drop" and self._random.random() < fault.value:
                journal.begin(now)
                return
            if fault.kind == "command_delay":
                journal.begin(now)
                due = now + round(fault.value * 1e9)
        self._queue(due, self._route(sender), None, data)

    def _from_robot(self, data: bytes, client: Any) -> None:
        kind = self._runtime.frame_kind(data)
        if kind is None or kind[0] != self._runtime.Message.STATE:
            self._queue(0, self._front, client, data)
            return
        self._layout = kind[1]
        mutator = self._mutators.setdefault(client, Mutator(self._runtime, self._random))
        now = time.monotonic_ns()
        for due, changed in mutator.apply(data, now, self._active("state")):
            self._queue(due, self._front, client, changed)
        for journal in self._journals:
            if not journal.first_ns and KINDS[journal.kind].where == "state":
                journal.last_good_ns = now

    def _from_operator(self, data: bytes, sender: Any) -> None:
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
        for journal in self._journals:
            if not journal.first_ns and KINDS[journal.kind].where == "operator":
                journal.last_good_ns = now
        self._queue(0, self._desk, self._operator, data)

    def _hear(self, command: Any, data: bytes) -> None:
        phase, fault = self._runtime.name_of(command.phase), self._runtime.name_of(command.fault)
        self._joints = int(command.joints)
        if phase == "POLICY" and not self._start_ns:
            self._start_ns = time.monotonic_ns()
        for journal in self._journals:
            journal.hear(command, phase, fault)

    # -- what goes out -----------------------------------------------------------------------------------------------

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

    def _route(self, client: Any) -> socket.socket:
        """The socket that stands for a client at the robot."""
        if client not in self._routes:
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.setblocking(False)
            sock.connect(self._robot)
            self._selector.register(sock, selectors.EVENT_READ, client)
            self._routes[client] = sock
        return self._routes[client]

    def _queue(self, due_ns: int, sock: socket.socket, address: Any, data: bytes) -> None:
        self._count += 1
        if due_ns:
            heapq.heappush(self._waiting, (due_ns, self._count, sock, address, data))
        else:
            _send(sock, address, data)

    def _send_due(self) -> None:
        now = time.monotonic_ns()
        while self._waiting and self._waiting[0][0] <= now:
            _, _, sock, address, data = heapq.heappop(self._waiting)
            _send(sock, address, data)

    def _timeout(self) -> float:
        due = self._waiting[0][0] if self._waiting else time.monotonic_ns() + 50_000_000
        if self._active("link"):
            due = min(due, self._intruded_ns + round(INTRUDE_EVERY_S * 1e9))
        return max(0.0, (due - time.monotonic_ns()) / 1e9)

    def _intrude(self) -> None:
        """Commands the robot as somebody else."""
        now = time.monotonic_ns()
        active = self._active("link")
        if not active or not self._layout or now - self._intruded_ns < INTRUDE_EVERY_S * 1e9:
            return
        if self._intruder is None:
            self._intruder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._intruder.connect(self._robot)
            _send(self._intruder, None, self._runtime.write_hello(INTRUDER, False))
        command = self._runtime.LowCommand()
        self._intrusions += 1
        command.sequence, command.commander, command.joints = self._intrusions, INTRUDER, self._joints
        command.phase, command.send_time_ns = self._runtime.Phase.DAMPING, now
        _send(self._intruder, None, self._runtime.write_command(command, self._layout))
        self._intruded_ns = now
        for _, journal in active:
            journal.begin(now)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.removeprefix("udp:").rpartition(":")
    return host, int(port)


def _bound(text: str) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    sock.bind(_address(text))
    return sock


def _send(sock: socket.socket, address: Any, data: bytes) -> None:
    try:
        if address is None:
            sock.send(data)
        else:
            sock.sendto(data, address)
    except (BlockingIOError, ConnectionError):  # a datagram may be lost
        pass


class ProxyProcess:
    """The proxy as a child process."""

    def __init__(
        self, folder: Path, *, front: str, robot: str, desk: str, operator: str, faults: Sequence[Fault]
    ) -> None:
        """Starts it and waits until it listens; see `Proxy`.

        Args:
            folder: For its report.
            front: See `Proxy`, as are the others.
            robot: The robot.
            desk: The operator's side.
            operator: The binary's operator address.
            faults: The script.

        Raises:
            RuntimeError: It does not come up.
        """
        self._report = folder / "proxy.json"
        given = {"front": front, "robot": robot, "desk": desk, "operator": operator, "faults": dump_faults(faults)}
        words = [sys.executable, "-m", "robot_rl.sim2sim.proxy", json.dumps(given), str(self._report)]
        self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if line != READY:
            raise RuntimeError(f"the fault proxy said '{line}' and ended with {self._process.wait(START_S)}")

    def stop(self) -> None:
        """Asks it to end and waits."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def report(self) -> list[dict[str, Any]]:
        """A row a fault, once it has ended."""
        try:
            return json.loads(self._report.read_text())
        except (OSError, ValueError):
            return []


def main(words: Sequence[str]) -> int:
    """The process: settings as JSON, and where to write the report."""
    given = json.loads(words[0])
    given["faults"] = load_faults(given["faults"])
    proxy = Proxy(**given)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, proxy.stop)
    sys.stdout.write(READY + "\n")
    sys.stdout.flush()
    with hurried():
        proxy.run()
    Path(words[1]).write_text(json.dumps(proxy.report(), allow_nan=False))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The fault proxy between robot and binary: passes their messages on and applies the faults of a script.

Over UDP it forwards datagrams. Over shared memory and DDS, whose messages cannot be intercepted, it is the robot to
the binary and the binary to the robot. Its clock starts with the policy's first command. It records the effect
of each fault and when the binary damped.

    python -m robot_rl.sim2sim.proxy <settings as JSON> <file for the report>

is the process that `ProxyProcess` starts.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from robot_rl.files import write_json
from robot_rl.sim2sim.binary import ModuleProcess, high_priority, load_runtime, read_report
from robot_rl.sim2sim.datagrams import Delayed, address_of, drain, make_socket, send
from robot_rl.sim2sim.faults import KINDS, Fault, Journal, Mutator, dump_faults, load_faults

INTRUDER = 0x0BAD
"""Id of the second commander."""
INTRUDE_EVERY_S = 0.01
RELAY = 0x3E1A
"""Commander id of the relay at the robot."""
SLICE_S = 0.02
"""Period at which a thread checks whether it should end [s]."""
CONNECT_S = 2.0
"""Time limit of one attempt to connect [s]."""
READY = "ready"
START_S = 20.0


class FaultProxy:
    """The script, the journals and the operator's side of a proxy; a subclass carries states and commands.

    The operator speaks UDP over every transport. `failure` is the reason why the proxy ended by itself.
    """

    def __init__(self, *, desk: str, operator: str, faults: Sequence[Fault], seed: int = 0) -> None:
        """Bind `desk`, to which the operator sends; the binary listens to the operator at `operator` (host:port)."""
        self._runtime = load_runtime()
        self._runtime.LowState().joint_pos[0] = 0.0  # loads NumPy now and not when the first fault begins
        self._desk, self._operator = make_socket(bind=address_of(desk)), address_of(operator)
        self._random, self._faults = random.Random(seed), list(faults)
        self._journals = [Journal(fault.kind) for fault in faults]
        self._delayed, self._start_ns = Delayed(), 0
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._desk, selectors.EVENT_READ, "desk")
        self._is_over, self.failure = False, ""

    def run(self) -> None:
        """Pass messages on until `stop`."""
        raise NotImplementedError

    def stop(self, *_: object) -> None:
        """End `run`."""
        self._is_over = True

    def report(self) -> list[dict[str, Any]]:
        """Return a row for each fault; see `Journal.row`."""
        return [journal.row() for journal in self._journals]

    def _active(self, where: str) -> list[tuple[Fault, Journal]]:
        """Return the active faults of one kind of messages."""
        if not self._start_ns:
            return []
        seconds = (time.monotonic_ns() - self._start_ns) / 1e9
        return [
            (fault, journal)
            for fault, journal in zip(self._faults, self._journals, strict=True)
            if KINDS[fault.kind].where == where and fault.start_s <= seconds < fault.end_s
        ]

    def _passed(self, where: str, now_ns: int) -> None:
        """Record that a message was passed on, for the faults that have not begun."""
        for journal in self._journals:
            if not journal.first_ns and KINDS[journal.kind].where == where:
                journal.last_good_ns = now_ns

    def _pass_command(self, command: Any, deliver: Callable[[], object]) -> None:
        """Record a command of the binary, None if it is unreadable, and deliver it as the script specifies.

        The policy's first command starts the clock.
        """
        if command is not None:
            phase, name = self._runtime.name_of(command.phase), self._runtime.name_of(command.fault)
            if phase == "POLICY" and not self._start_ns:
                self._start_ns = time.monotonic_ns()
            for journal in self._journals:
                journal.add_command(command, phase, name)
        now, due = time.monotonic_ns(), 0
        for fault, journal in self._active("command"):
            if fault.kind == "command_drop" and self._random.random() < fault.value:
                journal.begin(now)
                return
            if fault.kind == "command_delay":
                journal.begin(now)
                due = now + round(fault.value * 1e9)
        self._queue(due, deliver)

    def _from_operator(self, data: bytes, _: Any = None) -> None:
        now = time.monotonic_ns()
        for fault, journal in self._active("operator"):
            journal.begin(now)
            if fault.kind == "operator_silence":
                return
            if (frame := self._runtime.read_operator(data)) is not None:
                message, source = frame
                message.request = self._runtime.Request.DAMP
                data = self._runtime.write_operator(message, source)
        self._passed("operator", now)
        send(self._desk, self._operator, data)

    def _queue(self, due_ns: int, deliver: Callable[[], object]) -> None:
        """Deliver at a time; 0: now."""
        if due_ns:
            self._delayed.add(due_ns, deliver)
        else:
            deliver()

    def _timeout(self) -> float:
        """Return the time until the next delayed message, 50 ms at most [s]."""
        now = time.monotonic_ns()
        due = self._delayed.next_due
        return 0.05 if due is None else min(max(0.0, (due - now) / 1e9), 0.05)


class UdpProxy(FaultProxy):
    """Forwards the datagrams of robot and binary."""

    def __init__(self, *, front: str, robot: str, **common: Any) -> None:
        """Bind `front`, which the binary takes for the robot at `robot` (host:port)."""
        super().__init__(**common)
        self._front, self._robot = make_socket(bind=address_of(front)), address_of(robot)
        self._routes: dict[Any, socket.socket] = {}
        self._mutators: dict[Any, Mutator] = {}
        self._intruder: socket.socket | None = None
        self._intruded_ns, self._intrusions, self._joints, self._layout = 0, 0, 0, 0
        self._selector.register(self._front, selectors.EVENT_READ, "front")

    def run(self) -> None:
        """Pass datagrams on until `stop`."""
        handlers = {"desk": self._from_operator, "front": self._from_binary}
        while not self._is_over:
            for key, _ in self._selector.select(self._timeout()):
                drain(key.fileobj, handlers.get(key.data) or partial(self._from_robot, client=key.data))
            self._intrude()
            self._delayed.deliver(time.monotonic_ns())

    def _from_binary(self, data: bytes, sender: Any) -> None:
        command = self._runtime.read_command(data)
        if command is not None:
            self._joints = int(command.joints)
        self._pass_command(command, partial(send, self._route(sender), None, data))

    def _from_robot(self, data: bytes, _: Any, client: Any) -> None:
        kind = self._runtime.frame_kind(data)
        if kind is None or kind[0] != self._runtime.Message.STATE:
            send(self._front, client, data)
            return
        self._layout = kind[1]
        mutator = self._mutators.setdefault(client, Mutator(self._runtime, self._random))
        now = time.monotonic_ns()
        for due, changed in mutator.apply(data, now, self._active("state")):
            self._queue(due, partial(send, self._front, client, changed))
        self._passed("state", now)

    def _route(self, client: Any) -> socket.socket:
        """Return the socket that represents a client at the robot."""
        if client not in self._routes:
            self._routes[client] = make_socket(connect=self._robot)
            self._selector.register(self._routes[client], selectors.EVENT_READ, client)
        return self._routes[client]

    def _timeout(self) -> float:
        if not self._active("link"):
            return super()._timeout()
        due = self._intruded_ns + round(INTRUDE_EVERY_S * 1e9)
        return min(super()._timeout(), max(0.0, (due - time.monotonic_ns()) / 1e9))

    def _intrude(self) -> None:
        """Command the robot as the second commander."""
        now = time.monotonic_ns()
        active = self._active("link")
        if not active or not self._layout or now - self._intruded_ns < INTRUDE_EVERY_S * 1e9:
            return
        if self._intruder is None:
            self._intruder = make_socket(connect=self._robot)
            send(self._intruder, None, self._runtime.write_hello(INTRUDER, False))
        command = self._runtime.LowCommand()
        self._intrusions += 1
        command.sequence, command.commander, command.joints = self._intrusions, INTRUDER, self._joints
        command.phase, command.send_time_ns = self._runtime.Phase.DAMPING, now
        send(self._intruder, None, self._runtime.write_command(command, self._layout))
        self._intruded_ns = now
        for _, journal in active:
            journal.begin(now)


class Relay(FaultProxy):
    """Takes states from the robot and commands from the binary, and sends them on, over shared memory and DDS.

    One thread waits for the robot, one for the binary, one is the second commander; they share a lock.
    """

    def __init__(self, *, front: str, robot: str, contract: str, **common: Any) -> None:
        """Prepare `front`, an address such as "dds:unitree_go?domain=2" that the binary takes for the one of the robot.

        `run` connects to the robot. The relay's states have the joint order of the `contract`, a file.
        """
        super().__init__(**common)
        self._addresses = front, robot
        self._contract = Path(contract).read_text()
        self._mutator = Mutator(self._runtime, self._random)
        self._lock = threading.RLock()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK)
        self._selector.register(self._bell, selectors.EVENT_READ, "bell")
        self._robot: Any = None  # the binary's end, at the robot
        self._front: Any = None  # the robot's end, at the binary
        self._layout, self._state = 0, self._runtime.LowState()

    def run(self) -> None:
        """Pass states and commands on until `stop`."""
        serving = self._start(self._serve)
        while not self._is_over:
            ready = [key.data for key, _ in self._selector.select(self._timeout())]
            if "bell" in ready:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._bell)
            with self._lock:
                if "desk" in ready:
                    drain(self._desk, self._from_operator)
                self._delayed.deliver(time.monotonic_ns())
        serving.join()
        self._front = self._robot = None

    def _start(self, work: Callable[[], object]) -> threading.Thread:
        """Start a thread; an error in it ends the relay."""

        def guarded() -> None:
            try:
                work()
            except Exception as error:
                self.failure = self.failure or str(error)
                self._is_over = True

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    def _queue(self, due_ns: int, deliver: Callable[[], object]) -> None:
        super()._queue(due_ns, deliver)
        if due_ns:
            os.eventfd_write(self._bell, 1)

    def _serve(self) -> None:
        """Connect to the robot, open the robot's end for the binary, and pass the states on."""
        front, robot = self._addresses
        self._robot, described = self._connect(robot, RELAY)
        if self._robot is None:
            return
        names = [joint["name"] for joint in json.loads(self._contract)["joints"]]
        description = self._runtime.RobotDescription(
            described.robot, names, feet=described.feet, measured=described.measured
        )
        self._layout = self._runtime.layout_of(description)
        self._front = self._runtime.RobotEnd(front, description)
        threads = [self._start(self._take_commands)]
        if any(fault.kind == "second_commander" for fault in self._faults):
            threads.append(self._start(self._intrude))
        while not self._is_over:
            self._robot.wait(SLICE_S)
            state = self._robot.take_state()
            if state is not None:
                with self._lock:
                    self._from_robot(state)
        for thread in threads:
            thread.join()

    def _connect(self, address: str, commander: int) -> tuple[Any, Any]:
        """Return a commander's end at an address and the description of the robot; None if the relay ends before."""
        while not self._is_over:
            end = self._runtime.Transport(address, "none", commander)
            with contextlib.suppress(self._runtime.UserError):  # nobody is there yet
                return end, end.connect(self._contract, CONNECT_S)
        return None, None

    def _take_commands(self) -> None:
        while not self._is_over:
            self._front.wait(SLICE_S)
            with self._lock:
                while (command := self._front.take_command()) is not None:
                    if command.commander != INTRUDER:  # that one is only to be noticed
                        self._pass_command(command, partial(self._robot.send, command))

    def _intrude(self) -> None:
        """Command the relay's robot as the second commander."""
        front = self._addresses[0]
        end, _ = self._connect(front + ("&" if "?" in front else "?") + "states=0", INTRUDER)
        command = self._runtime.LowCommand()
        command.phase = self._runtime.Phase.DAMPING
        while not self._is_over:
            time.sleep(INTRUDE_EVERY_S)
            with self._lock:
                for _, journal in self._active("link"):
                    command.sequence, command.joints = command.sequence + 1, self._state.joints
                    command.send_time_ns = time.monotonic_ns()
                    journal.begin(command.send_time_ns)
                    end.send(command)

    def _from_robot(self, state: Any) -> None:
        state.commander = 0  # the relay, to the robot; the relay's own robot's end knows which commander it obeys
        self._state, now = state, time.monotonic_ns()
        data = self._runtime.write_state(state, self._layout)
        for due, changed in self._mutator.apply(data, now, self._active("state")):
            self._queue(due, partial(self._to_binary, changed))
        self._passed("state", now)

    def _to_binary(self, data: bytes) -> None:
        state = self._runtime.read_state(data)
        if state is not None:
            self._front.send_state(state)
        else:
            self._front.send_corrupt(self._state, self._random.randrange(2**16))


class ProxyProcess(ModuleProcess):
    """The proxy as a child process."""

    def __init__(self, folder: Path, *, faults: Sequence[Fault], **addresses: str) -> None:
        """Start it with a directory for its report, and wait until it listens.

        Args:
            folder: The directory.
            faults: The script.
            addresses: "front", "robot", "desk" and "operator" of a `UdpProxy`; with "contract" of a `Relay`.

        Raises:
            RuntimeError: It does not start.
        """
        self._report = folder / "proxy.json"
        settings = {**addresses, "faults": dump_faults(faults)}
        super().__init__("robot_rl.sim2sim.proxy", json.dumps(settings), str(self._report))
        line = self.output.readline().strip()
        if line != READY:
            raise RuntimeError(f"the fault proxy printed '{line}' and ended with {self.process.wait(START_S)}")

    def report(self) -> list[dict[str, Any]]:
        """Return a row for each fault, after the end of the process."""
        return read_report(self._report, [])


def main(arguments: Sequence[str]) -> int:
    """Run the process: settings as JSON, and the file for the report."""
    settings = json.loads(arguments[0])
    settings["faults"] = load_faults(settings["faults"])
    proxy = (Relay if "contract" in settings else UdpProxy)(**settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, proxy.stop)
    sys.stdout.write(READY + "\n")
    sys.stdout.flush()
    with high_priority():
        proxy.run()
    write_json(Path(arguments[1]), proxy.report())
    if proxy.failure:
        sys.stderr.write(f"robot-rl: the fault proxy: {proxy.failure}\n")
    return 1 if proxy.failure else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

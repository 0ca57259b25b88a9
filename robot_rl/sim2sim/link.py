"""The robot's end of the protocol: states go out, commands come in, in real time or in lockstep with the binary."""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robot_rl.errors import PeerError, UserError
from robot_rl.sim2sim.binary import Binary, load_runtime

if TYPE_CHECKING:
    from robot_rl.sim2sim.plant import Body, Plant

LOOPBACK = "127.0.0.1"
FIRST_PORT = 20000
"""`free_ports` gives none below."""
_GIVEN: set[int] = set()
REMEMBERED = 4096
"""Number of states for which the time of sending is kept."""
COPIED = ("sequence", "commander", "state_sequence", "state_age_ns", "send_time_ns")
"""Numbers of a command that its note keeps."""
BEHIND_S = 0.1
"""A simulation that is later than this does not catch up [s]."""


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback that neither UDP nor TCP uses, and that no earlier call of this process returned.

    They lie below the range from which the system numbers sockets by itself, so that none of those, of this or of
    another process, takes one before it is used.
    """
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports: list[int] = []
    while len(ports) < count:
        port = FIRST_PORT + secrets.randbelow(max(first - FIRST_PORT, 1000))
        if port not in _GIVEN and _is_free(port):
            ports.append(port)
            _GIVEN.add(port)
    return ports


def _is_free(port: int) -> bool:
    with contextlib.ExitStack() as stack:
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            try:
                stack.enter_context(socket.socket(socket.AF_INET, kind)).bind((LOOPBACK, port))
            except OSError:
                return False
    return True


@dataclass(slots=True, kw_only=True)
class Note:
    """Note of a command; times are of CLOCK_MONOTONIC [ns].

    Attributes:
        state_sequence: Sequence number of the state that it answers.
        answer_ns: From the sending of that state to the sending of the command; -1: unknown.
        phase: Name of the phase, such as "POLICY".
        fault: Name of the fault, such as "none".
        from_policy: Whether it was sent right after an inference.
    """

    sequence: int
    commander: int
    state_sequence: int
    state_age_ns: int
    answer_ns: int
    send_time_ns: int
    phase: str
    fault: str
    from_policy: bool


class Link:
    """Sends states and takes commands.

    Attributes:
        low: The state that `send` sends; the caller fills it.
        measured: Measured signals that the states contain, in their order.
        command: The newest command, None before the first.
        notes: A note of every command, in the order of arrival.
        contract: The `robot_rl_deploy.contract.Contract` of the policy at the other end; None if it is unknown.
    """

    def __init__(
        self,
        address: str,
        robot: str,
        joints: Sequence[str],
        *,
        feet: int = 0,
        measured: Mapping[str, int] | None = None,
        contract: Any = None,
    ) -> None:
        """Listen at an address such as "udp:127.0.0.1:9870" or "shm:name" as a robot with these joints, in its order.

        `measured`: measured signals in their order, and the number of values of each.

        Raises:
            UserError: The runtime is not installed, or the address is not available.
        """
        self._runtime = runtime = load_runtime()
        self.measured, self.contract = tuple(measured or ()), contract
        count = sum((measured or {}).values())
        description = runtime.RobotDescription(robot, list(joints), feet=feet, measured=count)
        self._end: Any = runtime.RobotEnd(address, description)
        self.low = runtime.LowState()
        self.command: Any = None
        self.notes: list[Note] = []
        self._sent = np.zeros(REMEMBERED, np.int64)
        self._operator_sequence, self._source = 0, secrets.randbits(63)

    @property
    def phase(self) -> str:
        """Phase of the newest command; "" before the first."""
        return self.notes[-1].phase if self.notes else ""

    @property
    def fault(self) -> str:
        """Fault of the newest command."""
        return self.notes[-1].fault if self.notes else "none"

    def send(self, robot_time_s: float) -> int:
        """Send `low` as the next state and return its sequence number."""
        low = self.low
        low.sequence += 1
        low.robot_time_ns = max(1_000_000, round(robot_time_s * 1e9))  # 0 would mean a robot without a clock
        self._sent[low.sequence % REMEMBERED] = time.monotonic_ns()
        self._end.send_state(low)
        return int(low.sequence)

    def take(self) -> bool:
        """Take all commands that have arrived and return whether there were any."""
        count = len(self.notes)
        while (command := self._end.take_command()) is not None:
            self.command = command
            self._note(command)
        return len(self.notes) > count

    def wait(self, seconds: float) -> None:
        """Wait for a command; other threads run meanwhile."""
        self._end.wait(seconds)

    def operate(self, request: str = "", command: np.ndarray | None = None) -> None:
        """Send a message of the operator by way of the robot.

        Args:
            request: "damp", "stand", "policy" or "" for none.
            command: The command to follow.
        """
        message = self._runtime.OperatorInput()
        self._operator_sequence += 1
        message.sequence, message.request = self._operator_sequence, request_of(self._runtime, request)
        if command is not None:
            message.size, message.command = len(command), command
        self._end.send_operator(message, self._source)

    def close(self) -> None:
        """Release the address."""
        self._end = None

    def _note(self, command: Any) -> None:
        sequence = int(command.state_sequence)
        known = 0 < sequence <= self.low.sequence and self.low.sequence - sequence < REMEMBERED
        note = Note(
            **{name: int(getattr(command, name)) for name in COPIED},
            answer_ns=int(command.send_time_ns) - int(self._sent[sequence % REMEMBERED]) if known else -1,
            phase=self._runtime.name_of(command.phase),
            fault=self._runtime.name_of(command.fault),
            from_policy=bool(command.from_policy),
        )
        self.notes.append(note)


def make_link(body: Body, address: str, bundle: Path) -> Link:
    """Return the robot's end of the protocol for a simulated robot that runs the policy of a bundle.

    Raises:
        UserError: As `Link` does, or the policy reads a measured signal that the task does not have.
        ContractError: The bundle is damaged.
    """
    from robot_rl_deploy.bundle import read_bundle
    from robot_rl_deploy.observe import needed_signals
    from robot_rl_deploy.terms import MEASURED, kind_of

    signals, robot = body.env.robot_state(), body.env.scene.robot
    contract = read_bundle(bundle).contract
    sensed = [name for name in needed_signals(contract) if name not in contract.received]
    measured = [name for name in sensed if kind_of(name) == MEASURED]
    for name in measured:
        if name not in signals:
            has = ", ".join(other for other in signals if kind_of(other) == MEASURED) or "none"
            right = f"its policy reads {name}; task={body.env.cfg.name} measures {has}"
            raise UserError("bundle", bundle, right)
    sizes = {name: signals[name].shape[1] for name in measured}
    return Link(address, robot.name, body.joint_names, feet=len(robot.feet), measured=sizes, contract=contract)


def request_of(runtime: Any, request: str) -> Any:
    """Return the runtime's `Request` for "damp", "stand", "policy" or ""."""
    return getattr(runtime.Request, request.upper() or "NONE")


class RealTime:
    """Sends every robot's state every tick of the clock; the joints obey the newest commands at its end.

    Attributes:
        late: Number of ticks that began more than half a tick late.
        slipped_s: Time by which the simulation fell behind and did not catch up [s].
    """

    def __init__(self, links: Mapping[str, Link], carry: Callable[[float], object] | None = None) -> None:
        """Begin with the first tick; `carry` is called in each with the time, to carry messages between the robots."""
        self._links, self._carry, self._due = links, carry, 0.0
        self.late, self.slipped_s = 0, 0.0

    def tick(self, plant: Plant) -> None:
        """Send the states, sleep until the tick ends, and hand on the newest commands."""
        if self._carry is not None:
            self._carry(time.monotonic())
        for name, link in self._links.items():
            plant.bodies[name].sense(link.low, link.measured)
            link.send(plant.bodies[name].clock_s)
        now = time.monotonic()
        self._due = (self._due or now) + plant.tick_s
        if now > self._due - 0.5 * plant.tick_s:
            self.late += 1
        if now - self._due > BEHIND_S:
            self.slipped_s += now - self._due
            self._due = now
        if self._due > now:
            time.sleep(self._due - now)
        for name, link in self._links.items():
            link.take()
            plant.bodies[name].command = link.command


class Lockstep:
    """Waits for the answer to each state, so that no result depends on the speed of the machine.

    The policy runs at every n-th state (`steps_per_state`); `align` makes the first state of a control period one of
    them.
    """

    TIMEOUT_S = 20.0
    PATIENCE = 31
    """So many commands of the writer show that the policy does not run at a state."""
    LEAST_S, LEAST_EVERY_S = 0.25, 5.0
    """But not sooner than after this time [s]; the second one if the policy runs at every state."""
    SEEN = 2
    """So many commands of the writer show that it has seen a state."""

    def __init__(self, link: Link, binary: Binary, states: int) -> None:
        """Begin before the first state; `states` is their number per control period, the binary's `steps_per_state`."""
        self._link, self._binary, self._states = link, binary, states
        self._is_answered = False

    def connect(self, body: Body) -> None:
        """Send the robot's state, with its clock stopped, until the binary commands, else raise a PeerError."""
        end, seen = time.monotonic() + self.TIMEOUT_S, len(self._link.notes)
        while len(self._link.notes) == seen:
            if not self._binary.alive or time.monotonic() > end:
                raise self._silent()
            self._link.wait(0.02)
            self._send(body)

    def align(self, body: Body) -> None:
        """Send the robot's state, with its clock stopped, until the policy has run at it."""
        for _ in range(self._states + 1):
            sequence = self._send(body)
            if _answers(self._answer(sequence), sequence):
                return
        raise PeerError(f"robot-rl-infer runs no policy: {self._binary.last_line()}")

    def fill(self, body: Body) -> None:
        """After `align`, send the state until the policy is to run at the next one."""
        for _ in range(self._states - 1):
            self._send_between(body)

    def request(self, body: Body) -> Any:
        """Send the state at the start of a control step, and return the policy's answer.

        The binary may miss a state because the next one has already arrived; then this one is sent again.
        """
        self._is_answered, first = True, self._send(body)
        for _ in range(self._states + 1):
            if _answers(self._answer(first), first):
                return self._link.command
            self._send(body)
        raise self._silent()

    def tick(self, body: Body) -> Any:
        """Send the state if every tick has one; `request` has sent the first of a control step."""
        if not self._is_answered and self._states > 1:
            self._send_between(body)
        self._is_answered = False
        return self._link.command

    def _answer(self, sequence: int) -> Note:
        """Wait for the policy's answer to a state, or until it seems that it does not run there.

        On a loaded machine the writer may send many commands before the policy's thread gets a core. A state that is
        sent again then makes the policy run twice.
        """
        return self.wait(self.PATIENCE, sequence, self.LEAST_EVERY_S if self._states == 1 else self.LEAST_S)

    def wait(self, most: int, sequence: int | None = None, least_s: float = 0.0) -> Note:
        """Return the policy's answer to state `sequence` or a later one, else the `most`-th command from now on.

        Commands that were sent before do not count: on a slow machine many of them are waiting. So many commands end
        the wait only after `least_s` seconds.

        Raises:
            PeerError: It did not arrive in time.
        """
        link, begin, begin_ns = self._link, time.monotonic(), time.monotonic_ns()
        end = begin + self.TIMEOUT_S
        seen = len(link.notes)
        while time.monotonic() < end:
            link.take()
            for note in link.notes[seen:]:
                most -= note.send_time_ns > begin_ns
                is_over = most <= 0 and time.monotonic() >= begin + least_s
                if is_over or (sequence is not None and _answers(note, sequence)):
                    return note
            seen = len(link.notes)
            if not self._binary.alive:
                break
            link.wait(0.05)
        raise self._silent()

    def _send(self, body: Body) -> int:
        """Send the robot's state, and return its sequence number.

        The commands that have arrived are taken first: after a pause they fill the socket, which then drops the answer.
        """
        self._link.take()
        body.sense(self._link.low, self._link.measured)
        return self._link.send(body.clock_s)

    def _send_between(self, body: Body) -> None:
        """Send a state at which the policy does not run, and wait until the writer has seen it."""
        self._send(body)
        self.wait(self.SEEN)

    def _silent(self) -> PeerError:
        why = "is silent" if self._binary.alive else f"ended with {self._binary.process.returncode}"
        return PeerError(f"robot-rl-infer {why}: {self._binary.last_line()}")


def _answers(note: Note, sequence: int) -> bool:
    return note.from_policy and note.state_sequence >= sequence

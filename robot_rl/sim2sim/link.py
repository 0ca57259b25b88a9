"""The robot's end of the protocol, and what it notes about the commands that came in."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robot_rl.sim2sim.binary import load_runtime

REMEMBERED = 4096
"""States whose time of sending is remembered."""


@dataclass(slots=True, kw_only=True)
class Note:
    """What a command was about; times are of CLOCK_MONOTONIC [ns].

    Attributes:
        sequence: Its own number.
        commander: Who sent it.
        state_sequence: The state it answers.
        state_age_ns: How old that state was.
        answer_ns: From the sending of that state to the sending of the command; -1: not known.
        send_time_ns: When it was sent.
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
        command: The newest command, None before the first.
        notes: A note of every command, in the order of arrival.
    """

    def __init__(self, address: str, robot: str, joints: Sequence[str], *, feet: int = 0, heights: int = 0) -> None:
        """Listens.

        Args:
            address: Where, such as "udp:127.0.0.1:9870" or "shm:name".
            robot: Name of the robot.
            joints: Names of its joints in its own order.
            feet: Number of feet.
            heights: Points of its height scan.

        Raises:
            UserError: The runtime is not installed, or the address cannot be had.
        """
        self._runtime = runtime = load_runtime()
        self._end: Any = runtime.RobotEnd(address, runtime.RobotDescription(robot, list(joints), feet, heights))
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
        """Fault that the newest command names."""
        return self.notes[-1].fault if self.notes else "none"

    def send(self, robot_time_s: float) -> int:
        """Sends `low` as the next state; its sequence number."""
        low = self.low
        low.sequence += 1
        low.robot_time_ns = round(robot_time_s * 1e9)
        self._sent[low.sequence % REMEMBERED] = time.monotonic_ns()
        self._end.send_state(low)
        return int(low.sequence)

    def take(self) -> bool:
        """Takes all commands that are there; whether there were any."""
        found = False
        while (command := self._end.take_command()) is not None:
            self.command, found = command, True
            self._note(command)
        return found

    def wait(self, seconds: float) -> bool:
        """Waits for something to arrive; whether it did. Other threads run meanwhile."""
        return bool(self._end.wait(seconds))

    def operate(self, request: str = "", command: np.ndarray | None = None) -> None:
        """Speaks to the binary as the operator, by way of the robot.

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
        """Lets the address go."""
        self._end = None

    def _note(self, command: Any) -> None:
        sequence = int(command.state_sequence)
        known = 0 < sequence <= self.low.sequence and self.low.sequence - sequence < REMEMBERED
        answer = int(command.send_time_ns) - int(self._sent[sequence % REMEMBERED]) if known else -1
        self.notes.append(
            Note(
                sequence=int(command.sequence),
                commander=int(command.commander),
                state_sequence=sequence,
                state_age_ns=int(command.state_age_ns),
                answer_ns=answer,
                send_time_ns=int(command.send_time_ns),
                phase=self._runtime.name_of(command.phase),
                fault=self._runtime.name_of(command.fault),
                from_policy=bool(command.from_policy),
            )
        )


def request_of(runtime: Any, request: str) -> Any:
    """The runtime's `Request` for "damp", "stand", "policy" or ""."""
    return getattr(runtime.Request, request.upper() or "NONE")

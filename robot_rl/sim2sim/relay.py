"""The fault proxy over shared memory and DDS: to the binary it is the robot, to the robot it is the binary.

Where no datagrams can be caught on their way, states and commands are taken off one side and sent on the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from robot_rl.sim2sim.between import INTRUDE_EVERY_S, INTRUDER, Between, drain
from robot_rl.sim2sim.faults import Fault
from robot_rl.sim2sim.mutate import Mutator

RELAY = 0x3E1A
"""Commander id of the relay at the robot."""
SLICE_S = 0.02
"""How often a thread looks whether it is over [s]."""
CONNECT_S = 2.0
"""How long one attempt to find the robot, or the relay's own robot's side, takes [s]."""


class Relay(Between):
    """Takes states from the robot and commands from the binary, and sends them on; see `run`.

    One thread waits for the robot, one for the binary, one is the second commander; a lock keeps them apart.
    """

    def __init__(
        self, *, front: str, robot: str, contract: str, desk: str, operator: str, faults: Sequence[Fault], seed: int = 0
    ) -> None:
        """Prepares; the robot is looked for by `run`.

        Args:
            front: Address that the binary takes for the robot, such as "dds:unitree_go?domain=2".
            robot: Address of the robot.
            contract: File of the policy's contract; its joints are the order of the relay's states.
            desk: See `Between`.
            operator: See `Between`.
            faults: The script.
            seed: Of what is drawn.
        """
        super().__init__(desk=desk, operator=operator, faults=faults, seed=seed)
        self._addresses = front, robot
        self._contract = Path(contract).read_text()
        self._mutator = Mutator(self._runtime, self._random)
        self._lock = threading.RLock()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK)
        self._selector.register(self._bell, selectors.EVENT_READ, "bell")
        self._robot: Any = None  # the binary's part, at the robot
        self._front: Any = None  # the robot's part, at the binary
        self._layout, self._state = 0, self._runtime.LowState()
        self.failure = ""

    def run(self) -> None:
        """Passes states and commands on until `stop`."""
        threads = [threading.Thread(target=self._guarded, args=[self._serve], daemon=True)]
        threads[0].start()
        while not self._is_over:
            ready = [key.data for key, _ in self._selector.select(self._timeout())]
            if "bell" in ready:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._bell)
            with self._lock:
                if "desk" in ready:
                    drain(self._desk, lambda data, _: self._from_operator(data))
                self._send_due()
        threads[0].join()
        self._front = self._robot = None

    def _guarded(self, work: Callable[[], object]) -> None:
        """Runs a thread's work; what it fails of ends the relay."""
        try:
            work()
        except Exception as error:
            self.failure = self.failure or str(error)
            self._is_over = True

    def _queue(self, due_ns: int, deliver: Callable[[], object]) -> None:
        super()._queue(due_ns, deliver)
        if due_ns:
            os.eventfd_write(self._bell, 1)

    # -- threads -----------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Finds the robot, is one itself, and hands on its states."""
        front, robot = self._addresses
        self._robot, described = self._connected(robot, RELAY)
        if self._robot is None:
            return
        names = [joint["name"] for joint in json.loads(self._contract)["joints"]]
        mine = self._runtime.RobotDescription(described.robot, names, described.feet, described.heights)
        self._layout = self._runtime.layout_of(mine)
        self._front = self._runtime.RobotEnd(front, mine)
        works = [self._take_commands]
        if any(fault.kind == "second_commander" for fault in self._faults):
            works.append(self._intrude)
        others = [threading.Thread(target=self._guarded, args=[work], daemon=True) for work in works]
        for thread in others:
            thread.start()
        while not self._is_over:
            self._robot.wait(SLICE_S)
            state = self._robot.take_state()
            if state is not None:
                with self._lock:
                    self._from_robot(state)
        for thread in others:
            thread.join()

    def _connected(self, address: str, commander: int) -> tuple[Any, Any]:
        """A commander's end at an address, and what is described there; None where it was over before."""
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
                    self._from_binary(command)

    def _intrude(self) -> None:
        """Commands the relay's robot as somebody else."""
        front = self._addresses[0]
        end, _ = self._connected(front + ("&" if "?" in front else "?") + "states=0", INTRUDER)
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

    # -- what comes in -----------------------------------------------------------------------------------------------

    def _from_robot(self, state: Any) -> None:
        state.commander = 0  # the relay, to the robot; the front's own robot's side knows whom it heard
        self._state, now = state, time.monotonic_ns()
        data = self._runtime.write_state(state, self._layout)
        for due, changed in self._mutator.apply(data, now, self._active("state")):
            self._queue(due, partial(self._to_binary, changed))
        self._left_alone("state", now)

    def _to_binary(self, data: bytes) -> None:
        state = self._runtime.read_state(data)
        if state is not None:
            self._front.send_state(state)
        else:
            self._front.send_corrupt(self._state, self._random.randrange(2**16))

    def _from_binary(self, command: Any) -> None:
        if command.commander == INTRUDER:  # it was to be heard, not to be obeyed
            return
        self._hear(command)
        self._pass_command(partial(self._robot.send, command))

"""How plant and binary keep in step: by the clock, as on a robot, or in lockstep, where no figure depends on it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from robot_rl.errors import PeerError
from robot_rl.sim2sim.binary import Binary

if TYPE_CHECKING:
    from robot_rl.sim2sim.link import Link, Note
    from robot_rl.sim2sim.plant import Plant

BEHIND_S = 0.1
"""A simulation that is later than that does not catch up."""


class RealTime:
    """A state every tick of the clock; the command that is obeyed is the newest that has come when the tick is over.

    Attributes:
        late: Ticks that began more than half a tick late.
        slipped_s: Time that was given up because the simulation could not keep up [s].
    """

    def __init__(self, link: Link) -> None:
        """Begins with the first tick."""
        self._link, self._due = link, 0.0
        self.late, self.slipped_s = 0, 0.0

    def tick(self, plant: Plant) -> Any:
        """Sends the state, sleeps until the tick is over, takes what came meanwhile."""
        plant.sense(self._link.low)
        self._link.send(plant.clock_s)
        now = time.monotonic()
        self._due = (self._due or now) + plant.tick_s
        if now > self._due - 0.5 * plant.tick_s:
            self.late += 1
        if now - self._due > BEHIND_S:
            self.slipped_s += now - self._due
            self._due = now
        if self._due > now:
            time.sleep(self._due - now)
        self._link.take()
        return self._link.command


class Lockstep:
    """The simulation waits for the answer to each state, so nothing depends on how fast the machine is.

    The policy runs at every nth state (`steps_per_state`); `align` sees to it that the first state of a control period
    is one of them.

    Attributes:
        slips: States that had to be sent again.
    """

    TIMEOUT_S = 20.0
    PATIENCE = 30
    """So many commands of the writer show that the policy does not run at a state."""
    BETWEEN = 2
    """So many commands of the writer show that a state was seen."""

    def __init__(self, link: Link, binary: Binary, states: int) -> None:
        """Counts states.

        Args:
            link: The robot's end.
            binary: The process, to say why it is silent.
            states: States of a control period, the binary's `steps_per_state`; 1: only that which it begins with.
        """
        self._link, self._binary, self._states = link, binary, states
        self._asked, self.slips = False, 0

    def connect(self, plant: Plant) -> None:
        """Sends the plant's state, which stands still, until the binary commands.

        Raises:
            PeerError: It never does.
        """
        end = time.monotonic() + self.TIMEOUT_S
        while not self._link.take():
            if not self._binary.alive or time.monotonic() > end:
                raise self._silent()
            self._link.wait(0.02)
            self._send(plant)

    def align(self, plant: Plant) -> None:
        """Sends the plant's state, which stands still, until the policy has run at it."""
        for _ in range(self._states + 1):
            sequence, answers = self._send(plant), 0

            def is_enough(note: Note, sequence: int = sequence) -> bool:
                nonlocal answers
                answers += 1
                return answers > self.PATIENCE or self._is_answer(note, sequence)

            if self._is_answer(self.wait_for(is_enough), sequence):
                return
        raise PeerError(f"robot-rl-infer runs no policy: {self._binary.last_line()}")

    def fill(self, plant: Plant) -> None:
        """After `align`: sends the state until the policy is to run at the next one."""
        for _ in range(self._states - 1):
            self._between(plant)

    def ask(self, plant: Plant) -> Any:
        """Sends the state that a control step begins with, and waits for the policy's answer.

        A state that the binary overlooked, because the next one was there already, is made up for by this one, sent
        again.
        """
        self._asked, first, answers = True, self._send(plant), 0

        def is_enough(note: Note) -> bool:
            nonlocal answers
            answers += 1
            return self._is_answer(note, first) or answers > self.PATIENCE

        for _ in range(self._states + 1):
            answers = 0
            if self._is_answer(self.wait_for(is_enough), first):
                return self._link.command
            self.slips += 1
            self._send(plant)
        raise self._silent()

    def tick(self, plant: Plant) -> Any:
        """Sends the state, where states go out at each tick; the first tick's was asked for already."""
        if self._asked or self._states == 1:
            self._asked = False
            return self._link.command
        self._between(plant)
        return self._link.command

    def _send(self, plant: Plant) -> int:
        plant.sense(self._link.low)
        return self._link.send(plant.clock_s)

    def watch(self, count: int) -> Note:
        """Waits for so many more commands; the last of them."""
        seen = 0

        def is_enough(_: Note) -> bool:
            nonlocal seen
            seen += 1
            return seen >= count

        return self.wait_for(is_enough)

    def _between(self, plant: Plant) -> None:
        """Sends a state that the policy does not run at, and waits until the writer has seen it."""
        self._send(plant)
        sent_ns, count = time.monotonic_ns(), 0

        def is_enough(note: Note) -> bool:
            nonlocal count
            count += note.send_time_ns > sent_ns
            return count >= self.BETWEEN

        self.wait_for(is_enough)

    @staticmethod
    def _is_answer(note: Note, sequence: int) -> bool:
        return note.from_policy and note.state_sequence >= sequence

    def wait_for(self, wanted: Any) -> Note:
        """Waits until a command came that is wanted.

        Args:
            wanted: A function of a `Note`.

        Raises:
            PeerError: None came in time.
        """
        link, end = self._link, time.monotonic() + self.TIMEOUT_S
        seen = len(link.notes)
        while time.monotonic() < end:
            link.take()
            for note in link.notes[seen:]:
                if wanted(note):
                    return note
            seen = len(link.notes)
            if not self._binary.alive:
                break
            link.wait(0.05)
        raise self._silent()

    def _silent(self) -> PeerError:
        why = "is silent" if self._binary.alive else f"ended with {self._binary.process.returncode}"
        return PeerError(f"robot-rl-infer {why}: {self._binary.last_line()}")

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
        self._link.send(plant.time_s)
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
    """

    TIMEOUT_S = 20.0
    PATIENCE = 30
    """So many answers of the writer show that the policy does not run at a state."""

    def __init__(self, link: Link, binary: Binary, ticks: int) -> None:
        """Counts states.

        Args:
            link: The robot's end.
            binary: The process, to say why it is silent.
            ticks: Ticks of a control period.
        """
        self._link, self._binary, self._ticks = link, binary, ticks
        self._asked = False

    def align(self, plant: Plant) -> None:
        """Sends the plant's state, which stands still, until the policy has run at it."""
        for _ in range(self._ticks + 1):
            sequence, answers = self._send(plant), 0

            def is_enough(note: Note, sequence: int = sequence) -> bool:
                nonlocal answers
                answers += note.state_sequence == sequence
                return note.from_policy or answers > self.PATIENCE

            if self.wait_for(is_enough).from_policy:
                return
        raise PeerError(f"robot-rl-infer runs no policy: {self._binary.last_line()}")

    def fill(self, plant: Plant) -> None:
        """After `align`: sends the state until the policy is to run at the next one."""
        for _ in range(self._ticks - 1):
            self._exchange(plant, is_policy=False)

    def ask(self, plant: Plant) -> Any:
        """Sends the state that a control step begins with, and waits for the policy's answer."""
        self._asked = True
        return self._exchange(plant, is_policy=True)

    def tick(self, plant: Plant) -> Any:
        """Sends the state and waits for its answer; the first tick's was asked for already."""
        if self._asked:
            self._asked = False
            return self._link.command
        return self._exchange(plant, is_policy=False)

    def _send(self, plant: Plant) -> int:
        plant.sense(self._link.low)
        return self._link.send(plant.time_s)

    def _exchange(self, plant: Plant, *, is_policy: bool) -> Any:
        """Sends the plant's state and waits for the command that answers it."""
        sequence = self._send(plant)
        self.wait_for(lambda note: note.state_sequence == sequence and (note.from_policy or not is_policy))
        return self._link.command

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
        why = "is silent" if self._binary.alive else f"ended with {self._binary.process.returncode}"
        raise PeerError(f"robot-rl-infer {why}: {self._binary.last_line()}")

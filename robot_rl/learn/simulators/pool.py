"""The simulators of a training, as the learner sees them: it publishes weights and takes segments as they come."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor

from robot_rl.learn.simulators.simulator import Segment
from robot_rl.metrics.rows import to_stderr

State = dict[str, Tensor]
MOST_FAILURES = 3
"""How often a simulator may be lost without having sent anything."""


class LostError(RuntimeError):
    """A simulator is gone.

    Attributes:
        index: Which one.
    """

    def __init__(self, index: int, line: str) -> None:
        super().__init__(line)
        self.index, self.line = index, line


class Source(ABC):
    """Where a learner's segments come from.

    Attributes:
        count: Segments of a rollout.
        engines: The engine of each of those that send them; empty names if that is not known.
        states: The state of the worlds of each after its newest segment that was taken; empty if there is none.
        lost: How often one was lost.
    """

    def __init__(self, count: int, engines: Sequence[str] = ()) -> None:
        self.count, self.lost = count, 0
        self.engines = list(engines) or [""] * count
        self.states: list[State] = [{} for _ in range(count)]

    @property
    @abstractmethod
    def present(self) -> list[int]:
        """Return those that are there."""

    @abstractmethod
    def publish(self, version: int, weights: Tensor) -> None:
        """Give them the weights (B,) uint8 of `robot_rl.learn.simulators.weights.pack`."""

    @abstractmethod
    def take(self) -> list[Segment]:
        """Wait for the segments of a rollout and return them.

        Raises:
            StoppedError: The training shall stop, while nothing arrives.
        """

    @abstractmethod
    def close(self) -> None:
        """End them."""

    def begin(self, version: int, staleness: int, *, is_first: bool) -> None:  # noqa: B027  (a robot runs anyway)
        """Let them begin segments for the update from a version; its weights are published already.

        Args:
            version: The version.
            staleness: By how many versions the policy that acts may be older than the one that learns.
            is_first: Nothing was learned yet.
        """

    def load(self, states: Sequence[State], new: Iterable[int] = ()) -> None:  # noqa: B027  (a robot keeps none)
        """Let them continue from states; segments that are under way are thrown away.

        Args:
            states: A state for each; empty ones for those that begin in their present state.
            new: Those with worlds that were never stepped; these begin at random times of their episodes.
        """

    def rest(self) -> None:  # noqa: B027
        """Let them go back to the end of their newest segments that were taken, and begin no others."""

    def abandon(self) -> None:  # noqa: B027
        """Let them give up their segments; nothing is begun until weights are published."""


class Pool(Source):
    """Simulators that each work on one segment at a time.

    A rollout is `count` segments, of any of the simulators that are there, in the order in which they arrive: none
    waits for a slower one, and those that are missing leave their part to the others. Segment n is for the update from
    version n / count, rounded down, and a simulator begins it as soon as the published weights are at most
    `staleness` versions before that.

    Attributes:
        count: How many there are, and segments of a rollout.
        first: The number of its first simulator in the run, for lines: of several learners each has a pool.
        least: How many have to be there before the training begins; with fewer it does not continue without one that
            is lost again and again.
        states: As in `Source`; empty if a simulator was never there.
        missing: Those that are not there: they were lost, or are not built yet.
    """

    def __init__(self, count: int, least: int = 0, engines: Sequence[str] = ()) -> None:
        super().__init__(count, engines)
        self.first, self.least = 0, least or count
        self.missing: set[int] = set()
        self._version, self._staleness, self._has_begun = -1, 0, False
        self._base, self._issued = 0, 0
        self._arrived: list[Segment] = []
        self._working: set[int] = set()
        self._failures = [0] * count
        self._firsts: set[int] = set()

    @abstractmethod
    def send(self, version: int, weights: Tensor) -> None:
        """Give every simulator the weights (B,) uint8 of `robot_rl.learn.simulators.weights.pack`."""

    @abstractmethod
    def read_state(self, index: int) -> State:
        """Return the state of a simulator's worlds; not while a segment is simulated."""

    @abstractmethod
    def load_state(self, index: int, state: Mapping[str, Tensor]) -> None:
        """Let a simulator that is there continue from a state.

        Raises:
            LostError: It is gone.
        """

    @abstractmethod
    def submit(self, index: int, target: int, *, is_first: bool) -> None:
        """Let a simulator begin a segment (`Simulator.segment`)."""

    @abstractmethod
    def receive(self) -> tuple[int, Segment | None]:
        """Wait for a segment, and return it with the index of its simulator.

        Instead of a segment it is None if that was abandoned, or if a missing simulator has joined.

        Raises:
            LostError: A simulator is gone.
            StoppedError: The training shall stop.
        """

    @abstractmethod
    def restart(self, index: int) -> None:
        """Start a simulator in the place of a lost one; `join` is called when it is there. Nothing is waited for."""

    @abstractmethod
    def give_up(self) -> None:
        """Let every simulator give up its segment, and forget the weights."""

    @abstractmethod
    def allow(self) -> None:
        """Let the simulators work again."""

    @property
    def present(self) -> list[int]:
        """Return the simulators that are there."""
        return [index for index in range(self.count) if index not in self.missing]

    def publish(self, version: int, weights: Tensor) -> None:
        """Give every simulator weights, and let those begin the next segment that waited for them."""
        self._version = version
        self.send(version, weights)
        self._fill()

    def begin(self, version: int, staleness: int, *, is_first: bool) -> None:
        """Let the simulators begin segments; see `Source`."""
        self._base, self._issued, self._staleness, self._has_begun = version, 0, staleness, True
        if is_first:
            self._firsts = set(range(self.count))
        self._fill()

    def load(self, states: Sequence[State], new: Iterable[int] = ()) -> None:
        """Let the simulators continue from states; see `Source`."""
        self.states = [dict(state) or self.states[index] for index, state in enumerate(states)]
        self._firsts = set(new) | {index for index in self._firsts if not states[index]}
        self._go_back()

    def rest(self) -> None:
        """Let the simulators go back to the end of their newest segments that were taken."""
        if self._has_begun:
            self._go_back()

    def _go_back(self) -> None:
        self.abandon()
        while self._working:
            self._advance()
        self._issued, self._arrived, self._has_begun = 0, [], False
        self.allow()
        for index in self.present:
            try:
                self.load_state(index, self.states[index])
            except LostError as error:
                self._lose(error)

    def abandon(self) -> None:
        """Let every simulator give up its segment; nothing is begun until weights are published."""
        self._version = -1
        self.give_up()

    def take(self) -> list[Segment]:
        """Wait for the segments of a rollout and return them; each simulator continues at once.

        Raises:
            StoppedError: The training shall stop, while nothing arrives; the segments that are there stay.
        """
        while len(self._arrived) < self.count:
            self._fill()
            self._advance()
        found, self._arrived = self._arrived[: self.count], self._arrived[self.count :]
        for segment in found:
            self.states[segment.index] = segment.state
        self._fill()
        return found

    def join(self, index: int) -> None:
        """Let a simulator that is there now take part, from its newest state; one that never was, from its first.

        Raises:
            LostError: It is gone again.
        """
        if state := self._newest(index):
            self.load_state(index, state)
        else:
            self.states[index] = self.read_state(index)
            self._firsts.add(index)
        self.missing.discard(index)

    def leave_out(self, index: int, error: Exception) -> None:
        """Continue without a simulator, after a line; raise the error if too few are left."""
        if len(self.present) < self.least:
            raise error
        to_stderr(f"simulator {self.first + index}: {error}; {len(self.present)} of {self.count} continue without it")

    def _fill(self) -> None:
        """Let each simulator that is idle begin a segment, unless the newest weights are too old for it."""
        for index in self.present:
            target = self._base + self._issued // self.count
            if not self._has_begun or self._version < max(self._base, target - self._staleness):
                return
            if index not in self._working:
                self._issued += 1
                self._working.add(index)
                self.submit(index, target, is_first=index in self._firsts)

    def _advance(self) -> None:
        """Wait for a segment and keep it, or let another simulator take the place of a lost one."""
        try:
            index, segment = self.receive()
        except LostError as error:
            self._lose(error)
            return
        self._working.discard(index)
        if segment is not None:
            self._failures[index] = 0
            self._firsts.discard(index)
            self._arrived.append(segment)

    def _lose(self, error: LostError) -> None:
        """Start a simulator in the place of a lost one, unless that helped too seldom; the others do its segment."""
        index, number = error.index, self.first + error.index
        if index in self._working:
            self._working.discard(index)
            self._issued -= 1
        if index in self.missing:
            line = f"simulator {number} is not there ({error.line}); it is started again"
        else:
            self.lost += 1
            line = f"simulator {number} was lost ({error.line}); its worlds continue from their last snapshot"
        self.missing.add(index)
        self._failures[index] += 1
        if self._failures[index] > MOST_FAILURES:
            why = f"was lost {self._failures[index]} times without having sent anything ({error.line})"
            self.leave_out(index, LostError(index, why))
            return
        to_stderr(line)
        self.restart(index)

    def _newest(self, index: int) -> State:
        """Return the state after a simulator's newest segment."""
        arrived = [segment.state for segment in self._arrived if segment.index == index]
        return arrived[-1] if arrived else self.states[index]

"""The simulators of a training, as the learner sees them: it publishes weights and takes segments as they come."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from robot_rl.learn.simulators.simulator import Segment, Simulator
from robot_rl.metrics.rows import to_stderr

State = dict[str, Tensor]
IDLE = -1
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


class Pool(ABC):
    """Simulators that each work on one segment at a time.

    A rollout is as many segments as there are simulators, of any of them, in the order in which they arrive: none waits
    for a slower one. Segment n is for the update from version n / count, rounded down, and a simulator waits before a
    step that would be too old for it.

    Attributes:
        count: How many there are.
        states: The state of each simulator's worlds after its newest segment that was taken.
        lost: How often one was lost.
        missing: Those that were lost, and have sent nothing since.
    """

    def __init__(self, count: int) -> None:
        self.count, self.lost = count, 0
        self.missing: set[int] = set()
        self.states: list[State] = [{} for _ in range(count)]
        self._base, self._issued = 0, 0
        self._arrived: list[Segment] = []
        self._targets, self._failures = [IDLE] * count, [0] * count
        self._firsts: set[int] = set()

    @abstractmethod
    def publish(self, version: int, weights: Tensor) -> None:
        """Give every simulator the weights (B,) uint8 of `robot_rl.learn.simulators.weights.pack`."""

    @abstractmethod
    def read_states(self) -> list[State]:
        """Return the state of each simulator's worlds; not while segments are simulated."""

    @abstractmethod
    def submit(self, index: int, target: int, *, is_first: bool) -> None:
        """Let a simulator begin a segment (`Simulator.segment`)."""

    @abstractmethod
    def receive(self) -> tuple[int, Segment | None]:
        """Wait for a segment, and return it with the index of its simulator; None where it was abandoned.

        Raises:
            LostError: A simulator that worked on one is gone.
        """

    @abstractmethod
    def replace(self, index: int, state: Mapping[str, Tensor]) -> None:
        """Start a simulator in the place of a lost one, or let one go on from a state."""

    @abstractmethod
    def abandon(self) -> None:
        """Let every simulator give up its segment, and forget the weights."""

    @abstractmethod
    def allow(self) -> None:
        """Let the simulators work again."""

    @abstractmethod
    def close(self) -> None:
        """End the simulators."""

    @property
    def has_begun(self) -> bool:
        """Return whether segments are being simulated."""
        return self._issued > 0

    def begin(self, version: int, *, is_first: bool) -> None:
        """Let every simulator begin a segment for the update from a version, whose weights are published already."""
        self._base, self._issued = version, 0
        self._firsts = set(range(self.count)) if is_first else set()
        for index in range(self.count):
            self._issue(index)

    def load(self, states: Sequence[State]) -> None:
        """Let every simulator go on from a state; segments that are under way are thrown away."""
        self._settle()
        for index, state in enumerate(states):
            self.replace(index, state)
        self.states = [dict(state) for state in states]

    def _settle(self) -> None:
        """Throw all segments away that are under way."""
        self.abandon()
        while any(target >= 0 for target in self._targets):
            try:
                index, _ = self.receive()
            except LostError as error:
                index = error.index
                self.replace(index, {})
            self._targets[index] = IDLE
        self._issued, self._arrived = 0, []
        self.allow()

    def take(self) -> list[Segment]:
        """Wait for the segments of a rollout and return them; each simulator goes on at once."""
        while len(self._arrived) < self.count:
            segment = self._receive()
            self._arrived.append(segment)
            self._issue(segment.index)
        found, self._arrived = self._arrived[: self.count], self._arrived[self.count :]
        for segment in found:
            self.states[segment.index] = segment.state
        return found

    def _receive(self) -> Segment:
        while True:
            try:
                index, segment = self.receive()
            except LostError as error:
                self._replace_lost(error)
                continue
            assert segment is not None
            self.missing.discard(index)
            self._failures[index] = 0
            self._firsts.discard(index)
            self._targets[index] = IDLE
            return segment

    def _replace_lost(self, error: LostError) -> None:
        """Start a simulator in the place of a lost one; raise the error where that helped too seldom."""
        index = error.index
        self.lost += 1
        self.missing.add(index)
        self._failures[index] += 1
        to_stderr(f"simulator {index} was lost ({error.line}); its worlds go on from their last snapshot")
        if self._failures[index] > MOST_FAILURES:
            self._targets[index] = IDLE
            raise error
        self.replace(index, self._newest(index))
        self.submit(index, self._targets[index], is_first=index in self._firsts)

    def _newest(self, index: int) -> State:
        """Return the state after a simulator's newest segment."""
        arrived = [segment.state for segment in self._arrived if segment.index == index]
        return arrived[-1] if arrived else self.states[index]

    def _issue(self, index: int) -> None:
        self._targets[index] = self._base + self._issued // self.count
        self._issued += 1
        self.submit(index, self._targets[index], is_first=index in self._firsts)


class ThreadPool(Pool):
    """Simulators in threads of this process, with one thread of torch's each."""

    def __init__(self, makes: Sequence[Callable[[], Simulator]]) -> None:
        """Build the simulators, one after the other."""
        super().__init__(len(makes))
        self._simulators = [make() for make in makes]
        self._orders: list[queue.SimpleQueue[tuple[int, bool] | None]] = [queue.SimpleQueue() for _ in makes]
        self._done: queue.SimpleQueue[tuple[int, Segment | BaseException | None]] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, args=(index,), name=f"robot-rl-simulate-{index}", daemon=True)
            for index in range(len(makes))
        ]
        threads = torch.get_num_threads()
        self._started = threading.Barrier(len(makes) + 1)
        for thread in self._threads:
            thread.start()
        self._started.wait()
        torch.set_num_threads(threads)  # What a thread sets counts for itself, and for new ones.
        self.states = self.read_states()

    def publish(self, version: int, weights: Tensor) -> None:
        """Put the weights into every mailbox."""
        for simulator in self._simulators:
            simulator.mailbox.put(version, weights)

    def read_states(self) -> list[State]:
        """Return the state of each simulator's worlds."""
        return [simulator.state() for simulator in self._simulators]

    def submit(self, index: int, target: int, *, is_first: bool) -> None:
        """Let a simulator begin a segment."""
        self._orders[index].put((target, is_first))

    def receive(self) -> tuple[int, Segment | None]:
        """Wait for a segment."""
        index, found = self._done.get()
        if isinstance(found, BaseException):
            self._targets[index] = IDLE  # It is not submitted again.
            raise found
        return index, found

    def replace(self, index: int, state: Mapping[str, Tensor]) -> None:
        """Let a simulator go on from a state."""
        self._simulators[index].load(state)

    def abandon(self) -> None:
        """Let every simulator give up its segment."""
        for simulator in self._simulators:
            simulator.mailbox.abandon()

    def allow(self) -> None:
        """Let the simulators work again."""
        for simulator in self._simulators:
            simulator.mailbox.allow()

    def close(self) -> None:
        """End the threads, after the step that each takes."""
        self.abandon()
        for orders in self._orders:
            orders.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self, index: int) -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()  # A thread takes over the number when it is first asked for it.
        self._started.wait()
        while (order := self._orders[index].get()) is not None:
            target, is_first = order
            try:
                self._done.put((index, self._simulators[index].segment(target, is_first=is_first)))
            except BaseException as error:
                self._done.put((index, error))

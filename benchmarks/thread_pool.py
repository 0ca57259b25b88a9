"""Simulators in threads of this process, for benchmarks and tests: a training uses processes (`launcher=ray`)."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from robot_rl.learn.simulators.pool import Pool, State
from robot_rl.learn.simulators.simulator import Segment, Simulator


class ThreadPool(Pool):
    """Simulators in threads of this process, with one thread of torch's each."""

    def __init__(self, makes: Sequence[Callable[[], Simulator]], least: int = 0, engines: Sequence[str] = ()) -> None:
        """Build the simulators, one after the other; `least` and `engines` are those of `Pool`."""
        super().__init__(len(makes), least, engines)
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
        self.states = [self.read_state(index) for index in range(len(makes))]

    def send(self, version: int, weights: Tensor) -> None:
        """Put the weights into every mailbox."""
        for simulator in self._simulators:
            simulator.mailbox.put(version, weights)

    def read_state(self, index: int) -> State:
        """Return the state of a simulator's worlds."""
        return self._simulators[index].state()

    def load_state(self, index: int, state: Mapping[str, Tensor]) -> None:
        """Let a simulator continue from a state."""
        self._simulators[index].load(state)

    def submit(self, index: int, target: int, *, is_first: bool) -> None:
        """Let a simulator begin a segment."""
        self._orders[index].put((target, is_first))

    def receive(self) -> tuple[int, Segment | None]:
        """Wait for a segment."""
        index, found = self._done.get()
        if isinstance(found, BaseException):
            self._working.discard(index)  # Nothing more comes of it.
            raise found
        return index, found

    def restart(self, index: int) -> None:
        """Let a simulator continue, for it is a thread that is still there."""
        self.join(index)

    def give_up(self) -> None:
        """Let every simulator give up its segment."""
        for simulator in self._simulators:
            simulator.mailbox.abandon()

    def allow(self) -> None:
        """Let the simulators work again."""
        for simulator in self._simulators:
            simulator.mailbox.allow()

    def close(self) -> None:
        """End the threads, after the step that each takes."""
        self.give_up()
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

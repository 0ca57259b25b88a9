"""What a source of rollouts is: one life cycle for all of them."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor

from robot_rl.errors import Interrupted
from robot_rl.learn.algorithm import Algorithm
from robot_rl.learn.collector import Collector
from robot_rl.learn.rollout import Rollout
from robot_rl.learn.timing import Stopwatch
from robot_rl.settings import LearnerCfg


class Host(Protocol):
    """What a source of rollouts uses of its trainer (`robot_rl.learn.trainer.Trainer`)."""

    env: Any
    cfg: LearnerCfg
    device: torch.device
    iteration: int
    algorithm: Algorithm
    collector: Collector
    watch: Stopwatch

    @property
    def elapsed_s(self) -> float:
        """Return the seconds since the iteration before ended [s]."""
        ...

    @property
    def is_stopping(self) -> bool:
        """Return whether a signal requests the end of the training."""
        ...

    @property
    def pop_metrics(self) -> Any:
        """Return the function that takes the environment's metrics."""
        ...

    def collect(self) -> Rollout:
        """Let the current policy act for a rollout."""
        ...

    def uninterrupted(self) -> AbstractContextManager[None]:
        """Let no signal give up the iteration inside."""
        ...

    def acting_streams(self) -> dict[str, torch.Generator]:
        """Return the random streams that rollouts draw from."""
        ...

    def live_worlds(self) -> dict[str, Tensor]:
        """Return the state that the trainer's parts keep of each world, live."""
        ...


class StoppedError(Interrupted):
    """The training shall stop, while no rollout arrives."""


class RolloutSource(ABC):
    """Gives a trainer its rollouts: `start`, then `next`, `measured` and `publish` in each iteration, then `pause`.

    Attributes:
        trainer: The trainer, with the worlds, the collector and the algorithm.
        newest: The rollout that `next` returned last.
    """

    def __init__(self, trainer: Host) -> None:
        """Take the trainer; raise UserError if it cannot learn from such rollouts."""
        self.trainer = trainer

    @property
    def newest(self) -> Rollout:
        """Return the rollout that was taken last."""
        return self.trainer.collector.rollout

    def start(self, last_iteration: int) -> None:  # noqa: B027  (a collector starts with its first rollout)
        """Begin, for the iterations up to number `last_iteration`."""

    @abstractmethod
    def next(self, last_iteration: int) -> Rollout:
        """Return the rollout of this iteration; the next call overwrites it.

        Raises:
            StoppedError: The training shall stop, while nothing arrives.
        """

    @abstractmethod
    def measured(self, learn_s: float) -> tuple[dict[str, float], dict[str, float]]:
        """Return metrics of that rollout, and the seconds that it took by part; `learn_s` [s] took the update."""

    def publish(self, last_iteration: int) -> None:  # noqa: B027
        """Give the policy after the update to whom acts elsewhere."""

    def pause(self) -> None:  # noqa: B027
        """End the use of the worlds, at the end of a training."""

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Hold still while a checkpoint is loaded inside."""
        yield

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that a checkpoint keeps of it."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:  # noqa: B027
        """Load the output of `state`; empty if only networks were loaded."""

    def worlds(self, live: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the state of each world, given that of the trainer's parts, live."""
        return live

    def packed_worlds(self) -> dict[str, Tensor] | None:
        """Return the state of the worlds for a checkpoint; None: that of this moment."""
        return None

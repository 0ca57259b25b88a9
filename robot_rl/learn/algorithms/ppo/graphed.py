"""The minibatch step as CUDA graphs: recorded once for each shape of batch, then replayed.

On a GPU the step of a small network is hundreds of short kernels, and launching them takes longer than running them. A
graph launches all of them at once. It reads and writes the same memory at every replay, so samples, indices and the
frozen policy are copied into their own memory before; optimizer, step size and networks stay in place anyway. Nothing
in it may depend on a number that Python holds: an auxiliary that adds to the loss has to promise it
(`Auxiliary.capturable`).

The first minibatches of a shape run without a graph, on the stream that records afterwards: they are real steps, in
which libraries allocate their memory. Several processes average their gradient between two graphs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robot_rl.learn.auxiliaries.auxiliary import Auxiliary
from robot_rl.learn.graphs import CudaRecorder
from robot_rl.learn.rollout import Batch

WARM_UP = 3
"""Minibatches of a shape that run before it is recorded."""
MAX_KEPT = 4
"""Shapes with graphs that are kept at once; each keeps a copy of a batch."""

Step = Callable[[Tensor], Tensor]
"""Takes the indices (b,) of a minibatch, and returns its statistics."""


@dataclass(slots=True)
class Recording:
    """The memory and the graphs of one shape of batch.

    Attributes:
        batch: the samples, in their own memory.
        frozen: the policy that acted, in its own memory.
        index: (b,) indices of the minibatch.
        statistics: the step's output, in memory of the graph's.
        steps: minibatches so far.
        replays: the graphs in order, with the work between them; empty before they are recorded.
    """

    batch: Batch
    frozen: Tensor | None
    index: Tensor
    statistics: Tensor | None = None
    steps: int = 0
    replays: list[Callable[[], Any]] = field(default_factory=list)


class GraphedStep:
    """Steps of an algorithm over minibatches, replayed from graphs.

    The algorithm is a `robot_rl.learn.algorithms.ppo.ppo.PPO`, which imports this module, or has its methods.

    Attributes:
        problem: why recording failed, after which nothing is recorded; else empty.
    """

    def __init__(self, algorithm: Any, recorder: Any) -> None:
        self._algorithm, self._recorder = algorithm, recorder
        self._recordings: dict[tuple[Any, ...], Recording] = {}
        self.problem = ""

    def bind(self, batch: Batch, size: int, frozen: Tensor | None) -> Step:
        """Copy a batch to the memory of its shape's graphs, and return the step over minibatches of `size` samples."""
        key = (size, None if frozen is None else tuple(frozen.shape), batch.shapes())
        recording = self._recordings.get(key)
        if recording is None:
            if len(self._recordings) == MAX_KEPT:  # Dictionaries are ordered: the first is the oldest.
                del self._recordings[next(iter(self._recordings))]
            index = torch.zeros(size, dtype=torch.int64, device=batch.value.device)
            recording = Recording(batch.clone(), None if frozen is None else frozen.clone(), index)
            self._recordings[key] = recording
        else:
            recording.batch.copy_(batch)
            if recording.frozen is not None and frozen is not None:
                recording.frozen.copy_(frozen)
        return lambda index: self._step(recording, index)

    def _step(self, recording: Recording, index: Tensor) -> Tensor:
        recording.index.copy_(index)
        if recording.steps >= WARM_UP and not recording.replays and not self.problem:
            try:
                recording.replays = self._record(recording)
            except RuntimeError as error:
                self.problem = str(error).strip().splitlines()[0]
                warnings.warn(f"the update runs without a CUDA graph, which failed: {self.problem}", stacklevel=2)
        if recording.replays:
            for replay in recording.replays:
                replay()
        else:
            self._recorder.run(lambda: self._run(recording))
        recording.steps += 1
        assert recording.statistics is not None
        return recording.statistics

    def _run(self, recording: Recording) -> None:
        recording.statistics = self._algorithm.step(recording.batch, recording.index, recording.frozen)

    def _differentiate(self, recording: Recording) -> None:
        recording.statistics = self._algorithm.differentiate(recording.batch, recording.index, recording.frozen)

    def _record(self, recording: Recording) -> list[Callable[[], Any]]:
        optimizer, record = self._algorithm.optimizer, self._recorder.record
        if optimizer.ranks.size == 1:
            return [record(lambda: self._run(recording))]
        first = record(lambda: self._differentiate(recording))
        return [first, optimizer.reduce, record(self._algorithm.improve)]


def why_not_graphed(algorithm: Any, device: torch.device) -> str:
    """Return why the steps of an algorithm are not recorded; empty if they are."""
    if device.type != "cuda":
        return "graphs are CUDA's"
    if not algorithm.cfg.cuda_graph:
        return "ppo.cuda_graph=false"
    for auxiliary in algorithm.auxiliaries:
        if type(auxiliary).loss is not Auxiliary.loss and not auxiliary.capturable:
            return f"{auxiliary.name} adds to the loss"
    return ""


def make_graphed(algorithm: Any, device: torch.device) -> GraphedStep | None:
    """Return the replayed steps of an algorithm; None if they are not recorded (`why_not_graphed`)."""
    return None if why_not_graphed(algorithm, device) else GraphedStep(algorithm, CudaRecorder(device))

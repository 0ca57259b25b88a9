"""CUDA graphs: records work on the device once, and a whole rollout as one graph.

The environment's steps, the policy's inference and the recording of a rollout are thousands of kernels in the same
order every time. A graph launches all of them at once. It reads and writes the same memory at every replay: weights,
normalizer, the environment's state and its live parameters stay in place anyway, the deviation of the policy is copied
into the memory that was recorded, and random numbers are drawn before it.

The first rollout runs without a graph: libraries allocate their memory, and Warp loads its kernels.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from robot_rl.errors import UserError
from robot_rl.learn.algorithm import Snapshot
from robot_rl.learn.auxiliaries.auxiliary import RolloutHook
from robot_rl.learn.rollout import Rollout

FIRST = -1
"""Priority of a stream that the device takes kernels from before those of 0."""

Walk = Callable[[TensorDict, Snapshot], TensorDict]
"""Takes the steps of a rollout from observations with a policy, and returns the observations after them."""


class CudaRecorder:
    """Runs and records on its own stream; each recording is a graph with its own memory."""

    def __init__(self, device: torch.device, *, with_loops: bool = False, priority: int = 0) -> None:
        """Take a device.

        Args:
            device: the GPU.
            with_loops: the recorded work has loops of Warp's that end by a value of the device. Warp interrupts the
                recording for them, after which torch takes it for another one, and would hand out memory that is not
                the graph's: this thread's memory then comes from its own pool.
            priority: of the recorded work; the less, the sooner the device takes it.
        """
        self._stream = torch.cuda.Stream(device, priority=priority)
        self._pools: list[torch.cuda.MemPool] | None = [] if with_loops else None

    def run(self, work: Callable[[], None]) -> None:
        """Run a function in order with the current stream."""
        current = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            work()
        current.wait_stream(self._stream)

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Record a function without running it, and return its replay."""
        graph = torch.cuda.CUDAGraph()
        # Other threads (a metrics writer) may call CUDA meanwhile: only this one's calls are recorded and checked.
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"), self._memory():
            work()
        return graph.replay

    def _memory(self) -> AbstractContextManager[None]:
        if self._pools is None:
            return nullcontext()
        self._pools.append(torch.cuda.MemPool())  # It lasts as long as the recorder, and so does its content.
        return torch.cuda.use_mem_pool(self._pools[-1], self._stream.device)


class RecordedRollout:
    """Rollouts of one environment, replayed from a graph.

    Attributes:
        problem: why recording failed, after which every rollout runs without a graph; else empty.
    """

    def __init__(self, env: Any, num_steps: int, walk: Walk, recorder: Any, *, is_required: bool = False) -> None:
        """Record `num_steps` steps of `env` as `walk` takes them, when the first rollout has run.

        If `is_required`, `run` raises UserError where recording fails.
        """
        self._is_required = is_required
        self._env, self._num_steps, self._walk, self._recorder = env, num_steps, walk, recorder
        self._rollouts = 0
        self._frozen: Tensor | None = None  # The snapshot that the recorded policy reads, in its own memory.
        self._replay: Callable[[], None] | None = None
        self._flags = (False, False)
        self.problem = ""

    @property
    def is_recorded(self) -> bool:
        """Whether the next rollout is a replay."""
        return self._replay is not None

    def run(self, policy: Snapshot, rollout: Rollout) -> TensorDict | None:
        """Take the steps of a rollout by a replay, and return the observations after them; None if it cannot yet.

        The rollout's random numbers are drawn already.
        """
        self._rollouts += 1
        if self._rollouts == 1 or self.problem or not can_be_recorded(policy):
            return None
        obs = self._env.rewind()
        if self._replay is None:
            try:
                self._record(obs, policy, rollout)
            except Exception as error:  # any error of Warp, torch or CUDA; nothing was run
                self._env.skip(0)
                self.problem = (str(error).strip() or type(error).__name__).splitlines()[0]
                if self._is_required:
                    raise UserError(f"graph=on: recording a rollout failed: {self.problem}; use graph=auto") from error
                warnings.warn(f"rollouts run without a CUDA graph, which failed: {self.problem}", stacklevel=2)
                return None
        assert self._replay is not None
        if self._frozen is not None and policy.frozen is not None:
            self._frozen.copy_(policy.frozen)
        self._replay()
        rollout.has_final_obs, rollout.has_invalid = self._flags
        return self._env.skip(self._num_steps)

    def _record(self, obs: TensorDict, policy: Snapshot, rollout: Rollout) -> None:
        acting = copy.copy(policy)
        acting.frozen = self._frozen = None if policy.frozen is None else policy.frozen.clone()

        def work() -> None:
            with self._env.recording():
                self._walk(obs, acting)
            self._flags = (rollout.has_final_obs, rollout.has_invalid)

        self._replay = self._recorder.record(work)


def can_be_recorded(policy: Snapshot) -> bool:
    """Return whether a policy does the same work in every rollout."""
    return type(policy).act is Snapshot.act or policy.capturable


def why_not_recorded(env: Any, hooks: Sequence[RolloutHook], *, is_tracked: bool) -> str:
    """Return why the rollouts of an environment are not recorded, in words; empty if they are.

    `is_tracked` says that each step is followed by Python's own statistics.
    """
    if torch.device(env.device).type != "cuda":
        return "graphs are CUDA's"
    if not all(hasattr(env, name) for name in ("recording", "rewind", "skip")):
        return "the environment cannot be recorded"
    if is_tracked:
        return "the environment lacks its own pop_metrics()"
    if not all(hook.capturable for hook in hooks):
        return "an auxiliary objective acts in rollouts"
    return str(getattr(env, "why_not_recorded", ""))

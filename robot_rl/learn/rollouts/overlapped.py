"""Simulates the next rollout while this one is learned from: in a thread, on a GPU on its own stream.

Each rollout but the first is then by the policy of the iteration before: one version stale, and no more. Nothing
depends on which of the two ends first, so the same seed gives the same bits, and a resumed run is the run: a checkpoint
has the worlds as they were before the rollout that is being simulated, and the policy that simulates it.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from robot_rl.errors import UserError
from robot_rl.learn.algorithm import carried
from robot_rl.learn.checkpoints import worlds
from robot_rl.learn.collector import Collector
from robot_rl.learn.graphs import FIRST
from robot_rl.learn.networks.actor_critic import Actor
from robot_rl.learn.rollout import Rollout
from robot_rl.learn.rollouts.source import Host, RolloutSource
from robot_rl.metrics.iteration import overlap_efficiency

BEHAVIOUR = "behaviour."
"""Prefix of the policy that simulates, in a checkpoint."""
VERSION = f"{BEHAVIOUR}version"
MEASURED, MEASURED_EVERY = (1, 2), 64
"""Iterations of a process, and each of so many, in which simulation and learning are timed apart."""


class RolloutCancelled(RuntimeError):
    """The rollout is not needed any more."""


class StreamExecutor:
    """Launches work on its own CUDA stream, at once; the device runs it while the caller continues.

    It sees the results of earlier work on the caller's stream; the caller sees its results after its `result`.
    """

    def __init__(self, device: torch.device, is_ready: Callable[[], bool]) -> None:
        """Take a device; while `is_ready` returns False, work runs on the caller's stream."""
        self._stream, self._is_ready = torch.cuda.Stream(device, priority=FIRST), is_ready

    def submit(self, work: Callable[[], float], /) -> _Launched:
        """Launch work; an exception while it is launched is raised here."""
        current = torch.cuda.current_stream(self._stream.device)
        stream = self._stream if self._is_ready() else current
        stream.wait_stream(current)
        flight = _Launched(work)
        with torch.cuda.stream(stream):
            flight.begin.record()
            work()
            flight.end.record()
        return flight

    def shutdown(self) -> None:
        """Wait for all work."""
        self._stream.synchronize()


class _Launched:
    """Work on a stream. Memory that it reads stays allocated as long as this does, since it is from another stream."""

    def __init__(self, work: Callable[[], float]) -> None:
        self._work = work
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def result(self) -> float:
        """Wait for its end, and return how long it took [s]."""
        self.end.synchronize()
        return self.begin.elapsed_time(self.end) / 1000.0

    def exception(self) -> None:
        """Wait for its end."""
        self.end.synchronize()


class PrefetchedRollout:
    """A rollout that is simulated while its caller continues, by its own policy.

    Attributes:
        actor: The policy that simulates; a copy.
        version: () iterations that it has learned for; -1 before there is one.
        rollout: The newest rollout that was taken.
    """

    def __init__(self, collector: Collector, actor: Actor, executor: StreamExecutor | None = None) -> None:
        """Simulate on the stream of an executor; in a thread without one."""
        self._collector = collector
        self.actor = copy.deepcopy(actor).requires_grad_(False)
        self.version = torch.full((), -1, dtype=torch.int64)
        self.rollout = copy.deepcopy(collector.rollout)
        self._flight: Future[float] | _Launched | None = None
        self._is_unwanted = threading.Event()
        self._can_end_early = executor is None
        self._executor: ThreadPoolExecutor | StreamExecutor = executor or self._make_thread(
            getattr(collector.env, "uses_cores", True)
        )

    @staticmethod
    def _make_thread(uses_cores: bool) -> ThreadPoolExecutor:
        """Return a thread. If the engine leaves the cores, torch uses one of them in it, elsewhere as many as before.

        With a second team of threads there would be more of them than cores, whereupon OpenMP lets all of them sleep at
        each barrier. That suits an engine that needs the cores; without one the update takes a third longer.
        """
        thread = ThreadPoolExecutor(1, "robot-rl-simulate")
        if not uses_cores:
            threads = torch.get_num_threads()
            # A thread takes over the number when it is first asked for it.
            thread.submit(lambda: (torch.set_num_threads(1), torch.get_num_threads())).result()
            torch.set_num_threads(threads)
        return thread

    @property
    def is_flying(self) -> bool:
        """Return whether a rollout is being simulated, or was and is not taken yet."""
        return self._flight is not None

    def become(self, actor: Actor, version: int) -> None:
        """Take over a policy, for the next rollout."""
        with torch.no_grad():
            for mine, theirs in zip(_tensors(self.actor), _tensors(actor), strict=True):
                mine.copy_(theirs)
        self.version.fill_(version)

    def launch(self, policy: Any) -> None:
        """Simulate a rollout by a snapshot, with the policy that was taken over."""
        policy.follow(self.actor, int(self.version))
        if self._can_end_early:
            policy.act = self._while_wanted(policy.act)
        self._flight = self._executor.submit(lambda: self._simulate(policy))

    def _while_wanted(self, act: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def act_while_wanted(*arguments: Any) -> Tensor:
            if self._is_unwanted.is_set():
                raise RolloutCancelled
            return act(*arguments)

        return act_while_wanted

    def take(self) -> Rollout:
        """Wait for the rollout, and return a copy of it, which the next call overwrites.

        A recurrent critic's state stays that after the rollout before.
        """
        assert self._flight is not None
        self._flight.result()
        self._flight = None
        self.rollout.begin()
        self.rollout.copy_(self._collector.rollout)
        return self.rollout

    def give_up(self) -> bool:
        """End the rollout, if there is one, after the step that it takes; return whether the worlds are within it.

        One that is complete already stays, to be taken; so does one of a GPU, which ends no graph early.
        """
        if self._flight is None:
            return False
        self._is_unwanted.set()
        is_given_up = isinstance(self._flight.exception(), RolloutCancelled)  # Waits.
        self._is_unwanted.clear()
        if is_given_up:
            self.forget()
        return is_given_up

    def forget(self) -> None:
        """Forget the rollout, which nothing simulates any more."""
        self._flight = None

    def wait(self) -> float:
        """Wait for the rollout, if there is one, so that nothing uses the worlds; return how long it took [s]."""
        is_there = self._flight is not None and self._flight.exception() is None
        return self._flight.result() if self._flight is not None and is_there else 0.0

    def close(self) -> None:
        """End the executor that simulates, after its rollout."""
        self._executor.shutdown()

    def _simulate(self, policy: Any) -> float:
        begin = time.perf_counter()
        self._collector.collect(policy)
        return time.perf_counter() - begin


def _tensors(module: nn.Module) -> list[Tensor]:
    """Return a module's parameters and buffers, also those that follow from others."""
    return [*module.parameters(), *module.buffers()]


class OverlappedRollouts(RolloutSource):
    """Rollouts that are simulated during the update before.

    In some iterations simulation and update come one after the other, so that their times are those without the other.
    """

    def __init__(self, trainer: Host) -> None:
        """Allocate a second rollout, and the executor that simulates during the update."""
        super().__init__(trainer)
        if not all(hook.is_separable for hook in trainer.algorithm.spec().hooks):
            raise UserError(
                f"overlap: true, but an auxiliary objective of learner={trainer.cfg.name} acts in rollouts with what "
                "it learns"
            )
        self.ahead = PrefetchedRollout(trainer.collector, trainer.algorithm.actor, self._make_executor())
        self._rest: dict[str, Tensor] = {}
        self._drawn: dict[str, Tensor] = {}
        self._is_noted = False
        self._count, self._is_apart = 0, False
        self._apart, self._simulated_s, self._waited_s = (0.0, 0.0), 0.0, 0.0
        self._popped: dict[str, float] = {}
        self._seconds: dict[str, float] = {}

    def _make_executor(self) -> StreamExecutor | None:
        """Return the executor that simulates during the update on a GPU; None if it is a thread.

        Only a rollout in one graph can run during it: Warp's own launches are on a stream of Warp's.
        """
        trainer = self.trainer
        if trainer.device.type != "cuda":
            return None
        recorded = trainer.collector.recorded
        if recorded is None:
            reason = trainer.collector.why_not_recorded
            raise UserError(f"overlap: true, but on a GPU only a rollout in one CUDA graph can overlap: {reason}")
        return StreamExecutor(trainer.device, lambda: recorded.is_recorded)

    @property
    def newest(self) -> Rollout:
        """Return the rollout that was taken last."""
        return self.ahead.rollout

    def start(self, last_iteration: int) -> None:
        """Begin the first rollout, if none is under way."""
        if not self.ahead.is_flying and self.trainer.iteration < last_iteration:
            self._launch()

    def next(self, last_iteration: int) -> Rollout:
        """Take a rollout, and begin the next."""
        trainer = self.trainer
        self._is_apart = self._count in MEASURED or self._count % MEASURED_EVERY == MEASURED_EVERY - 1
        self._count += 1
        begin = time.perf_counter()
        rollout = self.ahead.take()
        self._waited_s = time.perf_counter() - begin
        rollout.learner_version = torch.full((), trainer.iteration, dtype=torch.int64, device=trainer.device)
        self._popped = trainer.pop_metrics()
        self._seconds = trainer.watch.read()
        self.ahead.become(trainer.algorithm.actor, trainer.iteration)
        if trainer.iteration + 1 < last_iteration and not trainer.is_stopping:
            self._launch()
        else:
            self._note()
        self._simulated_s = self.ahead.wait() if self._is_apart else 0.0
        return rollout

    def measured(self, learn_s: float) -> tuple[dict[str, float], dict[str, float]]:
        """Return the environment's metrics, how long the rollout was waited for, and how much overlaps."""
        elapsed = self.trainer.elapsed_s
        metrics = self._popped | {"perf/wait_s": self._waited_s}
        if self._simulated_s:
            self._apart = (self._simulated_s, learn_s)
        elif self._apart[0] and not self._is_apart:
            rest = max(0.0, elapsed - self._waited_s - learn_s)
            names = ("perf/simulate_apart_s", "perf/learn_apart_s")
            metrics |= dict(zip(names, self._apart, strict=True))
            efficiency = overlap_efficiency(*self._apart, rest, elapsed)
            if 0.0 <= efficiency <= 1.0:  # Else a time apart is not that of this iteration, as if other programs ran.
                metrics["perf/overlap_efficiency"] = efficiency
        return metrics, self._seconds

    def pause(self) -> None:
        """End the use of the worlds: a rollout that is under way is given up, and they are again as before it."""
        trainer = self.trainer
        if not worlds.has_state(trainer.env):
            self.ahead.wait()
        elif self.ahead.give_up():
            trainer.pop_metrics()
            worlds.unpack(Path("the worlds before"), self._rest, trainer.env, self._acting_worlds())
            for name, stream in trainer.acting_streams().items():
                stream.set_state(self._drawn[name])
            trainer.collector.leave()

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Give up the rollout that is under way; forget it once others are loaded."""
        self.pause()
        was_noted, self._is_noted = self._is_noted, False
        try:
            yield
        except BaseException:
            self._is_noted = was_noted
            raise
        self.ahead.forget()
        self._rest = {}

    def _launch(self) -> None:
        """Begin the next rollout, in the worlds as they are."""
        trainer = self.trainer
        if not trainer.collector.has_started:
            trainer.collector.start(self.worlds(trainer.live_worlds()), is_first=trainer.iteration == 0)
        if int(self.ahead.version) < 0:
            self.ahead.become(trainer.algorithm.actor, trainer.iteration)
        self._note()
        with trainer.uninterrupted():
            trainer.watch.start()
            self.ahead.launch(trainer.algorithm.snapshot(trainer.iteration))

    def _note(self) -> None:
        """Keep the state of the worlds, which nothing uses now."""
        live = worlds.pack(self.trainer.env, self._acting_worlds())
        self._rest = {name: tensor.detach().clone() for name, tensor in live.items()}
        self._drawn = {name: stream.get_state() for name, stream in self.trainer.acting_streams().items()}
        self._is_noted = True

    def state(self) -> dict[str, Tensor]:
        """Return the policy that simulates, its version, and the random streams before its rollout."""
        own = self.ahead.actor.state_dict() | carried(self.ahead.actor)
        behaviour = {f"{BEHAVIOUR}{name}": tensor for name, tensor in own.items()}
        return (self._drawn if self._is_noted else {}) | {VERSION: self.ahead.version} | behaviour

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Load the policy that simulates."""
        if not state:
            self.ahead.version.fill_(-1)
            return
        own = worlds.under(state, BEHAVIOUR)
        self.ahead.version.copy_(own.pop("version"))
        for name, tensor in carried(self.ahead.actor).items():
            tensor.copy_(own.pop(name))
        self.ahead.actor.load_state_dict(own)

    def _acting_worlds(self) -> dict[str, Tensor]:
        """Return the state of each world that changes while a rollout is simulated, live."""
        learned = self._learned_worlds()
        return {name: tensor for name, tensor in self.trainer.live_worlds().items() if name not in learned}

    def _learned_worlds(self) -> dict[str, Tensor]:
        """Return the state of each world that changes when a rollout is learned from, live."""
        critic = self.ahead.rollout.critic_after
        return ({} if critic is None else {"memory.critic": critic}) | self.trainer.algorithm.worlds()

    def worlds(self, live: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the state of each world: of the rollout that is simulated, and of the one that was learned from."""
        return self._acting_worlds() | self._learned_worlds()

    def packed_worlds(self) -> dict[str, Tensor] | None:
        """Return the worlds before the rollout that is simulated."""
        learned = {f"{worlds.LIVE}{name}": tensor for name, tensor in self._learned_worlds().items()}
        return self._rest | learned if self._is_noted else None

"""The parts that every trainer shares: counters, observers, metrics, signals and checkpoints."""

from __future__ import annotations

import contextlib
import math
import signal
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from rsl_rl.env import VecEnv
from torch import Tensor

from robot_rl.errors import Interrupted
from robot_rl.learn.checkpoints.manager import Checkpointed, CheckpointManager
from robot_rl.learn.checkpoints.worlds import num_worlds
from robot_rl.learn.dims import checked_mirrors, env_mirrors, make_env_spec
from robot_rl.learn.episodes import EpisodeTracker
from robot_rl.learn.health import QuarantineLimit
from robot_rl.learn.interrupt import IterationCancelled, StopRequest
from robot_rl.learn.ranks import SINGLE_PROCESS, ProcessGroup
from robot_rl.metrics.iteration import PARTS, merge_rows, overlap_share, time_parts
from robot_rl.metrics.writers import MetricsWriter
from robot_rl.processes import SIGNALS
from robot_rl.settings import LearnerCfg

Observer = Callable[[dict[str, float]], bool | None]
"""Called once an iteration with the row of metrics; returning True ends the training."""
OnIterationEnd = Callable[["BaseTrainer"], Mapping[str, float]]
"""Called after each iteration, with the session; returns additional values for the iteration's row."""


class BaseTrainer(Checkpointed):
    """A training in an environment: everything around the iterations, for any loop.

    Of the environment it uses, where present: `mirror`, `pop_metrics()`, `step_dt`, and in the extras of a step
    "time_outs" (N,), "final_obs" (observations at which episodes ended) and "valid" (N,).

    Attributes:
        device: the device of the environment and the networks.
        checkpoints: saves and loads its state.
        counts_ranks: whether a row has the number of processes, of their worlds and of their samples.
        on_iteration_end: may look at the session after each iteration; of several processes the first one's counts.
    """

    def __init__(
        self,
        env: VecEnv,
        cfg: LearnerCfg,
        *,
        run_dir: Path | None = None,
        seed: int = 1,
        observer: Observer | Iterable[Observer] | None = None,
        writer: MetricsWriter | None = None,
        ranks: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        """Read the sizes from the environment; a subclass builds the networks.

        Args:
            env: any rsl_rl environment; of several processes, the worlds of this one.
            cfg: the learner's configuration.
            run_dir: where metrics and checkpoints go; None keeps nothing.
            seed: of weights, actions and minibatches; the environment has its own.
            observer: one or several callables, called once an iteration; one that returns True ends the training.
            writer: takes the metrics; None: `train` makes one for `run_dir` in the first process.
            ranks: the processes that train together.

        Raises:
            UserError: an observation group that does not exist, or a symmetry that the environment does not have.
        """
        self.env, self.cfg, self.seed, self.ranks = env, cfg, seed, ranks
        self.run_dir = None if run_dir is None else Path(run_dir)
        self.device = torch.device(env.device)
        self._observers = [observer] if callable(observer) else list(observer or [])
        self.writer = writer
        self.settings: Mapping[str, Any] = {}
        self.metrics_mark: dict[str, int] | None = None
        self.counts_ranks = ranks.size > 1
        self.on_iteration_end: OnIterationEnd | None = None
        self.dims = make_env_spec(env, cfg)
        self.mirrors = checked_mirrors(cfg, self.dims, env_mirrors(env, cfg))
        own_metrics = getattr(env, "pop_metrics", None)
        tracker = EpisodeTracker(env.num_envs, float(getattr(env, "step_dt", 1.0)), self.device)
        self._tracker = None if own_metrics else tracker
        self.pop_metrics: Callable[[], dict[str, float]] = own_metrics or tracker.pop
        self.iteration, self.env_steps, self.time_s = 0, 0, 0.0
        self.checkpoints = CheckpointManager(self)
        self._limit = QuarantineLimit(cfg.max_quarantined)
        self._mark, self._request, self._stopped_by = 0.0, StopRequest(), 0
        self._elapsed_s = 0.0

    def train(self, max_iterations: int | None = None) -> dict[str, float]:
        """Train until cfg.max_iterations, an observer's True, or a signal; return the last row of metrics.

        `max_iterations` replaces the configured number, which also counts the iterations of a loaded checkpoint.

        Raises:
            Interrupted: one of SIGNALS arrived in a process. The iteration was finished, or given up if it takes longer
                than cfg.notice_s, and a checkpoint written. A second signal does not wait for that.
            FloatingPointError: the loss is not finite.
            NotRetryableError: too many samples are quarantined, or a checkpoint would hold a number that is not finite.
        """
        last_iteration = self.cfg.max_iterations if max_iterations is None else max_iterations
        own = None
        if self.writer is None and self.run_dir is not None and self.ranks.is_first:
            own = self.writer = MetricsWriter(self.run_dir, resume=self.metrics_mark)
            self.metrics_mark = None
        self._mark = time.perf_counter()
        try:
            with StopRequest(self.ranks.size, self.cfg.notice_s) as self._request:
                self._stopped_by, row = 0, {}
                try:
                    row = self._run(last_iteration)
                    if not self._stopped_by:
                        self._limit.finish(self.iteration)
                except IterationCancelled:
                    path = self.checkpoints.go_back()
                    self._stopped_by = self._request.signal
                    self.load(path)
                if not self.checkpoints.is_saved:
                    self.save()
                self.checkpoints.saver.wait()
                if self.iteration >= self.cfg.max_iterations:
                    self.checkpoints.saver.conclude()
        except KeyboardInterrupt as error:
            self.checkpoints.saver.finish()
            number = getattr(error, "signal", signal.SIGINT)
            raise Interrupted(self.checkpoint, self.iteration, number, saved=False) from error
        finally:
            self.checkpoints.saver.finish()
            if own is not None:
                own.close()
                self.writer = None
        if self._stopped_by:
            raise Interrupted(self.checkpoint, self.iteration, self._stopped_by)
        return row

    @property
    def actor(self) -> Any:
        """The policy (`robot_rl.learn.networks.actor_critic.Actor`)."""
        return self.modules()["actor"]

    @property
    def critic(self) -> Any:
        """The value function of an algorithm that has one network of that name."""
        return self.modules()["critic"]

    @property
    def checkpoint(self) -> Path | None:
        """The newest checkpoint that is on the disk; None before the first."""
        return self.checkpoints.saver.durable

    @property
    def elapsed_s(self) -> float:
        """Return the seconds since the iteration before ended [s]."""
        return time.perf_counter() - self._mark

    @contextlib.contextmanager
    def uninterrupted(self) -> Iterator[None]:
        """Let no signal give up the iteration inside."""
        may_give_up, self._request.may_give_up = self._request.may_give_up, False
        try:
            yield
        finally:
            self._request.may_give_up = may_give_up

    @property
    def is_stopping(self) -> bool:
        """Return whether a signal requests the end of the training."""
        return self._request.requested

    def save(self, *, wait: bool = True) -> Path | None:
        """Write a checkpoint, as `CheckpointManager.save`."""
        return self.checkpoints.save(wait=wait)

    def load(self, path: Path, **options: Any) -> None:
        """Load a checkpoint, as `CheckpointManager.load`."""
        self.checkpoints.load(path, **options)

    @abstractmethod
    def _run(self, last_iteration: int) -> dict[str, float]:
        """Run iterations until `last_iteration` are done or a stop is requested; return the last row of metrics."""

    def worlds(self) -> dict[str, Tensor]:
        """Return the state that the tracker of episodes keeps of each world, (N, ...) each, live."""
        tracked = {} if self._tracker is None else self._tracker.worlds()
        return {f"tracker.{name}": tensor for name, tensor in tracked.items()}

    def _guard(self) -> None:
        """Make it possible to give up the iteration that begins, if it may last longer than cfg.notice_s."""
        self._request.may_give_up = self.checkpoints.guard(self._elapsed_s)

    def _finish_iteration(self, metrics: Mapping[str, float], seconds: Mapping[str, float]) -> dict[str, float]:
        """Count an iteration, write its row, save a checkpoint when it is due, and return the row.

        An iteration lasts from the end of the one before, so writing, observers and checkpoints are in "other". The row
        is that of all processes together; time in which one waits for another is in "learn". `seconds` has the time by
        part, "simulate", "infer" and "learn" [s]. Raises FloatingPointError or NotRetryableError, as `train`.
        """
        self._request.may_give_up = False
        now = time.perf_counter()
        elapsed, self._mark = now - self._mark, now
        self._elapsed_s = elapsed
        parts = {part: seconds.get(part, 0.0) for part in PARTS[:-1]}
        parts["other"] = max(0.0, elapsed - sum(parts.values()))
        timing = {"elapsed": elapsed, **{f"perf/{part}_s": value for part, value in parts.items()}}
        timing["perf/save_s"] = self.checkpoints.pop_seconds()
        if self.ranks.size > 1:
            timing["perf/exchange_s"] = self.ranks.pop_exchange_s()
        metrics, is_due = {**timing, **metrics}, self.checkpoints.saver.is_due(self.iteration + 1)
        if self.ranks.size > 1:
            rows = self.ranks.gather((metrics, is_due))
            metrics, is_due = merge_rows([row for row, _ in rows]), rows[0][1]
        if not all(math.isfinite(value) for name, value in metrics.items() if name.startswith("loss/")):
            raise FloatingPointError(self._not_finite(metrics))
        elapsed = metrics.pop("elapsed")
        steps = self.cfg.num_steps * self.env.num_envs * self.ranks.size
        self.iteration, self.env_steps = self.iteration + 1, self.env_steps + steps
        self.time_s += elapsed
        row: dict[str, float] = {"iteration": self.iteration, "env_steps": self.env_steps, "time_s": self.time_s}
        row["perf/steps_per_s"] = steps / elapsed
        row["perf/overlap_share"] = overlap_share(time_parts(metrics))
        if self.counts_ranks:
            count = num_worlds(self.env) * self.ranks.size
            row |= {"ranks": self.ranks.size, "num_envs": count, "batch": steps}
        row |= metrics
        if self.on_iteration_end is not None:
            row |= self.on_iteration_end(self)
        if self.writer is not None:
            self.writer.write(self.iteration, row)
        self.checkpoints.saver.check()
        self._limit.check(row, steps)
        if is_due:
            self.save(wait=False)
        return row

    def _is_enough(self, row: dict[str, float]) -> bool:
        """Call every observer; return whether one of them, or a signal, requests the end, alike in all processes."""
        answers = [observer(row) for observer in self._observers]
        enough, *came = self.ranks.any((any(answers), *(self._request.signal == number for number in SIGNALS)))
        self._stopped_by = next((number for number, has_come in zip(SIGNALS, came, strict=True) if has_come), 0)
        return enough or self._stopped_by != 0

    def _not_finite(self, metrics: Mapping[str, float]) -> str:
        """Return a line about losses that are not finite; it names the processes with a rollout that is not finite."""
        wrong = {name: v for name, v in metrics.items() if name.startswith("loss/") and not math.isfinite(v)}
        found = self.ranks.gather(self._unsound())
        where = [
            f"the rollout's {', '.join(names)}" + (f" in process {rank}" if self.ranks.size > 1 else "")
            for rank, names in enumerate(found)
            if names
        ]
        cause = f"; not finite: {'; '.join(where)}" if where else ""
        return f"the loss is not finite in iteration {self.iteration + 1}: {wrong}{cause}"

    def _unsound(self) -> list[str]:
        """Return the names of the rollout's parts with numbers that are not finite in this process."""
        return []

"""The parts that every trainer shares: counters, observers, metrics, and checkpoints in one format."""

from __future__ import annotations

import contextlib
import functools
import math
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from rsl_rl.env import VecEnv
from torch import Tensor, nn

from robot_rl.errors import Interrupted, UserError
from robot_rl.learn.checkpoints import worlds
from robot_rl.learn.checkpoints.checkpoint import check_shapes, load_checkpoint
from robot_rl.learn.checkpoints.description import read_counters
from robot_rl.learn.checkpoints.saving import Package, Saver
from robot_rl.learn.dims import Dims, checked_mirrors, env_mirrors, make_dims, mirrors_to_meta
from robot_rl.learn.episodes import EpisodeTracker
from robot_rl.learn.health import QuarantineLimit
from robot_rl.learn.interrupt import IterationCancelled, StopRequest
from robot_rl.learn.precision.loading import check_precision, with_grids
from robot_rl.learn.ranks import ALONE, Ranks
from robot_rl.machine import package_versions
from robot_rl.metrics.iteration import PARTS, merge_rows, overlap_share, time_parts
from robot_rl.metrics.rows import to_stderr
from robot_rl.metrics.writers import MetricsWriter
from robot_rl.processes import SIGNALS
from robot_rl.settings import LearnerCfg, to_dict

Observer = Callable[[dict[str, float]], bool | None]
"""Called once an iteration with the row of metrics; returning True ends the training."""
OnIterationEnd = Callable[["BaseTrainer"], Mapping[str, float]]
"""Called after each iteration, with the session; returns additional values for the iteration's row."""


_versions = functools.cache(package_versions)


class BaseTrainer(ABC):
    """A training in an environment: everything around the iterations, for any loop.

    Of the environment it uses, where present: `mirror`, `pop_metrics()`, `step_dt`, and in the extras of a step
    "time_outs" (N,), "final_obs" (observations at which episodes ended) and "valid" (N,).

    Attributes:
        device: the device of the environment and the networks.
        iteration: iterations finished.
        env_steps: control steps finished, over all worlds.
        time_s: time spent in training [s].
        settings: the resolved configuration of the run as plain values, kept with every checkpoint.
        metrics_mark: position of this run's metrics in the loaded checkpoint (`MetricsWriter`, `resume`).
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
        ranks: Ranks = ALONE,
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
        self.dims: Dims = make_dims(env, cfg)
        self.mirrors = checked_mirrors(cfg, self.dims, env_mirrors(env, cfg))
        own_metrics = getattr(env, "pop_metrics", None)
        tracker = EpisodeTracker(env.num_envs, float(getattr(env, "step_dt", 1.0)), self.device)
        self._tracker = None if own_metrics else tracker
        self.pop_metrics: Callable[[], dict[str, float]] = own_metrics or tracker.pop
        self.iteration, self.env_steps, self.time_s = 0, 0, 0.0
        self._saver = Saver(ranks, cfg.keep_checkpoints, cfg.save_interval, cfg.save_interval_s)
        self._save_s, self._saved, self._limit = 0.0, -1, QuarantineLimit(cfg.max_quarantined)
        self._mark, self._request, self._stopped_by = 0.0, StopRequest(), 0
        self._spare: Package | None = None
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
        last = self.cfg.max_iterations if max_iterations is None else max_iterations
        own = None
        if self.writer is None and self.run_dir is not None and self.ranks.is_first:
            own = self.writer = MetricsWriter(self.run_dir, resume=self.metrics_mark)
            self.metrics_mark = None
        self._mark = time.perf_counter()
        try:
            with StopRequest(self.ranks.size, self.cfg.notice_s) as self._request:
                self._stopped_by, row = 0, {}
                try:
                    row = self._run(last, self._request)
                    if not self._stopped_by:
                        self._limit.finish(self.iteration)
                except IterationCancelled:
                    self._return_to_spare()
                if self._saved != self.iteration:
                    self.save()
                self._saver.wait()
        except KeyboardInterrupt as error:
            self._saver.finish()
            number = getattr(error, "signal", signal.SIGINT)
            raise Interrupted(self.checkpoint, self.iteration, number, saved=False) from error
        finally:
            self._saver.finish()
            if own is not None:
                own.close()
                self.writer = None
        if self._stopped_by:
            raise Interrupted(self.checkpoint, self.iteration, self._stopped_by)
        return row

    @abstractmethod
    def modules(self) -> dict[str, nn.Module]:
        """Return the networks, "actor" among them, by their name in checkpoints."""

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
        return self._saver.durable

    @property
    def elapsed_s(self) -> float:
        """Return the seconds since the iteration before ended [s]."""
        return time.perf_counter() - self._mark

    @contextlib.contextmanager
    def uninterrupted(self) -> Iterator[None]:
        """Let no signal give up the iteration inside."""
        may_give_up, self._request.may_give_up = self._request.may_give_up, False
        yield
        self._request.may_give_up = may_give_up

    @property
    def is_stopping(self) -> bool:
        """Return whether a signal requests the end of the training."""
        return self._request.requested

    def save(self, *, wait: bool = True) -> Path | None:
        """Write a checkpoint into the run's directory and return its path; None if the run has no directory.

        With `wait` it is on the disk on return; else it is copied, and a thread writes it. Raises OSError if this
        checkpoint or the one before could not be written.
        """
        if self.run_dir is None:
            return None
        begin = time.perf_counter()
        package = self._package(self.run_dir)
        self._saver.start(package)
        if wait:
            self._saver.wait()
        self._saved = self.iteration
        self._save_s += time.perf_counter() - begin
        return package.path

    def _package(self, run_dir: Path) -> Package:
        """Return the contents of a checkpoint of this moment, live."""
        own = self._package_worlds()
        if not self.ranks.is_first:
            own |= {f"{worlds.OWN}{name}": t for name, t in self._state().items() if not name.startswith("optimizer.")}
        path = run_dir / "checkpoints" / self._checkpoint_name()
        return Package(path, self._networks() | self._state(), self._meta(), own)

    def _guard(self) -> None:
        """Copy the state before an iteration that may last longer than cfg.notice_s, so that it can be given up.

        Several processes always finish it: they would all have to give up the same one.
        """
        if self.run_dir is None or self.ranks.size > 1 or not 0.0 < self.cfg.notice_s < self._elapsed_s:
            return
        begin = time.perf_counter()
        self._spare = self._package(self.run_dir).copied(self._spare)
        self._save_s += time.perf_counter() - begin
        self._request.may_give_up = True

    def _return_to_spare(self) -> None:
        """Write the copy made before the iteration that was given up, and load it."""
        assert self._spare is not None
        if self._saved != self.iteration:
            self._saver.start(self._spare)
        self._saver.wait()
        self._stopped_by = self._request.signal
        self.load(self._spare.path)

    def load(
        self,
        path: Path,
        *,
        weights_only: bool = False,
        allow_resize: bool = False,
        fresh_worlds: bool = False,
        tell: Callable[[str], None] = to_stderr,
    ) -> None:
        """Load a checkpoint; if that fails, nothing is changed.

        Args:
            path: the checkpoint.
            weights_only: load only networks and normalizers, to begin a new training from them.
            allow_resize: divide its worlds among another number of worlds or processes.
            fresh_worlds: let the worlds begin again.
            tell: called with a line if not every world continues where it was.

        Raises:
            UserError: it is missing, damaged or of another architecture (with both shapes), or does not fit.
        """
        tensors, meta = load_checkpoint(path)
        settings = (meta.get("learner") or {}, to_dict(self.cfg))
        if weights_only:
            tensors = with_grids(tensors, self._networks())
            check_shapes(path, tensors, self._networks(), settings)
            self._load_networks(tensors)
            self._loaded({})
            return
        counters = read_counters(path, meta)
        check_precision(path, *settings)
        self._check(meta)
        own = worlds.read_own(path, meta, self.ranks) or worlds.under(tensors, f"rank{self.ranks.rank}.")
        tensors |= own
        check_shapes(path, tensors, self._networks() | self._state(), settings)
        live, held = self._worlds(), {}
        report = tell if self.ranks.is_first else lambda _: None
        if fresh_worlds:
            report(f"checkpoint {path}: every world begins again, as requested")
        else:
            held = worlds.read_worlds(path, meta, self.env, live, self.ranks, allow_resize=allow_resize, tell=report)
        self._take(path, tensors, held)
        if not own and not self.ranks.is_first:  # A process more than there were: its own random numbers.
            for number, stream in enumerate(self._streams().values()):
                stream.manual_seed(self.ranks.seed(self.seed) + (counters[0] << 32) + number)
        self.iteration, self.env_steps, self.time_s = counters
        if self.run_dir is not None and Path(path).resolve().parent.parent == self.run_dir.resolve():
            self.metrics_mark, self._saved = meta.get("metrics"), self.iteration

    @abstractmethod
    def _run(self, last: int, stop: StopRequest) -> dict[str, float]:
        """Run iterations until `last` are done or a stop is requested; return the last row of metrics."""

    @abstractmethod
    def _state(self) -> dict[str, Tensor]:
        """Return everything but the networks that a checkpoint keeps."""

    @abstractmethod
    def _loaded(self, state: Mapping[str, Tensor]) -> None:
        """Load the output of `_state`, after the networks; empty if only networks were loaded."""

    def _streams(self) -> dict[str, torch.Generator]:
        """Return the random streams that each process has for itself, by their name in `_state`."""
        return {}

    def _worlds(self) -> dict[str, Tensor]:
        """Return the state that is kept of each world, (N, ...) each, live."""
        tracked = {} if self._tracker is None else self._tracker.worlds()
        return {f"tracker.{name}": tensor for name, tensor in tracked.items()}

    def _package_worlds(self) -> dict[str, Tensor]:
        """Return the state of the worlds for a checkpoint, by the names of `worlds.pack`, live."""
        return worlds.pack(self.env, self._worlds())

    def _take(self, path: Path, tensors: Mapping[str, Tensor], held: Mapping[str, Tensor]) -> None:
        """Load the checked tensors; if they still do not fit, restore the state before and raise UserError."""
        now, live = {**self._networks(), **self._state()}, self._worlds()
        before = {name: tensor.detach().clone() for name, tensor in now.items()}
        before_held = {name: tensor.detach().clone() for name, tensor in worlds.pack(self.env, live).items()}
        try:
            worlds.unpack(path, held, self.env, live)
            self._load_networks(tensors)
            self._loaded(tensors)
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            worlds.unpack(path, before_held, self.env, live)
            self._load_networks(before)
            self._loaded(before)
            raise error if isinstance(error, UserError) else UserError(f"checkpoint {path}: {error}") from error

    def _load_networks(self, tensors: Mapping[str, Tensor]) -> None:
        for part, network in self.modules().items():
            network.load_state_dict(worlds.under(tensors, f"{part}."))

    def _meta(self) -> dict[str, Any]:
        """Return a checkpoint's description."""
        meta = {
            "iteration": self.iteration,
            "env_steps": self.env_steps,
            "time_s": self.time_s,
            "seed": self.seed,
            "learner": to_dict(self.cfg),
            "dims": to_dict(self.dims),
            "mirror": mirrors_to_meta(self.mirrors),
            "processes": self.ranks.size,
            "threads": self.ranks.gather(torch.get_num_threads()),
            "worlds": worlds.num_worlds(self.env) * self.ranks.size,
            "settings": dict(self.settings),
            "versions": _versions(),
            **self._described(),
        }
        return meta if self.writer is None else meta | {"metrics": self.writer.mark()}

    def _described(self) -> dict[str, Any]:
        """Return further entries of a checkpoint's description."""
        return {}

    def _check(self, meta: Mapping[str, Any]) -> None:  # noqa: B027  (a trainer need not have anything to check)
        """Raise UserError if this trainer cannot resume the run of a checkpoint with this description."""

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
        timing["perf/save_s"], self._save_s = self._save_s, 0.0
        if self.ranks.size > 1:
            timing["perf/exchange_s"] = self.ranks.pop_exchange_s()
        metrics, is_due = {**timing, **metrics}, self._saver.is_due(self.iteration + 1)
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
            count = worlds.num_worlds(self.env) * self.ranks.size
            row |= {"ranks": self.ranks.size, "num_envs": count, "batch": steps}
        row |= metrics
        if self.on_iteration_end is not None:
            row |= self.on_iteration_end(self)
        if self.writer is not None:
            self.writer.write(self.iteration, row)
        self._saver.check()
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

    def _networks(self) -> dict[str, Tensor]:
        parts = self.modules()
        return {f"{part}.{name}": t for part, network in parts.items() for name, t in network.state_dict().items()}

    def _checkpoint_name(self) -> str:
        return f"{self.iteration:06d}"

"""A trainer's checkpoints: their contents, when they are saved, and how a trainer continues from one."""

from __future__ import annotations

import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from robot_rl.errors import UserError
from robot_rl.learn.checkpoints import worlds
from robot_rl.learn.checkpoints.checkpoint import check_shapes, load_checkpoint
from robot_rl.learn.checkpoints.description import read_counters
from robot_rl.learn.checkpoints.saving import Package, Saver
from robot_rl.learn.dims import EnvSpec, Mirrors, mirrors_to_meta
from robot_rl.learn.precision.loading import check_precision, with_grids
from robot_rl.learn.ranks import ProcessGroup
from robot_rl.machine import package_versions
from robot_rl.metrics.rows import to_stderr
from robot_rl.metrics.writers import MetricsWriter
from robot_rl.settings import LearnerCfg, to_dict

_versions = functools.cache(package_versions)


class Checkpointed(ABC):
    """A training as checkpoints see it.

    Attributes:
        iteration: iterations finished.
        env_steps: control steps finished, over all worlds.
        time_s: time spent in training [s].
        settings: the resolved configuration of the run as plain values, kept with every checkpoint.
        metrics_mark: position of this run's metrics in the loaded checkpoint (`MetricsWriter`, `resume`).
    """

    env: Any
    cfg: LearnerCfg
    seed: int
    ranks: ProcessGroup
    run_dir: Path | None
    dims: EnvSpec
    mirrors: Mirrors | None
    iteration: int
    env_steps: int
    time_s: float
    settings: Mapping[str, Any]
    writer: MetricsWriter | None
    metrics_mark: dict[str, int] | None

    @abstractmethod
    def modules(self) -> dict[str, nn.Module]:
        """Return the networks, "actor" among them, by their name in checkpoints."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Return everything but the networks that a checkpoint keeps."""

    @abstractmethod
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Load the output of `state`, after the networks; empty if only networks were loaded."""

    def streams(self) -> dict[str, torch.Generator]:
        """Return the random streams that each process has for itself, by their name in `state`."""
        return {}

    def worlds(self) -> dict[str, Tensor]:
        """Return the state that is kept of each world, (N, ...) each, live."""
        return {}

    def packed_worlds(self) -> dict[str, Tensor]:
        """Return the state of the worlds for a checkpoint, by the names of `worlds.pack`, live."""
        return worlds.pack(self.env, self.worlds())

    def described(self) -> dict[str, Any]:
        """Return further entries of a checkpoint's description."""
        return {}

    def check(self, described: Mapping[str, Any]) -> None:  # noqa: B027  (a trainer need not have anything to check)
        """Raise UserError if this trainer cannot resume the run of a checkpoint with this description."""

    def networks(self) -> dict[str, Tensor]:
        """Return the tensors of `modules`, live."""
        parts = self.modules()
        return {f"{part}.{name}": t for part, network in parts.items() for name, t in network.state_dict().items()}

    def load_networks(self, tensors: Mapping[str, Tensor]) -> None:
        """Load the output of `networks`, which other tensors may be with."""
        for part, network in self.modules().items():
            network.load_state_dict(worlds.under(tensors, f"{part}."))


class CheckpointManager:
    """Saves and loads the state of a training.

    Attributes:
        saver: writes checkpoints in the background, and knows when one is due.
    """

    def __init__(self, trainer: Checkpointed) -> None:
        cfg, self._trainer = trainer.cfg, trainer
        self.saver = Saver(trainer.ranks, cfg.keep_checkpoints, cfg.save_interval, cfg.save_interval_s)
        self._saved_iteration, self._seconds = -1, 0.0
        self._spare: Package | None = None

    @property
    def is_saved(self) -> bool:
        """Return whether a checkpoint has the state after the newest iteration."""
        return self._saved_iteration == self._trainer.iteration

    def pop_seconds(self) -> float:
        """Return the time that the training waited for copies and files since the last call [s]."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def save(self, *, wait: bool = True) -> Path | None:
        """Write a checkpoint into the run's directory and return its path; None if the run is without one.

        With `wait` it is on the disk on return; else it is copied, and a thread writes it. Raises OSError if this
        checkpoint or the one before could not be written.
        """
        if self._trainer.run_dir is None:
            return None
        begin = time.perf_counter()
        package = self._package(self._trainer.run_dir)
        self.saver.start(package)
        if wait:
            self.saver.wait()
        self._saved_iteration = self._trainer.iteration
        self._seconds += time.perf_counter() - begin
        return package.path

    def guard(self, expected_s: float) -> bool:
        """Copy the state before an iteration of `expected_s` [s]; return whether it can be given up (`go_back`).

        That is one that lasts longer than cfg.notice_s. Several processes always finish it: they would all have to give
        up the same one.
        """
        trainer = self._trainer
        if trainer.run_dir is None or trainer.ranks.size > 1 or not 0.0 < trainer.cfg.notice_s < expected_s:
            return False
        begin = time.perf_counter()
        self._spare = self._package(trainer.run_dir).copied(self._spare)
        self._seconds += time.perf_counter() - begin
        return True

    def go_back(self) -> Path:
        """Write the copy made before the iteration that was given up; return its path, to be loaded."""
        assert self._spare is not None
        if not self.is_saved:
            self.saver.start(self._spare)
        self.saver.wait()
        return self._spare.path

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
            tell: called with a line if some worlds do not continue from their state.

        Raises:
            UserError: it is missing, damaged or of another architecture (with both shapes), or does not fit.
        """
        trainer, ranks = self._trainer, self._trainer.ranks
        tensors, meta = load_checkpoint(path)
        settings = (meta.get("learner") or {}, to_dict(trainer.cfg))
        if weights_only:
            tensors = with_grids(tensors, trainer.networks())
            check_shapes(path, tensors, trainer.networks(), settings)
            trainer.load_networks(tensors)
            trainer.load_state({})
            return
        counters = read_counters(path, meta)
        check_precision(path, *settings)
        trainer.check(meta)
        own = worlds.read_own(path, meta, ranks) or worlds.under(tensors, f"rank{ranks.rank}.")
        report = tell if ranks.is_first else lambda _: None
        tensors |= own
        tensors |= worlds.read_replay(path, meta, tensors, trainer.state(), ranks, tell=report)
        check_shapes(path, tensors, trainer.networks() | trainer.state(), settings)
        live, held = trainer.worlds(), {}
        if fresh_worlds:
            report(f"checkpoint {path}: every world begins again, as requested")
        else:
            held = worlds.read_worlds(path, meta, trainer.env, live, ranks, allow_resize=allow_resize, tell=report)
        self._load_or_restore(path, tensors, held)
        if not own and not ranks.is_first:  # A process more than there were: its own random numbers.
            for number, stream in enumerate(trainer.streams().values()):
                stream.manual_seed(ranks.seed(trainer.seed) + (counters[0] << 32) + number)
        trainer.iteration, trainer.env_steps, trainer.time_s = counters
        if trainer.run_dir is not None and Path(path).resolve().parent.parent == trainer.run_dir.resolve():
            trainer.metrics_mark, self._saved_iteration = meta.get("metrics"), trainer.iteration
            self.saver.loaded = trainer.run_dir / "checkpoints" / Path(path).name

    def _load_or_restore(self, path: Path, tensors: Mapping[str, Tensor], held: Mapping[str, Tensor]) -> None:
        """Load the checked tensors; if they still do not fit, restore the state before and raise UserError."""
        trainer, live = self._trainer, self._trainer.worlds()
        now = {**trainer.networks(), **trainer.state()}
        before = {name: tensor.detach().clone() for name, tensor in now.items()}
        before_held = {name: tensor.detach().clone() for name, tensor in worlds.pack(trainer.env, live).items()}

        def take(saved: Mapping[str, Tensor], of_worlds: Mapping[str, Tensor]) -> None:
            worlds.unpack(path, of_worlds, trainer.env, live)
            trainer.load_networks(saved)
            trainer.load_state(saved)

        try:
            take(tensors, held)
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            take(before, before_held)
            raise error if isinstance(error, UserError) else UserError(f"checkpoint {path}: {error}") from error

    def _package(self, run_dir: Path) -> Package:
        """Return the contents of a checkpoint of this moment, live."""
        trainer, state, own = self._trainer, self._trainer.state(), self._trainer.packed_worlds()
        replay = {name: state.pop(name) for name in list(state) if name.startswith(worlds.REPLAY)}
        if not trainer.ranks.is_first:
            own |= {f"{worlds.OWN}{name}": t for name, t in state.items() if not name.startswith("optimizer.")}
        path = run_dir / "checkpoints" / f"{trainer.iteration:06d}"
        return Package(path, trainer.networks() | state, self._description(), own, replay)

    def _description(self) -> dict[str, Any]:
        """Return a checkpoint's description."""
        trainer = self._trainer
        num_worlds = worlds.num_worlds(trainer.env) * trainer.ranks.size
        meta = {
            "iteration": trainer.iteration,
            "env_steps": trainer.env_steps,
            "time_s": trainer.time_s,
            "seed": trainer.seed,
            "learner": to_dict(trainer.cfg),
            "dims": to_dict(trainer.dims),
            "mirror": mirrors_to_meta(trainer.mirrors),
            "processes": trainer.ranks.size,
            "threads": trainer.ranks.gather(torch.get_num_threads()),
            "worlds": num_worlds,
            "settings": dict(trainer.settings),
            "versions": _versions(),
            **trainer.described(),
        }
        return meta if trainer.writer is None else meta | {"metrics": trainer.writer.mark()}

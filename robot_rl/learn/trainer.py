"""The training loop: take a rollout, learn from it, write a row of metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from rsl_rl.env import VecEnv
from torch import Tensor, nn

from robot_rl.learn.algorithm import Algorithm, Context
from robot_rl.learn.base_trainer import BaseTrainer
from robot_rl.learn.build import make_algorithm
from robot_rl.learn.collector import Collector
from robot_rl.learn.rollout import Rollout
from robot_rl.learn.rollouts.local import LocalRollouts
from robot_rl.learn.rollouts.overlapped import OverlappedRollouts
from robot_rl.learn.rollouts.source import RolloutSource, StoppedError
from robot_rl.learn.timing import Stopwatch
from robot_rl.settings import LearnerCfg

NOISE = 1
"""Added to the run's seed for the stream that actions are drawn from."""


class Trainer(BaseTrainer):
    """Trains a policy in an environment by the algorithm of a configuration.

    Attributes:
        algorithm: The algorithm that learns.
        collector: Steps the worlds; its rollout is also the memory for rollouts from elsewhere.
        rollouts: Where rollouts come from: those that the environment brings (`make_rollouts`), or with `overlap` those
            ahead of the update, else from here.
        watch: Times the collector.
    """

    def __init__(
        self,
        env: VecEnv,
        cfg: LearnerCfg,
        *,
        rollouts: Callable[[Trainer], RolloutSource] | None = None,
        **options: Any,
    ) -> None:
        """Build the algorithm and allocate the rollout.

        Args:
            env: Any rsl_rl environment.
            cfg: The learner's configuration.
            rollouts: Makes the source of rollouts; None: the one that suits environment and configuration.
            options: Those of `BaseTrainer`.
        """
        super().__init__(env, cfg, **options)
        ranks = self.ranks
        context = Context(
            env=env, dims=self.dims, mirrors=self.mirrors, device=self.device, seed=self.seed, ranks=ranks
        )
        self.algorithm: Algorithm = make_algorithm(cfg, context)
        modules = [*self.algorithm.modules().values(), *self.algorithm.auxiliaries]
        ranks.broadcast_(tensor for module in modules for tensor in (*module.parameters(), *module.buffers()))
        self.watch, self._learn_watch = Stopwatch(self.device), Stopwatch(self.device)
        self.collector = Collector(
            env,
            cfg,
            self.dims,
            self.algorithm.spec(),
            noise=context.generator(NOISE),
            on_step=None if self._tracker is None else self._tracker.add,
            watch=self.watch,
        )
        default = OverlappedRollouts if cfg.overlap else LocalRollouts
        self.rollouts: RolloutSource = (rollouts or getattr(env, "make_rollouts", default))(self)

    def train(self, max_iterations: int | None = None) -> dict[str, float]:
        """Train as `BaseTrainer.train` does; on return nothing uses the worlds."""
        try:
            return super().train(max_iterations)
        finally:
            self.rollouts.pause()

    def _run(self, last_iteration: int) -> dict[str, float]:
        row: dict[str, float] = {}
        try:
            self.rollouts.start(last_iteration)
            while self.iteration < last_iteration:
                row = self._iterate(last_iteration)
                if self._is_enough(row):
                    break
        except StoppedError as error:  # Between two iterations: the saved state is complete.
            self._stopped_by = error.signal
            return {}
        return row

    def _iterate(self, last_iteration: int) -> dict[str, float]:
        """Run one iteration and return its row of metrics. The device is not read before the end of the update."""
        self._guard()
        rollout = self.rollouts.next(last_iteration)
        self._learn_watch.start()
        statistics = self.algorithm.update(rollout, self.iteration / max(last_iteration, 1))
        self._learn_watch.lap("learn")
        values = torch.stack(list(statistics.values())).tolist()
        learned, learn_s = dict(zip(statistics, values, strict=True)), self._learn_watch.read()
        found, seconds = self.rollouts.measured(learn_s["learn"])
        row = self._finish_iteration(learned | found, seconds | learn_s)
        self.rollouts.publish(last_iteration)
        return row

    def collect(self) -> Rollout:
        """Let the current policy act for a rollout, and return it; the next one overwrites it."""
        if not self.collector.has_started:
            self.collector.start(self.worlds(), is_first=self.iteration == 0)
        return self.collector.collect(self.algorithm.snapshot(self.iteration))

    def load(self, path: Path, **options: Any) -> None:
        """Load a checkpoint, as `BaseTrainer.load`."""
        with self.rollouts.loading():
            super().load(path, **options)

    def modules(self) -> dict[str, nn.Module]:
        """Return the algorithm's networks."""
        return self.algorithm.modules()

    def acting_streams(self) -> dict[str, torch.Generator]:
        """Return the random streams that rollouts draw from, by their name in checkpoints."""
        return {"random.noise": self.collector.noise} | self.algorithm.acting_streams()

    def live_worlds(self) -> dict[str, Tensor]:
        """Return the state that its parts keep of each world, (N, ...) each, live."""
        own = self.collector.worlds() | self.algorithm.acting_worlds() | self.algorithm.worlds()
        return super().worlds() | own

    def state(self) -> dict[str, Tensor]:
        """Return the state of the algorithm, of the random streams and of the source of rollouts."""
        acting = {name: stream.get_state() for name, stream in self.acting_streams().items()}
        return self.algorithm.state() | acting | self.rollouts.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Load the output of `state`; begin again from the networks if it is empty."""
        if state:
            self.collector.leave()
            self.algorithm.load_state(state)
            for name, stream in self.acting_streams().items():
                stream.set_state(state[name].cpu())
        else:
            self.algorithm.restart()
        self.rollouts.load_state(state)

    def worlds(self) -> dict[str, Tensor]:
        """Return the state that is kept of each world, (N, ...) each, live."""
        return self.rollouts.worlds(self.live_worlds())

    def packed_worlds(self) -> dict[str, Tensor]:
        """Return the state of the worlds for a checkpoint: as before a rollout that is being simulated."""
        packed = self.rollouts.packed_worlds()
        return super().packed_worlds() if packed is None else packed

    def streams(self) -> dict[str, torch.Generator]:
        """Return the random streams of rollouts and of the algorithm."""
        return self.acting_streams() | self.algorithm.streams()

    def _unsound(self) -> list[str]:
        """Return the names of the newest rollout's parts with numbers that are not finite."""
        seen = self.rollouts.newest
        parts = {"observations": (seen.actor_obs, seen.critic_obs), "actions": (seen.out,), "rewards": (seen.reward,)}
        return [name for name, tensors in parts.items() if not all(bool(t.isfinite().all()) for t in tensors)]

    def described(self) -> dict[str, Any]:
        """Return the algorithm's description."""
        return self.algorithm.described()

    def check(self, described: Mapping[str, Any]) -> None:
        """Raise UserError if the algorithm cannot continue from a checkpoint with this description."""
        self.algorithm.check(described)

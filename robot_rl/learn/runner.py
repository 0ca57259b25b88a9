"""The training loop: collect a rollout, learn from it, write what happened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from rsl_rl.env import VecEnv
from torch import Tensor, nn

from robot_rl.learn.algorithm import Algorithm, Context
from robot_rl.learn.build import make_algorithm
from robot_rl.learn.collector import Collector
from robot_rl.learn.interrupt import StopRequest
from robot_rl.learn.rollout import Rollout
from robot_rl.learn.session import Session
from robot_rl.learn.timing import Stopwatch
from robot_rl.settings import LearnerCfg

NOISE = 1
"""Added to the run's seed for the stream that actions are drawn from."""


class Runner(Session):
    """Trains a policy in an environment by the algorithm of a configuration."""

    def __init__(self, env: VecEnv, cfg: LearnerCfg, **options: Any) -> None:
        """Build the algorithm and allocate the rollout; the options are those of `Session`."""
        super().__init__(env, cfg, **options)
        ranks = self.ranks
        context = Context(
            env=env, dims=self.dims, mirrors=self.mirrors, device=self.device, seed=self.seed, ranks=ranks
        )
        self.algorithm: Algorithm = make_algorithm(cfg, context)
        modules = [*self.algorithm.modules().values(), *self.algorithm.auxiliaries]
        ranks.broadcast_(tensor for module in modules for tensor in (*module.parameters(), *module.buffers()))
        self._watch = Stopwatch(self.device)
        self.collector = Collector(
            env,
            cfg,
            self.dims,
            self.algorithm.spec(),
            noise=context.generator(NOISE),
            on_step=None if self._tracker is None else self._tracker.add,
            watch=self._watch,
        )

    def modules(self) -> dict[str, nn.Module]:
        """Return the algorithm's networks."""
        return self.algorithm.modules()

    def collect(self) -> Rollout:
        """Let the current policy act for a rollout, and return it; the next one overwrites it."""
        if not self.collector.has_started:
            self.collector.start(self._worlds(), is_first=self.iteration == 0)
        return self.collector.collect(self.algorithm.snapshot(self.iteration))

    def _run(self, last: int, stop: StopRequest) -> dict[str, float]:
        row: dict[str, float] = {}
        while self.iteration < last:
            row = self._iterate(last)
            if self._is_enough(row):
                break
        return row

    def _iterate(self, last: int) -> dict[str, float]:
        """Run one iteration and return its row of metrics. The device is read once, at the end."""
        self._guard()
        self._watch.start()
        rollout = self.collect()
        self._watch.lap("other")
        statistics = self.algorithm.update(rollout, self.iteration / max(last, 1))
        self._watch.lap("learn")
        values = torch.stack(list(statistics.values())).tolist()
        metrics = dict(zip(statistics, values, strict=True))
        metrics |= self._pop_metrics()
        return self._finish_iteration(metrics, self._watch.read())

    def _state(self) -> dict[str, Tensor]:
        acting = {name: stream.get_state() for name, stream in self.acting_streams().items()}
        return self.algorithm.state() | acting

    def _loaded(self, state: Mapping[str, Tensor]) -> None:
        if not state:
            self.algorithm.restart()
            return
        self.collector.leave()
        self.algorithm.load_state(state)
        for name, stream in self.acting_streams().items():
            stream.set_state(state[name].cpu())

    def _worlds(self) -> dict[str, Tensor]:
        return super()._worlds() | self.collector.worlds() | self.algorithm.acting_worlds() | self.algorithm.worlds()

    def acting_streams(self) -> dict[str, torch.Generator]:
        """Return the random streams that rollouts draw from, by their name in checkpoints."""
        return {"random.noise": self.collector.noise} | self.algorithm.acting_streams()

    def _streams(self) -> dict[str, torch.Generator]:
        return self.acting_streams() | self.algorithm.streams()

    def _unsound(self) -> list[str]:
        return self._unsound_parts(self.collector.rollout)

    def _unsound_parts(self, seen: Rollout) -> list[str]:
        """Return the names of a rollout's parts with numbers that are not finite."""
        parts = {"observations": (seen.actor_obs, seen.critic_obs), "actions": (seen.out,), "rewards": (seen.reward,)}
        return [name for name, tensors in parts.items() if not all(bool(t.isfinite().all()) for t in tensors)]

    def _described(self) -> dict[str, Any]:
        return self.algorithm.described()

    def _check(self, meta: Mapping[str, Any]) -> None:
        self.algorithm.check(meta)

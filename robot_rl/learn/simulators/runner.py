"""The learner of a training whose worlds are simulated elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from robot_rl.errors import UserError
from robot_rl.learn.build import find_maker
from robot_rl.learn.checkpoints import worlds
from robot_rl.learn.interrupt import StopRequest
from robot_rl.learn.rollout import Rollout
from robot_rl.learn.runner import Runner
from robot_rl.learn.simulators.pool import Source, StoppedError
from robot_rl.learn.simulators.simulator import Segment
from robot_rl.learn.simulators.weights import pack
from robot_rl.metrics.iteration import merge_rows
from robot_rl.settings import LearnerCfg

NOT_SHARED = ("recording", "rewind", "skip", "num_worlds", "_template")
"""Attributes that only an environment that is stepped has."""
COMPARED = ("reward", "episode", "termination")
"""Kinds of metrics that a row has of each engine, where the simulators have several."""


class RemoteWorlds(VecEnv):
    """The worlds of all simulators, as the learner sees them: their sizes are known, and nothing can be stepped.

    Attributes:
        pool: The simulators.
        notices: Lines of their environments for the user.
    """

    def __init__(self, template: Any, num_envs: int, pool: Source) -> None:
        """Take a pool.

        Args:
            template: An environment of the same task and any number of worlds, which is never stepped.
            num_envs: Worlds of all simulators together.
            pool: The simulators.
        """
        self._template, self.pool = template, pool
        self.num_envs, self.num_actions = num_envs, template.num_actions
        self.max_episode_length, self.device, self.cfg = template.max_episode_length, template.device, template.cfg
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.int64)
        self.notices: list[str] = []
        self._new: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        """Return what the task's environments have in common, such as its mirror."""
        if name.startswith("__") or name in NOT_SHARED:
            raise AttributeError(name)
        return getattr(self._template, name)

    def get_observations(self) -> TensorDict:
        """Return observations of the right shapes."""
        found = self._template.get_observations()
        rows = torch.zeros(self.num_envs, dtype=torch.int64, device=found.device)
        return found[rows]

    def step(self, actions: Tensor) -> Any:
        """Raise, for the simulators step them."""
        raise NotImplementedError("these worlds are stepped by simulators")

    def pop_metrics(self) -> dict[str, float]:
        """Return nothing: metrics come with the segments."""
        return {}

    def make_runner(self, cfg: LearnerCfg, **options: Any) -> AsyncRunner:
        """Return the learner of these worlds; the options are those of `Session`."""
        return AsyncRunner(self, cfg, **options)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state of all worlds after the newest segments that were learned from."""
        states = enumerate(self.pool.states)
        return {f"{index}.{name}": tensor for index, state in states for name, tensor in state.items()}

    def complete_worlds(self, saved: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return a saved state with that of the simulators which were never there when it was saved: their first."""
        missing = [index for index in range(self.pool.count) if not worlds.under(saved, f"{index}.")]
        self._new = set(missing) if len(missing) < self.pool.count else set()
        first = {f"{index}.{name}": tensor for index in self._new for name, tensor in self.pool.states[index].items()}
        return {**saved, **first}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Let all simulators go on from a state."""
        new, self._new = self._new, set()
        self.pool.load([worlds.under(state, f"{index}.") for index in range(self.pool.count)], new)

    def pop_notices(self) -> list[str]:
        """Return the new lines for the user."""
        lines, self.notices = self.notices, []
        return lines

    def close(self) -> None:
        """End the simulators, and close the template."""
        self.pool.close()
        if callable(close := getattr(self._template, "close", None)):
            close()


class AsyncRunner(Runner):
    """Learns from segments of rollouts as they come, and publishes its weights."""

    env: RemoteWorlds

    def __init__(self, env: RemoteWorlds, cfg: LearnerCfg, **options: Any) -> None:
        """Build the algorithm; the options are those of `Session`."""
        super().__init__(env, cfg, **options)
        self._staleness, self._pool = cfg.staleness.max, env.pool
        refuse_unsuited(self)
        self._published_s, self._published_at = 0.0, 0.0

    def learn(self, max_iterations: int | None = None) -> dict[str, float]:
        """Train as `Session.learn` does; on return no segment is wanted any more."""
        try:
            return super().learn(max_iterations)
        finally:
            self._pool.abandon()

    def load(self, path: Path, **options: Any) -> None:
        """Load a checkpoint, as `Session.load`."""
        self._rest()
        super().load(path, **options)

    def _rest(self) -> None:
        """Let the simulators go back to the end of their last segments that were learned from."""
        self._pool.rest()

    def _publish(self) -> None:
        begin, self._published_at = time.perf_counter(), time.time()
        self._pool.publish(self.iteration, pack(self.algorithm.actor))
        self._published_s += time.perf_counter() - begin

    def _run(self, last: int, stop: StopRequest) -> dict[str, float]:
        try:
            self._rest()
            self._publish()
            self._pool.begin(self.iteration, self._staleness, is_first=self.iteration == 0)
            return super()._run(last, stop)
        except StoppedError as error:  # Between two iterations: what is saved is complete.
            self._stopped_by = error.signal
            return {}

    def _iterate(self, last: int) -> dict[str, float]:
        """Run one iteration: take the segments of a rollout, learn from it, and publish the weights."""
        self._guard()
        begin = time.perf_counter()
        segments = self._pool.take()
        waited = time.perf_counter() - begin
        self._watch.start()
        rollout, dropped = self._assemble(segments)
        statistics = self.algorithm.update(rollout, self.iteration / max(last, 1))
        self._watch.lap("learn")
        values = torch.stack(list(statistics.values())).tolist()
        self.env.notices += [line for one in segments for line in one.notices]
        metrics = dict(zip(statistics, values, strict=True)) | self._merge(segments)
        metrics |= {"staleness/dropped": dropped, "perf/wait_s": waited, "perf/publish_s": self._published_s}
        delays = [one.taken_at - self._published_at for one in segments if one.taken_at > self._published_at]
        if delays:  # By the clocks of two machines, where they are two.
            metrics["perf/publish_to_step_s"] = max(delays)
        metrics |= {
            "simulators": float(len(self._pool.present)),
            "simulators/lost": float(self._pool.lost),
        }
        self._published_s = 0.0
        seconds = self._watch.read() | {"simulate": min(waited, max(one.busy_s for one in segments))}
        row = self._finish_iteration(metrics, seconds)
        if self.iteration < last:
            self._publish()
        return row

    def _merge(self, segments: Sequence[Segment]) -> dict[str, float]:
        """Return the row of all segments, and where there are several engines the metrics of each, by its name."""
        row = merge_rows([one.metrics for one in segments])
        engines = dict.fromkeys(self._pool.engines)
        for engine in engines if len(engines) > 1 else ():
            own = merge_rows([one.metrics for one in segments if self._pool.engines[one.index] == engine])
            row |= {f"simulators/{engine}/{name}": v for name, v in own.items() if name.partition("/")[0] in COMPARED}
        return row

    def _assemble(self, segments: Sequence[Segment]) -> tuple[Rollout, float]:
        """Fill the rollout with segments; return it and the share of the samples that are too old."""
        rollout = self.collector.rollout
        rollout.begin()
        rollout.has_final_obs = any(one.has_final_obs for one in segments)
        rollout.has_invalid = any(one.has_invalid for one in segments)
        for name, tensor in rollout.buffers().items():
            first = 0
            for one in segments:
                part = one.tensors[name]
                tensor[:, first : first + part.shape[1]].copy_(part)
                first += part.shape[1]
        frozen = segments[-1].frozen
        rollout.frozen = None if frozen is None else frozen.to(self.device)
        rollout.blocks = tuple((one.index * one.num_worlds, one.num_worlds) for one in segments)
        age = self.iteration - rollout.version
        is_old = age > self._staleness
        if rollout.sequence:  # A memory went on from the steps before: all of a world's, or none.
            is_old = is_old.any(0, keepdim=True).expand_as(is_old)
        rollout.learner_version = None
        if self._staleness:
            rollout.learner_version = torch.full((), self.iteration, dtype=torch.int64, device=self.device)
        if bool(is_old.any()):
            rollout.valid &= ~is_old
            rollout.has_invalid = True
            rollout.blank_invalid()
        return rollout, float(is_old.float().mean())


def refuse_unsuited(runner: Runner) -> None:
    """Raise UserError for a learner that cannot learn from segments."""
    cfg, spec = runner.cfg, runner.algorithm.spec()
    if cfg.overlap:
        raise UserError("overlap: true, but simulators apart never wait for the learner anyway; leave it out")
    if not all(hook.is_separable for hook in spec.hooks):
        raise UserError(f"learner={cfg.name}: an auxiliary objective acts in rollouts, which simulators cannot do")
    if find_maker(cfg, "make_session") is not None or getattr(cfg, "is_team", False):
        raise UserError(f"learner={cfg.name}: cannot learn from simulators apart; use learner=ppo")
    if runner.algorithm.worlds() and not runner.algorithm.keeps_order:
        raise UserError(
            f"learner={cfg.name}: an auxiliary objective remembers each world, whose segments may come late"
        )
    if spec.critic_memory:
        raise UserError("critic.memory.kind: segments of a world may come in another order; use a critic without one")

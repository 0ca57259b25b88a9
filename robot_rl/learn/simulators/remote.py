"""Rollouts from worlds that are simulated elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from robot_rl.errors import UserError
from robot_rl.learn.build import find_maker
from robot_rl.learn.checkpoints import worlds
from robot_rl.learn.rollout import Rollout
from robot_rl.learn.rollouts.source import Host, RolloutSource
from robot_rl.learn.simulators.pool import Source
from robot_rl.learn.simulators.simulator import Segment
from robot_rl.learn.simulators.weights import pack
from robot_rl.metrics.iteration import merge_rows

NOT_SHARED = ("recording", "rewind", "skip", "num_worlds", "_template")
"""Attributes that only an environment that is stepped has."""
COMPARED = ("reward", "episode", "termination")
"""Kinds of metrics that a row has of each engine, if the simulators have several."""


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
        """Return an attribute that the task's environments have in common, such as its mirror."""
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

    def make_rollouts(self, trainer: Host) -> RemoteRollouts:
        """Return the source of a trainer's rollouts."""
        return RemoteRollouts(trainer)

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
        """Let all simulators continue from a state."""
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


class RemoteRollouts(RolloutSource):
    """Segments of rollouts as they come; the weights after each update are published."""

    def __init__(self, trainer: Host) -> None:
        """Take the pool of the trainer's worlds."""
        super().__init__(trainer)
        self._worlds: RemoteWorlds = trainer.env  # type: ignore[assignment]
        self._pool, self._staleness = self._worlds.pool, trainer.cfg.staleness.max
        refuse_unsuited(trainer)
        self._published_s, self._published_at, self._waited_s = 0.0, 0.0, 0.0
        self._segments: list[Segment] = []
        self._dropped = 0.0

    def start(self, last_iteration: int) -> None:
        """Publish the weights, and let the simulators begin."""
        self._pool.rest()
        self._publish()
        iteration = self.trainer.iteration
        self._pool.begin(iteration, self._staleness, is_first=iteration == 0)

    def next(self, last_iteration: int) -> Rollout:
        """Wait for the segments of a rollout."""
        begin = time.perf_counter()
        self._segments = self._pool.take()
        self._waited_s = time.perf_counter() - begin
        rollout, self._dropped = self._assemble(self._segments)
        return rollout

    def measured(self, learn_s: float) -> tuple[dict[str, float], dict[str, float]]:
        """Return the metrics of all segments, and the times of waiting and publishing."""
        segments = self._segments
        self._worlds.notices += [line for one in segments for line in one.notices]
        metrics = self._merge(segments) | {
            "staleness/dropped": self._dropped,
            "perf/wait_s": self._waited_s,
            "perf/publish_s": self._published_s,
        }
        delays = [one.taken_at - self._published_at for one in segments if one.taken_at > self._published_at]
        if delays:  # By the clocks of two machines, if they are two.
            metrics["perf/publish_to_step_s"] = max(delays)
        metrics |= {"simulators": float(len(self._pool.present)), "simulators/lost": float(self._pool.lost)}
        self._published_s = 0.0
        return metrics, {"simulate": min(self._waited_s, max(one.busy_s for one in segments))}

    def publish(self, last_iteration: int) -> None:
        """Publish the weights after an update."""
        if self.trainer.iteration < last_iteration:
            self._publish()

    def pause(self) -> None:
        """Want no segment any more."""
        self._pool.abandon()

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Let the simulators go back to the end of their last segments that were learned from."""
        self._pool.rest()
        yield

    def _publish(self) -> None:
        begin, self._published_at = time.perf_counter(), time.time()
        self._pool.publish(self.trainer.iteration, pack(self.trainer.algorithm.actor))
        self._published_s += time.perf_counter() - begin

    def _merge(self, segments: Sequence[Segment]) -> dict[str, float]:
        """Return the row of all segments, and if there are several engines the metrics of each, by its name."""
        row = merge_rows([one.metrics for one in segments])
        engines = dict.fromkeys(self._pool.engines)
        for engine in engines if len(engines) > 1 else ():
            own = merge_rows([one.metrics for one in segments if self._pool.engines[one.index] == engine])
            row |= {f"simulators/{engine}/{name}": v for name, v in own.items() if name.partition("/")[0] in COMPARED}
        return row

    def _assemble(self, segments: Sequence[Segment]) -> tuple[Rollout, float]:
        """Fill the rollout with segments; return it and the share of the samples that are too old."""
        rollout = self.trainer.collector.rollout
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
        rollout.frozen = None if frozen is None else frozen.to(self.trainer.device)
        rollout.blocks = tuple((one.index * one.num_worlds, one.num_worlds) for one in segments)
        age = self.trainer.iteration - rollout.version
        is_old = age > self._staleness
        if rollout.sequence:  # A memory continued from the steps before: all of a world's, or none.
            is_old = is_old.any(0, keepdim=True).expand_as(is_old)
        rollout.learner_version = None
        if self._staleness:
            rollout.learner_version = torch.full(
                (), self.trainer.iteration, dtype=torch.int64, device=self.trainer.device
            )
        if bool(is_old.any()):
            rollout.valid &= ~is_old
            rollout.has_invalid = True
            rollout.zero_invalid()
        return rollout, float(is_old.float().mean())


def refuse_unsuited(trainer: Host) -> None:
    """Raise UserError for a learner that cannot learn from segments."""
    cfg, spec = trainer.cfg, trainer.algorithm.spec()
    if cfg.overlap:
        raise UserError("overlap: true, but simulators apart never wait for the learner anyway; omit it")
    if not all(hook.is_separable for hook in spec.hooks):
        raise UserError("learner", cfg.name, "an auxiliary objective acts in rollouts, which simulators cannot do")
    if find_maker(cfg, "make_session") is not None or getattr(cfg, "is_team", False):
        raise UserError("learner", cfg.name, "cannot learn from simulators apart", "use learner=ppo")
    if trainer.algorithm.worlds() and not trainer.algorithm.indexed_by_world:
        raise UserError(
            "learner", cfg.name, "an auxiliary objective remembers each world, whose segments may come late"
        )
    if spec.critic_memory:
        raise UserError("critic.memory.kind: segments of a world may come in another order; use a critic without one")

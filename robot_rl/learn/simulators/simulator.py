"""A simulator: steps its share of the worlds with the newest weights, and returns segments of rollouts."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from rsl_rl.env import VecEnv
from torch import Tensor

from robot_rl.learn.algorithm import Snapshot
from robot_rl.learn.checkpoints import worlds
from robot_rl.learn.ranks import ProcessGroup
from robot_rl.learn.rollout import Rollout
from robot_rl.learn.simulators.weights import unpack
from robot_rl.learn.trainer import Trainer
from robot_rl.settings import LearnerCfg


class SegmentCancelled(RuntimeError):
    """The segment is not needed any more."""


class Share(ProcessGroup):
    """The share of the worlds that a simulator has; it exchanges nothing with the others."""

    def __init__(self, index: int, count: int) -> None:
        self.rank, self.size = index, count


class Mailbox:
    """The newest weights, and a way to wait for them. Any thread may use it."""

    def __init__(self) -> None:
        self._version, self._weights, self._is_abandoned = -1, torch.empty(0, dtype=torch.uint8), False
        self._changed = threading.Condition()

    def put(self, version: int, weights: Tensor) -> None:
        """Publish weights; older ones than those that are there are ignored."""
        with self._changed:
            if version > self._version:
                self._version, self._weights = version, weights
                self._changed.notify_all()

    def abandon(self) -> None:
        """Let the segment that is simulated be given up, and forget the weights."""
        with self._changed:
            self._version, self._is_abandoned = -1, True
            self._changed.notify_all()

    def allow(self) -> None:
        """Let segments be simulated again."""
        with self._changed:
            self._is_abandoned = False

    def get(self, least: int) -> tuple[int, Tensor]:
        """Return version and weights of the newest, after waiting for one that is at least `least`.

        Raises:
            SegmentCancelled: `abandon` was called.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_abandoned or self._version >= max(0, least))
            if self._is_abandoned:
                raise SegmentCancelled
            return self._version, self._weights


class FollowingSnapshot(Snapshot):
    """A policy that takes over the newest weights between two steps of a rollout, and waits if it is too far behind.

    Attributes:
        waited_s: How long it waited for weights [s].
        taken_at: When it first acted with the weights that it has (`time.time`) [s].
    """

    def __init__(self, policy: Snapshot, mailbox: Mailbox, least: int) -> None:
        """Take the policy whose weights are overwritten, their source, and the oldest version that may act."""
        super().__init__(policy.actor, -1)
        self._policy, self._mailbox, self._least = policy, mailbox, least
        self.waited_s, self.taken_at = 0.0, 0.0
        self._is_mixed = False

    def begin(self, rollout: Rollout, generator: torch.Generator) -> None:
        """Take over the newest weights, and draw the random numbers of a rollout."""
        self._follow()
        self._policy.begin(rollout, generator)

    def act(self, rollout: Rollout, t: int, memory: Tensor | None) -> Tensor:
        """Act with the newest weights at the observations in row t of a rollout, and record who acted."""
        if self._follow() and t:
            self._attribute(rollout, t)
            self._is_mixed = True
        action = self._policy.act(rollout, t, memory)
        rollout.version[t].fill_(self.version)
        if self._is_mixed:
            distribution = self.actor.distribution
            params = distribution.params(rollout.out[t], self.frozen)
            rollout.log_prob[t].copy_(distribution.log_prob(rollout.action[t], params))
        return action

    def record(self, rollout: Rollout) -> None:
        """Record the distribution that acted; if there were several, the last."""
        log_prob = rollout.log_prob.clone() if self._is_mixed else None
        self._policy.record(rollout)
        if log_prob is not None:  # Actions that are zeros now need not have had a finite one.
            rollout.log_prob.copy_(log_prob.masked_fill_(~rollout.valid, 0.0))

    def _follow(self) -> bool:
        """Take over the newest weights; return whether they are others."""
        begin = time.perf_counter()
        version, weights = self._mailbox.get(self._least)
        self.waited_s += time.perf_counter() - begin
        if version == self.version:
            return False
        self._before = self.frozen
        unpack(weights, self.actor)
        self._policy.follow(self.actor, version)
        self.version, self.frozen = version, self._policy.frozen
        self.taken_at = time.time()
        return True

    def _attribute(self, rollout: Rollout, t: int) -> None:
        """Record the log-probabilities of the steps before t, which the weights before took."""
        if self._is_mixed:
            return
        distribution, steps = self.actor.distribution, slice(0, t)
        params = distribution.params(rollout.out[steps].flatten(0, 1), self._before)
        found = distribution.log_prob(rollout.action[steps].flatten(0, 1), params)
        rollout.log_prob[steps].copy_(found.view_as(rollout.log_prob[steps]))


@dataclass(kw_only=True, slots=True)
class Segment:
    """Steps of a simulator's worlds.

    Attributes:
        index: Which simulator.
        tensors: Buffers of a `Rollout` by name, (T, N, ...) each, "critic_obs" and groups (T + 1, N, ...).
        frozen: `Rollout.frozen`.
        has_final_obs, has_invalid: As in `Rollout`.
        metrics: The row of these worlds.
        notices: The environment's lines for the user.
        state: State of the worlds after the segment, and of the random stream, by name.
        taken_at: When it first acted with the weights of its last step (`time.time`) [s].
        busy_s, waited_s: How long it was simulated, and waited for weights [s].
    """

    index: int
    tensors: dict[str, Tensor]
    frozen: Tensor | None
    has_final_obs: bool
    has_invalid: bool
    metrics: dict[str, float]
    notices: list[str] = field(default_factory=list)
    state: dict[str, Tensor] = field(default_factory=dict)
    taken_at: float = 0.0
    busy_s: float = 0.0
    waited_s: float = 0.0

    @property
    def num_worlds(self) -> int:
        """Return the number N of its worlds."""
        return self.tensors["done"].shape[1]


class Simulator:
    """Simulates a share of the worlds. One thread calls `segment`, any other may publish weights to the mailbox.

    Attributes:
        mailbox: Where weights are published.
        runner: The networks and the collector.
    """

    def __init__(self, env: VecEnv, cfg: LearnerCfg, *, seed: int, index: int, count: int, staleness: int) -> None:
        """Take an environment with the worlds of simulator `index` of `count`.

        Args:
            env: The environment.
            cfg: The learner's configuration.
            seed: The run's.
            index: Which simulator this is.
            count: How many there are.
            staleness: By how many versions the policy that acts may be older than the one that learns.
        """
        self.mailbox, self._index, self._staleness = Mailbox(), index, staleness
        # Its steps could not take newer weights in the middle of a rollout that a graph replays.
        cfg = replace(cfg.acting(env.num_envs), graph="off")
        self.runner = Trainer(env, cfg, seed=seed, ranks=Share(index, count))

    def state(self) -> dict[str, Tensor]:
        """Return a copy of the state of the worlds and of the random streams; not while a segment is simulated."""
        runner = self.runner
        streams = {name: stream.get_state() for name, stream in runner.acting_streams().items()}
        live = worlds.pack(runner.env, runner.worlds()) | streams
        return {name: tensor.detach().cpu().clone() for name, tensor in live.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a state."""
        runner = self.runner
        streams = runner.acting_streams()
        own = {name: tensor for name, tensor in state.items() if name not in streams}
        worlds.unpack("the last snapshot", own, runner.env, runner.worlds())  # type: ignore[arg-type]
        for name, stream in streams.items():
            stream.set_state(state[name])
        runner.collector.leave()

    def segment(self, target: int, *, is_first: bool = False) -> Segment | None:
        """Simulate the steps of a rollout for the update from version `target`; None if it was abandoned.

        After that the worlds are in the middle of it, until `load`.

        Args:
            target: The version that learns from them at the earliest.
            is_first: Nothing was learned yet.
        """
        runner, collector = self.runner, self.runner.collector
        if not collector.has_started:
            collector.start(runner.worlds(), is_first=is_first)
        least = max(0, target - self._staleness)
        policy = FollowingSnapshot(runner.algorithm.snapshot(-1), self.mailbox, least)
        begin = time.perf_counter()
        try:
            rollout = collector.collect(policy)
        except SegmentCancelled:
            return None
        elapsed = time.perf_counter() - begin
        return Segment(
            index=self._index,
            tensors={name: tensor.detach().cpu().clone() for name, tensor in rollout.buffers().items()},
            frozen=None if rollout.frozen is None else rollout.frozen.cpu(),
            has_final_obs=rollout.has_final_obs,
            has_invalid=rollout.has_invalid,
            metrics=runner.pop_metrics(),
            notices=list(getattr(runner.env, "pop_notices", list)()),
            state=self.state(),
            taken_at=policy.taken_at,
            busy_s=elapsed - policy.waited_s,
            waited_s=policy.waited_s,
        )

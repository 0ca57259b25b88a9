"""What an algorithm is to the loop around it: it hands out a policy that acts, and learns from what that policy did.

`Runner` lets a `Collector` fill a `Rollout` with a `Snapshot` of the policy, and hands the rollout to
`Algorithm.update`. The two ends share nothing else, so that a rollout may come from another process, or be older than
the weights that learn from it.

Adding an algorithm is a folder below `robot_rl/learn/algorithms`, or a class of one's own: a subclass of
`robot_rl.config.LearnerCfg` with the settings, whose `make_algorithm(context)` returns a subclass of `Algorithm`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rsl_rl.env import VecEnv
from torch import Tensor, nn

from robot_rl.learn.auxiliaries.auxiliary import Auxiliary
from robot_rl.learn.dims import Dims, Mirrors
from robot_rl.learn.networks.actor_critic import Actor
from robot_rl.learn.ranks import Ranks
from robot_rl.learn.rollout import Rollout, RolloutSpec


@dataclass(kw_only=True, slots=True)
class Context:
    """What an algorithm is built for.

    Attributes:
        env: the environment.
        dims: sizes of observations and actions.
        mirrors: the environment's left-right symmetry, checked; None where the configuration uses none.
        device: where the environment and the algorithm run.
        seed: of weights and random numbers, the same in all processes.
        ranks: the processes that train together.
    """

    env: VecEnv
    dims: Dims
    mirrors: Mirrors | None
    device: torch.device
    seed: int
    ranks: Ranks

    def generator(self, offset: int) -> torch.Generator:
        """Return a random stream on the device, another in each process.

        Args:
            offset: added to the seed, so that no two parts draw the same numbers.
        """
        return torch.Generator(self.device).manual_seed(self.ranks.seed(self.seed + offset))


class Snapshot:
    """A policy as it is at one moment, to collect with: what `act` and `record` need, and nothing of the learner.

    In one process it shares the learner's weights, and holds until the next update.

    Attributes:
        actor: the policy.
        version: iterations that it has learned for.
        frozen: its `Distribution.snapshot`.
    """

    def __init__(self, actor: Actor, version: int) -> None:
        """Take the policy as it is.

        Args:
            actor: the policy.
            version: iterations that it has learned for.
        """
        self.actor, self.version = actor, version
        self.frozen = actor.distribution.snapshot()

    def begin(self, rollout: Rollout, generator: torch.Generator) -> None:
        """Draw the random numbers of a rollout's actions, and note who acts.

        Args:
            rollout: the rollout.
            generator: source of the numbers.
        """
        self.actor.distribution.draw_noise(rollout.noise, generator)
        rollout.version.fill_(self.version)
        if (normalizer := self.actor.normalizer) is not None:
            rollout.normalizer = (normalizer.mean.clone(), normalizer.scale.clone())

    def act(self, rollout: Rollout, t: int, memory: Tensor | None) -> Tensor:
        """Act at the observations in row t of a rollout, note the actions there, and return them for the environment.

        Args:
            rollout: the rollout; `actor_obs[t]` (N, D) and `noise[t]` (N, A) are filled.
            t: step of the rollout.
            memory: (N, S) what the policy remembers of the worlds; overwritten by what it remembers after this step.

        Returns:
            (N, A) actions.
        """
        action, out = self.actor.act(rollout.actor_obs[t], rollout.noise[t], self.frozen, memory)
        rollout.action[t].copy_(action)
        rollout.out[t].copy_(out)
        return self.actor.distribution.to_env(action)

    def record(self, rollout: Rollout) -> None:
        """Note in a full rollout what the learner must know of the policy that acted."""
        rollout.attribute(self.actor.distribution, self.frozen)


class Algorithm(ABC):
    """Improves a policy from rollouts.

    Attributes:
        actor: the policy.
        auxiliaries: objectives that take part; their collecting halves run in the collector.
        groups: observation groups that rollouts must hold besides what actor and critic see.
        critic_memory: components of what a recurrent critic remembers of each world; 0 where it has no memory.
    """

    actor: Actor
    auxiliaries: Sequence[Auxiliary] = ()
    groups: tuple[str, ...] = ()
    critic_memory: int = 0

    @abstractmethod
    def modules(self) -> dict[str, nn.Module]:
        """Return the networks, "actor" among them, by the name under which checkpoints keep them."""

    @abstractmethod
    def update(self, rollout: Rollout, progress: float) -> dict[str, Tensor]:
        """Learn from a rollout.

        Args:
            rollout: the rollout; the policy that acted may be older than the present one.
            progress: share of the training that is done, in [0, 1].

        Returns:
            Statistics () by name, on the device; a name that begins with "loss/" must stay finite.
        """

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Return what a resumed run needs besides the networks: optimizers, random streams, replay memory, live."""

    @abstractmethod
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `state` returned; the networks are loaded already."""

    def spec(self) -> RolloutSpec:
        """Return what rollouts must hold for this algorithm."""
        groups = dict.fromkeys(self.groups, "groups")
        groups |= {group: auxiliary.name for auxiliary in self.auxiliaries for group in auxiliary.groups}
        return RolloutSpec(
            out_dim=self.actor.distribution.out_dim,
            actor_memory=self.actor.state_size,
            critic_memory=self.critic_memory,
            groups=groups,
            hooks=[auxiliary.hook for auxiliary in self.auxiliaries if auxiliary.hook is not None],
        )

    def snapshot(self, version: int) -> Snapshot:
        """Return the policy as it is, to collect with.

        Args:
            version: iterations that were learned for.
        """
        return Snapshot(self.actor, version)

    def restart(self) -> None:  # noqa: B027  (most have nothing to restart)
        """Begin a training from networks that were loaded by themselves."""

    def streams(self) -> dict[str, torch.Generator]:
        """Return the random streams that each process has for itself, by their name in `state`."""
        return {}

    def worlds(self) -> dict[str, Tensor]:
        """Return what the learner remembers of each world from rollout to rollout, (N, ...) each, live."""
        return {}

    def described(self) -> dict[str, Any]:
        """Return what a checkpoint's description says of the algorithm, JSON-able."""
        return {}

    def check(self, described: Mapping[str, Any]) -> None:  # noqa: B027  (not every algorithm has anything to check)
        """Compare with what `described` said when a checkpoint was written.

        Raises:
            UserError: the run cannot go on with this algorithm.
        """

"""The interface between an algorithm and the training loop.

`Trainer` lets a `Collector` fill a `Rollout` with a `Snapshot` of the policy, and passes the rollout to
`Algorithm.update`. The two ends share nothing else, so a rollout may come from another process, or be older than the
weights that learn from it.

A new algorithm is a folder below `robot_rl/learn/algorithms`, or a module of another package: a subclass of
`robot_rl.settings.LearnerCfg` with the settings, and a function `make_algorithm(cfg, context)` that returns a subclass
of `Algorithm` (`robot_rl.learn.build`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from rsl_rl.env import VecEnv
from torch import Tensor, nn

from robot_rl.learn.auxiliaries.auxiliary import Auxiliaries
from robot_rl.learn.checkpoints.worlds import under
from robot_rl.learn.dims import EnvSpec, Mirrors
from robot_rl.learn.networks.actor_critic import Actor
from robot_rl.learn.ranks import ProcessGroup
from robot_rl.learn.rollout import Rollout, RolloutSpec


@dataclass(kw_only=True, slots=True)
class Context:
    """The environment and processes that an algorithm is built for.

    Attributes:
        mirrors: the environment's left-right symmetry, checked; None if the configuration uses none.
        device: the device of the environment and the algorithm.
        seed: of weights and random numbers, the same in all processes.
        ranks: the processes that train together.
    """

    env: VecEnv
    dims: EnvSpec
    mirrors: Mirrors | None
    device: torch.device
    seed: int
    ranks: ProcessGroup

    def generator(self, offset: int) -> torch.Generator:
        """Return a random stream on the device, different in each process; `offset` is added to the seed."""
        return torch.Generator(self.device).manual_seed(self.ranks.seed(self.seed + offset))


class Snapshot:
    """A policy at one moment, to collect with. It knows nothing of the learner.

    In one process it shares the learner's weights, and is valid until the next update.

    Attributes:
        version: iterations that the policy has learned for.
        frozen: its `Distribution.snapshot`.
        capturable: a subclass's `act` may be recorded as a CUDA graph, with which later snapshots also act: it reads
            networks, `frozen` and the rollout only.
    """

    capturable: bool = False

    def __init__(self, actor: Actor, version: int) -> None:
        Snapshot.follow(self, actor, version)

    def follow(self, actor: Actor, version: int) -> None:
        """Act with the weights that another actor of the same architecture, or the same one, has now."""
        self.actor, self.version = actor, version
        self.frozen = actor.distribution.snapshot()

    def begin(self, rollout: Rollout, generator: torch.Generator) -> None:
        """Draw the random numbers of a rollout's actions, and record the version and the normalizer of the policy."""
        self.actor.distribution.draw_noise(rollout.noise, generator)
        rollout.version.fill_(self.version)
        if (normalizer := self.actor.normalizer) is not None:
            rollout.normalizer = (normalizer.mean.clone(), normalizer.scale.clone())

    def act(self, rollout: Rollout, t: int, memory: Tensor | None) -> Tensor:
        """Act at the observations in row t of a rollout, record the actions there, and return the environment's (N, A).

        `actor_obs[t]` (N, D) and `noise[t]` (N, A) are filled; `memory` (N, S) is the state of a recurrent policy,
        which is overwritten by the state after this step.
        """
        action, out = self.actor.act(rollout.actor_obs[t], rollout.noise[t], self.frozen, memory)
        rollout.action[t].copy_(action)
        rollout.out[t].copy_(out)
        return self.actor.distribution.to_env(action)

    def record(self, rollout: Rollout) -> None:
        """Record in a full rollout the distribution of the policy that acted."""
        rollout.record_policy(self.actor.distribution, self.frozen)


CARRIED = "carried_"
"""Prefix of the buffers of an actor that only go along with its weights."""


def carry(actor: Actor, name: str, value: Tensor) -> None:
    """Let a number () that decides how a policy acts go along with its weights, wherever they are copied or published.

    It is `actor.carried_<name>`, which the learner sets when it learns, and no part of the actor's `state_dict`. A
    `Snapshot` reads it in `follow`.
    """
    actor.register_buffer(f"{CARRIED}{name}", value, persistent=False)


def carried(actor: Actor) -> dict[str, Tensor]:
    """Return the tensors that go along with an actor's weights, live."""
    return {name: tensor for name, tensor in actor.named_buffers() if name.startswith(CARRIED)}


class Algorithm(ABC):
    """Improves a policy from rollouts.

    Attributes:
        auxiliaries: further objectives; their `hook` runs in the collector.
        groups: observation groups that rollouts must hold in addition to those of actor and critic.
        critic_memory: components of a recurrent critic's state in each world; 0 without one.
        indexed_by_world: `worlds` is kept by the number of a world, for any columns of a rollout (`Rollout.by_world`).
    """

    actor: Actor
    auxiliaries: Auxiliaries = Auxiliaries()
    groups: tuple[str, ...] = ()
    critic_memory: int = 0
    indexed_by_world: bool = False

    @abstractmethod
    def modules(self) -> dict[str, nn.Module]:
        """Return the networks, "actor" among them, by their name in checkpoints."""

    @abstractmethod
    def update(self, rollout: Rollout, progress: float) -> dict[str, Tensor]:
        """Learn from a rollout at `progress` in [0, 1] of the training; return statistics () by name on the device.

        The policy that acted may be older than the current one. Statistics named "loss/..." must stay finite.
        """

    def stateful(self) -> dict[str, Any]:
        """Return all but the networks that keeps a state, by its prefix in `state`: optimizers, replay memory.

        Each has `state_dict()`, which returns live tensors by name, and `load_state_dict()`.
        """
        return {}

    def state(self) -> dict[str, Tensor]:
        """Return all but the networks that a resumed run needs, live: the state of `stateful` and of `streams`."""
        parts = self.stateful().items()
        kept = {f"{part}.{name}": tensor for part, owner in parts for name, tensor in owner.state_dict().items()}
        return kept | {name: stream.get_state() for name, stream in self.streams().items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Load the output of `state`; the networks are loaded already."""
        for part, owner in self.stateful().items():
            owner.load_state_dict(under(state, f"{part}."))
        for name, stream in self.streams().items():
            stream.set_state(state[name].cpu())

    def spec(self) -> RolloutSpec:
        """Return the contents that rollouts must hold for this algorithm."""
        groups = dict.fromkeys(self.groups, "groups")
        groups |= {group: auxiliary.name for auxiliary in self.auxiliaries for group in auxiliary.groups}
        return RolloutSpec(
            out_dim=self.actor.distribution.out_dim,
            actor_memory=self.actor.state_size,
            critic_memory=self.critic_memory,
            groups=groups,
            hooks=list(self.auxiliaries.hooks.values()),
        )

    def snapshot(self, version: int) -> Snapshot:
        """Return the current policy to collect with; `version` is the number of iterations that it has learned for."""
        return Snapshot(self.actor, version)

    def restart(self) -> None:  # noqa: B027  (most have nothing to restart)
        """Begin a training from networks that were loaded without the rest of the state."""

    def streams(self) -> dict[str, torch.Generator]:
        """Return the random streams that each process has for itself, by their name in `state`."""
        return {}

    def acting_streams(self) -> dict[str, torch.Generator]:
        """Return the random streams that snapshots and hooks draw from, by their name in checkpoints; not in `state`.

        Where simulators are apart, each has its own, which is part of the state of its worlds.
        """
        return self.auxiliaries.acting_streams()

    def worlds(self) -> dict[str, Tensor]:
        """Return the state that the learner keeps of each world from rollout to rollout, (N, ...) each, live."""
        return self.auxiliaries.worlds()

    def acting_worlds(self) -> dict[str, Tensor]:
        """Return the state that snapshots and hooks keep of each world, (N, ...) each, live; `update` leaves it."""
        return self.auxiliaries.acting_worlds()

    def described(self) -> dict[str, Any]:
        """Return the algorithm's entries in a checkpoint's description, JSON-able."""
        return {}

    def check(self, described: Mapping[str, Any]) -> None:  # noqa: B027  (not every algorithm has anything to check)
        """Raise UserError if the run of a checkpoint with this description cannot continue with this algorithm."""

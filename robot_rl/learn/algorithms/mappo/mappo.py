"""The networks of multi-agent PPO: one policy or several over rows of robots, and a critic that sees the team.

The algorithm is `PPO`; minibatches of several policies consist of whole worlds.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from robot_rl.learn.algorithms.mappo.config import MAPPOLearnerCfg
from robot_rl.learn.algorithms.ppo.ppo import make_algorithm
from robot_rl.learn.dims import EnvSpec, Mirrors
from robot_rl.learn.networks import actor_critic
from robot_rl.learn.networks.actor_critic import Actor, Critic
from robot_rl.learn.networks.team import AttentionCritic, Members, TeamActor, TeamCritic
from robot_rl.learn.precision.conversion import quantize

__all__ = ["make_actor", "make_algorithm", "make_critic"]


def make_actor(
    cfg: MAPPOLearnerCfg, dims: EnvSpec, mirrors: Mirrors | None, generator: torch.Generator | None = None
) -> Actor:
    """Build the policies on the CPU: an `Actor` if there is one policy, else a `TeamActor`.

    Arguments and errors are those of `build.make_actor` and of `MAPPOLearnerCfg.policies`.
    """
    policies = cfg.policies(dims)
    if len(policies) == 1:
        return actor_critic.make_actor(cfg, dims, mirrors, generator)
    actors = []
    for places in policies.values():
        seen, driven = dims.role_sizes[dims.roles[places[0]]]
        own = replace(dims, actor=seen, action=driven, actor_shapes={})
        actors.append(actor_critic.make_actor(cfg, own, None, generator))
    return TeamActor(list(policies), actors, Members(list(policies.values())), dims.actor_layout)


def make_critic(
    cfg: MAPPOLearnerCfg, dims: EnvSpec, mirrors: Mirrors | None, generator: torch.Generator | None = None
) -> Critic | TeamCritic:
    """Build the critic on the CPU: of all robots of a world, or of the robot whose view it has."""
    if cfg.view not in ("world", "attention"):
        return actor_critic.make_critic(cfg, dims, mirrors, generator)
    kind = AttentionCritic if cfg.view == "attention" else TeamCritic
    critic = kind(
        dims.critic_layout,
        len(dims.agents),
        cfg.critic,
        normalize=cfg.normalize_obs,
        normalize_values=cfg.normalize_values,
        generator=generator,
    )
    if cfg.precision.is_quantized:
        quantize(critic, cfg.precision, "critic")
    return critic

"""Actor and critic from a learner's configuration."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TypeVar

import torch

from robot_rl.config import LearnerCfg
from robot_rl.errors import UserError
from robot_rl.learn.dims import Dims, Mirrors, checked_mirrors
from robot_rl.learn.networks.actor_critic import Actor, Critic, Network
from robot_rl.plugins import load_reference

N = TypeVar("N", bound=Network)


def make_actor(cfg: LearnerCfg, dims: Dims, mirrors: Mirrors | None, generator: torch.Generator | None = None) -> Actor:
    """Build the policy on the CPU.

    Raises:
        UserError: a symmetric network is configured and the environment has no mirror.
    """
    checked = checked_mirrors(cfg, dims, mirrors)
    with _named("actor"):
        actor = Actor(
            dims.actor_layout,
            dims.action,
            cfg.actor,
            normalize=cfg.normalize_obs,
            mirror=(checked["actor"], checked["action"]) if checked and cfg.symmetry == "network" else None,
            choices=tuple(dims.choices),
            generator=generator,
        )
    return _converted(actor, cfg, "actor")


def make_critic(
    cfg: LearnerCfg,
    dims: Dims,
    mirrors: Mirrors | None,
    generator: torch.Generator | None = None,
    *,
    normalize_values: bool = False,
) -> Critic:
    """Build the value function on the CPU; errors are those of `make_actor`."""
    checked = checked_mirrors(cfg, dims, mirrors)
    with _named("critic"):
        critic = Critic(
            dims.critic_layout,
            cfg.critic,
            num_values=dims.num_values,
            normalize=cfg.normalize_obs,
            normalize_values=normalize_values,
            mirror=checked["critic"] if checked and cfg.symmetry == "network" else None,
            generator=generator,
        )
    return _converted(critic, cfg, "critic")


def _converted(network: N, cfg: LearnerCfg, name: str) -> N:
    """Return the network with the arithmetic of the configured converter."""
    if cfg.converter:
        network.convert(load_reference(cfg.converter, "converter"), name)
    return network


@contextlib.contextmanager
def _named(network: str) -> Iterator[None]:
    """Prefix the network's name to UserErrors inside: its parts know only their own settings."""
    try:
        yield
    except UserError as error:
        line = str(error)
        raise UserError(f"{network}.{line}" if line.startswith(("hidden", "memory.")) else line) from error

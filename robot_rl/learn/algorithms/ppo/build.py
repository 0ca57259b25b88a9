"""PPO with its networks and auxiliary objectives, from a configuration."""

from __future__ import annotations

from typing import TypeVar

import torch

from robot_rl.errors import UserError
from robot_rl.learn.algorithm import Context
from robot_rl.learn.algorithms.ppo.augment import AugmentSymmetry
from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.learn.algorithms.ppo.ppo import PPO
from robot_rl.learn.auxiliaries.amp import make_amp
from robot_rl.learn.auxiliaries.auxiliary import Auxiliary
from robot_rl.learn.auxiliaries.reference import make_reference
from robot_rl.learn.auxiliaries.rnd import make_rnd
from robot_rl.learn.dims import Dims, Mirrors
from robot_rl.learn.networks.actor_critic import Actor, Critic
from robot_rl.learn.networks.make import make_actor, make_critic
from robot_rl.plugins import load_reference

P = TypeVar("P", bound=PPO)
ORDER = 2
"""Added to the run's seed for the stream that minibatches are drawn from."""


def make_networks(
    cfg: PPOLearnerCfg, dims: Dims, mirrors: Mirrors | None, generator: torch.Generator | None = None
) -> tuple[Actor, Critic]:
    """Build actor and critic on the CPU; arguments and errors are those of `make_actor`."""
    actor = make_actor(cfg, dims, mirrors, generator)
    return actor, make_critic(cfg, dims, mirrors, generator, normalize_values=cfg.normalize_values)


def make_ppo(cfg: PPOLearnerCfg, context: Context, kind: type[P] = PPO, first: tuple[Auxiliary, ...] = ()) -> P:
    """Build the algorithm, of class `kind`, for an environment; `first` are auxiliary objectives of its own.

    Raises:
        UserError: an observation group that does not exist, recorded motion or a policy of another run that does not
            fit, or an auxiliary objective that cannot be built.
    """
    generator = torch.Generator().manual_seed(context.seed)
    actor, critic = (
        network.to(context.device) for network in make_networks(cfg, context.dims, context.mirrors, generator)
    )
    return kind(
        actor,  # type: ignore[arg-type]
        critic,  # type: ignore[arg-type]
        cfg.ppo,
        symmetry=_augmentation(cfg, context),
        generator=context.generator(ORDER),
        auxiliaries=make_auxiliaries(cfg, context, first),
        reward_weights=cfg.reward_weights,
        ranks=context.ranks,
    )


def make_auxiliaries(cfg: PPOLearnerCfg, context: Context, own: tuple[Auxiliary, ...] = ()) -> tuple[Auxiliary, ...]:
    """Return the auxiliary objectives of a configuration, on their device; `own` are those of the algorithm itself."""
    env, device, seed, ranks = context.env, context.device, context.seed, context.ranks
    found: list[Auxiliary] = []
    if cfg.amp.weight > 0:  # Before what adds rewards: only the task's reward gives way to it.
        found.append(make_amp(cfg.amp, env, device, seed, ranks))
    if cfg.rnd.weight > 0:
        found.append(make_rnd(cfg.rnd, env, device, seed, ranks))
    found += own
    if cfg.reference.run:
        found.append(make_reference(cfg, env, context.dims, device))
    found += [_users(name, context) for name in cfg.auxiliaries]
    names = [auxiliary.name for auxiliary in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"auxiliaries: two are called '{twice[0]}'; give one of them another `name`")
    return tuple(found)


def _users(name: str, context: Context) -> Auxiliary:
    """Return the auxiliary objective that "module:name" makes."""
    make = load_reference(name, "auxiliaries")
    try:
        made = make(context)
    except UserError:
        raise
    except Exception as error:  # Anything may happen in somebody's code.
        raise UserError(f"auxiliaries={name}: {type(error).__name__}: {error}") from error
    if not isinstance(made, Auxiliary) or not made.name:
        raise UserError(f"auxiliaries={name}: made {made!r}, must be an `Auxiliary` with a name")
    return made.to(context.device)


def _augmentation(cfg: PPOLearnerCfg, context: Context) -> AugmentSymmetry | None:
    """Return the object that adds mirrored samples, for symmetry=augment."""
    if cfg.symmetry != "augment" or context.mirrors is None:
        return None
    moved = {name: (p.to(context.device), sign.to(context.device)) for name, (p, sign) in context.mirrors.items()}
    return AugmentSymmetry(**moved)

"""What an environment dictates: sizes of observations and actions, and its left-right symmetry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from rsl_rl.env import VecEnv

from robot_rl.errors import UserError
from robot_rl.learn.networks.conv import check_images
from robot_rl.learn.networks.layout import ObservationLayout, join_mirrors, make_layout
from robot_rl.learn.networks.symmetry import Mirror, check_mirror
from robot_rl.settings import LearnerCfg

Mirrors = Mapping[str, Mirror]
"""Mirrors by "actor", "critic" and "action"."""


@dataclass(slots=True, kw_only=True)
class EnvSpec:
    """Sizes that the environment dictates.

    Attributes:
        actor: components of the actor's observation.
        critic: components of the critic's observation.
        action: components of an action.
        actor_shapes: shape of each group that the actor sees, in order; empty: one group of `actor` components.
        critic_shapes: the same of the critic.
        terms: parts of groups with their own encoder (`robot_rl.learn.networks.layout.ObservationLayout`).
        choices: choices of each component of a discrete action; empty for continuous actions.
        num_values: values of a state, one for each group of rewards.
        agents: the robots of a world, of which each has a row; empty if a world has one.
        roles: the role of each of them: robots of a role are alike.
        role_sizes: components of a robot's observation and of its action, by role.
    """

    actor: int
    critic: int
    action: int
    actor_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    critic_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    terms: Mapping[str, Sequence[int]] = field(default_factory=dict)
    choices: tuple[int, ...] = ()
    num_values: int = 1
    agents: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    role_sizes: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def actor_layout(self) -> ObservationLayout:
        """ObservationLayout of the actor's observation."""
        return ObservationLayout(self.actor_shapes or {"": (self.actor,)}, self.terms)

    @property
    def critic_layout(self) -> ObservationLayout:
        """ObservationLayout of the critic's observation."""
        return ObservationLayout(self.critic_shapes or {"": (self.critic,)}, self.terms)


def make_env_spec(env: VecEnv, cfg: LearnerCfg) -> EnvSpec:
    """Return the sizes that an environment dictates.

    Of the environment it uses, where present: `action_choices` (choices of each component of discrete actions),
    `reward_groups` (names of the groups of rewards), `observation_terms` (parts of groups, as `ObservationLayout` takes
    them), and of a team `agents`, `roles` and `role_sizes`. Raises UserError for an unknown observation group, an
    encoder that does not fit its input, or several critics without groups of rewards.
    """
    obs, terms = env.get_observations(), dict(getattr(env, "observation_terms", None) or {})
    actor = make_layout(obs, cfg.actor_groups, "actor_groups", terms)
    critic = make_layout(obs, cfg.critic_groups, "critic_groups", terms)
    check_images(actor, cfg.actor.conv, "actor.conv", "actor_groups")
    check_images(critic, cfg.critic.conv, "critic.conv", "critic_groups")
    return EnvSpec(
        actor=actor.size,
        critic=critic.size,
        action=env.num_actions,
        actor_shapes=actor.shapes,
        critic_shapes=critic.shapes,
        terms={name: terms[name] for name in (*cfg.actor.conv.groups, *cfg.critic.conv.groups) if name in terms},
        choices=tuple(getattr(env, "action_choices", None) or ()),
        num_values=cfg.num_values(tuple(getattr(env, "reward_groups", None) or ())),
        agents=tuple(getattr(env, "agents", ())),
        roles=tuple(getattr(env, "roles", ())),
        role_sizes=dict(getattr(env, "role_sizes", {})),
    )


def env_mirrors(env: VecEnv, cfg: LearnerCfg) -> Mirrors | None:
    """Return the mirrors of actor's and critic's observation and of actions; None if none is needed or known.

    The environment's `mirror` has those of observation groups by name, and of "action". Raises UserError for a group
    that is missing there.
    """
    known: Mirrors | None = getattr(env, "mirror", None) if cfg.symmetry != "none" else None
    if known is None:
        return None
    found = {"action": known["action"]}
    for name, groups in (("actor", cfg.actor_groups), ("critic", cfg.critic_groups)):
        for group in groups:
            if group not in known:
                raise UserError(
                    f"symmetry: '{cfg.symmetry}' needs a mirror of group '{group}', there is none; use 'none'"
                )
        found[name] = join_mirrors([known[group] for group in groups])
    return found


def checked_mirrors(cfg: LearnerCfg, dims: EnvSpec, mirrors: Mirrors | None) -> dict[str, Mirror] | None:
    """Return the environment's mirrors on the CPU after checking them; None without symmetry."""
    if cfg.symmetry == "none":
        return None
    if mirrors is None:
        raise UserError(f"symmetry: '{cfg.symmetry}' needs an environment with a mirror, this one has none; use 'none'")
    if dims.choices:
        raise UserError(f"symmetry: '{cfg.symmetry}' is for actions that are numbers, these are choices; use 'none'")
    sizes = {"actor": dims.actor, "critic": dims.critic, "action": dims.action}
    return {name: check_mirror(name, mirrors[name], size) for name, size in sizes.items()}


def mirrors_to_meta(mirrors: Mirrors | None) -> dict[str, Any] | None:
    """Return mirrors as lists for a checkpoint's description."""
    if mirrors is None:
        return None
    return {name: {"permutation": perm.tolist(), "sign": sign.tolist()} for name, (perm, sign) in mirrors.items()}


def mirrors_from_meta(meta: Mapping[str, Any]) -> Mirrors | None:
    """Return the mirrors that `mirrors_to_meta` wrote."""
    if meta.get("mirror") is None:
        return None
    return {
        name: (torch.tensor(part["permutation"], dtype=torch.int64), torch.tensor(part["sign"], dtype=torch.float32))
        for name, part in meta["mirror"].items()
    }

"""Networks from a configuration, and the policy of a finished run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from robot_rl.config import LearnerCfg, from_dict
from robot_rl.errors import UserError
from robot_rl.learn.amp import make_amp
from robot_rl.learn.checkpoint import check_shapes, good_checkpoint, load_checkpoint
from robot_rl.learn.conv import check_images
from robot_rl.learn.description import need
from robot_rl.learn.extras import Extra
from robot_rl.learn.layout import make_layout
from robot_rl.learn.networks import Actor, Critic
from robot_rl.learn.ranks import ALONE, Ranks
from robot_rl.learn.rnd import make_rnd
from robot_rl.learn.storage import Dims
from robot_rl.learn.symmetry import AugmentSymmetry, Mirror, check_mirror

Mirrors = Mapping[str, Mirror]
"""Mirrors by "actor", "critic" and "action"."""


def make_networks(
    cfg: LearnerCfg, dims: Dims, mirrors: Mirrors | None, generator: torch.Generator | None = None
) -> tuple[Actor, Critic]:
    """Build actor and critic on the CPU.

    Args:
        cfg: the learner's configuration.
        dims: sizes of observations and actions.
        mirrors: the environment's symmetry; needed where cfg.symmetry is "network".
        generator: source of the weights.

    Raises:
        UserError: a symmetric network is asked for and the environment has no mirror.
    """
    checked = checked_mirrors(cfg, dims, mirrors)
    pair, single = None, None
    if cfg.symmetry == "network" and checked is not None:
        pair, single = (checked["actor"], checked["action"]), checked["critic"]
    with _of("actor"):
        actor = Actor(
            dims.actor_layout,
            dims.action,
            cfg.actor,
            normalize=cfg.normalize_obs,
            mirror=pair,
            choices=tuple(dims.choices),
            generator=generator,
        )
    with _of("critic"):
        critic = Critic(
            dims.critic_layout,
            cfg.critic,
            num_values=dims.num_values,
            normalize=cfg.normalize_obs,
            normalize_values=cfg.normalize_values,
            mirror=single,
            generator=generator,
        )
    return actor, critic


@contextlib.contextmanager
def _of(network: str) -> Iterator[None]:
    """Name the network in what is refused inside: its parts know their own settings only."""
    try:
        yield
    except UserError as error:
        line = str(error)
        raise UserError(f"{network}.{line}" if line.startswith(("hidden", "memory.")) else line) from error


def make_dims(env: VecEnv, cfg: LearnerCfg) -> Dims:
    """Return the sizes that an environment dictates.

    Args:
        env: the environment. Used where there: `action_choices` (choices of each component of discrete actions),
            `reward_groups` (names of the groups that rewards come in) and `observation_terms` (parts of observation
            groups, as `robot_rl.learn.layout.Layout` takes them).
        cfg: the learner's configuration.

    Raises:
        UserError: an observation group that does not exist, an encoder that does not fit what it is to take, or several
            critics without groups of rewards.
    """
    obs, terms = env.get_observations(), dict(getattr(env, "observation_terms", None) or {})
    actor = make_layout(obs, cfg.actor_groups, "actor_groups", terms)
    critic = make_layout(obs, cfg.critic_groups, "critic_groups", terms)
    check_images(actor, cfg.actor.conv, "actor.conv", "actor_groups")
    check_images(critic, cfg.critic.conv, "critic.conv", "critic_groups")
    rewards = tuple(getattr(env, "reward_groups", None) or ())
    if cfg.several_critics and len(rewards) < 2:
        raise UserError(
            f"several_critics: the environment has {len(rewards)} groups of rewards, must be 2 or more "
            "(give the task's rewards a `group`)"
        )
    num_values = len(rewards) if cfg.several_critics else 1
    if cfg.reward_weights and not cfg.several_critics:
        weights = list(cfg.reward_weights)
        raise UserError(
            f"reward_weights: {weights} change nothing where there is one critic; add several_critics=true, or leave "
            "reward_weights empty"
        )
    if cfg.reward_weights and len(cfg.reward_weights) != num_values:
        raise UserError(f"reward_weights: {len(cfg.reward_weights)} of them, must be {num_values}")
    return Dims(
        actor=actor.size,
        critic=critic.size,
        action=env.num_actions,
        actor_shapes=actor.shapes,
        critic_shapes=critic.shapes,
        terms={name: terms[name] for name in (*cfg.actor.conv.groups, *cfg.critic.conv.groups) if name in terms},
        choices=tuple(getattr(env, "action_choices", None) or ()),
        num_values=num_values,
    )


def make_augmentation(
    cfg: LearnerCfg, dims: Dims, mirrors: Mirrors | None, device: torch.device | str
) -> AugmentSymmetry | None:
    """Return what adds mirrored samples where cfg.symmetry is "augment", else None."""
    checked = checked_mirrors(cfg, dims, mirrors)
    if cfg.symmetry != "augment" or checked is None:
        return None
    return AugmentSymmetry(**{name: (perm.to(device), sign.to(device)) for name, (perm, sign) in checked.items()})


def make_extras(
    cfg: LearnerCfg, env: VecEnv, dims: Dims, device: torch.device | str, *, seed: int, ranks: Ranks = ALONE
) -> tuple[Extra, ...]:
    """Return what a configuration adds to the algorithm, on its device.

    Args:
        cfg: the learner's configuration.
        env: the environment.
        dims: sizes of observations and actions.
        device: where the algorithm runs.
        seed: of weights and random numbers.
        ranks: the processes that train together.

    Raises:
        UserError: an observation group that does not exist, recorded motion or a policy of another run that does not
            fit.
    """
    # Both load the policy of another run, with what this module has for it.
    from robot_rl.learn.distill import make_teacher
    from robot_rl.learn.reference import make_reference

    extras: list[Extra] = []
    if cfg.amp.weight > 0:  # Before what adds rewards: the task's reward alone gives way to it.
        extras.append(make_amp(cfg.amp, env, device, seed, ranks))
    if cfg.rnd.weight > 0:
        extras.append(make_rnd(cfg.rnd, env, device, seed, ranks))
    if cfg.name == "distill":
        extras.append(make_teacher(cfg, env, dims, device, seed=seed, ranks=ranks))
    elif cfg.teacher.run:
        raise UserError(f"teacher.run: '{cfg.teacher.run}' is for learner=distill, this is learner={cfg.name}")
    if cfg.reference.run:
        extras.append(make_reference(cfg, env, dims, device))
    return tuple(extras)


def env_mirrors(env: VecEnv, cfg: LearnerCfg) -> Mirrors | None:
    """Return the environment's mirrors of what actor and critic see and of actions; None where none is needed or known.

    Args:
        env: the environment; its `mirror` has those of observation groups by name, and of "action".
        cfg: the learner's configuration.

    Raises:
        UserError: a group that an environment with a mirror has none for.
    """
    known: Mirrors | None = getattr(env, "mirror", None) if cfg.symmetry != "none" else None
    if known is None:
        return None
    found = {"action": known["action"]}
    for name, groups in (("actor", cfg.actor_groups), ("critic", cfg.critic_groups)):
        perm, sign, size = [], [], 0
        for group in groups:
            if group not in known:
                raise UserError(
                    f"symmetry: '{cfg.symmetry}' needs a mirror of group '{group}', there is none; use 'none'"
                )
            perm.append(known[group][0] + size)
            sign.append(known[group][1])
            size += len(known[group][0])
        found[name] = torch.cat(perm), torch.cat(sign)
    return found


def checked_mirrors(cfg: LearnerCfg, dims: Dims, mirrors: Mirrors | None) -> dict[str, Mirror] | None:
    """Return the environment's mirrors on the CPU after checking them; None where no symmetry is asked for."""
    if cfg.symmetry == "none":
        return None
    if mirrors is None:
        raise UserError(f"symmetry: '{cfg.symmetry}' needs an environment with a mirror, this one has none; use 'none'")
    if dims.choices:
        raise UserError(f"symmetry: '{cfg.symmetry}' is for actions that are numbers, these are choices; use 'none'")
    sizes = {"actor": dims.actor, "critic": dims.critic, "action": dims.action}
    return {name: check_mirror(name, mirrors[name], size) for name, size in sizes.items()}


class Policy:
    """A trained policy for evaluation: observations in, mean actions out. One with a memory has to be told of ends.

    Attributes:
        actor: the network.
        meta: the checkpoint's description.
        path: the checkpoint.
    """

    def __init__(self, actor: Actor, meta: dict[str, Any], path: Path) -> None:
        """Wrap an actor.

        Args:
            actor: the network, on the device of the observations.
            meta: the checkpoint's description.
            path: the checkpoint.
        """
        self.actor, self.meta, self.path = actor, meta, path
        self._state: Tensor | None = None

    @torch.no_grad()
    def __call__(self, obs: TensorDict) -> Tensor:
        """Return actions without noise (N, A) at observations of N worlds, and go one step on in what is remembered."""
        layout, worlds = self.actor.layout, obs.batch_size[0]
        device = obs[layout.spans[0].group].device
        if self.actor.memory is not None and (self._state is None or self._state.shape[0] != worlds):
            self._state = torch.zeros(worlds, self.actor.state_size, device=device)
        return self.actor.mean(layout.gather(obs, torch.empty(worlds, layout.size, device=device)), self._state)

    def reset(self, done: Tensor | None = None) -> None:
        """Forget: the episodes of these worlds (N,) bool ended, or of all where None."""
        if done is None:
            self._state = None
        elif self._state is not None:
            self._state.masked_fill_(done.to(self._state.device, torch.bool)[:, None], 0.0)


def make_policy(run_dir: Path, checkpoint: Path | None = None, device: torch.device | str = "cpu") -> Policy:
    """Load the policy of a run.

    Args:
        run_dir: the run's directory.
        checkpoint: one of its checkpoints; the newest that is whole where None.
        device: where it will run.

    Raises:
        UserError: there is no checkpoint, or it is damaged.
    """
    path = Path(checkpoint) if checkpoint is not None else good_checkpoint(run_dir)
    tensors, meta = load_checkpoint(path)
    need(path, meta, "learner", "dims")
    cfg = from_dict(LearnerCfg, meta["learner"])
    try:
        actor, _ = make_networks(cfg, Dims(**meta["dims"]), mirrors_from_meta(meta))
    except (ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"checkpoint {path}: no network is as its description says ({error})") from error
    state = {name.removeprefix("actor."): t for name, t in tensors.items() if name.startswith("actor.")}
    check_shapes(path, state, actor.state_dict())
    actor.load_state_dict(state)
    return Policy(actor.to(device).eval(), meta, path)


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

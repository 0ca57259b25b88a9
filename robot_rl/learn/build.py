"""Networks from a configuration, and the policy of a finished run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from robot_rl.config import LearnerCfg, from_dict
from robot_rl.errors import UserError, suggest
from robot_rl.learn.checkpoint import check_shapes, latest_checkpoint, load_checkpoint
from robot_rl.learn.networks import Actor, Critic
from robot_rl.learn.storage import Dims
from robot_rl.learn.symmetry import AugmentSymmetry, Mirror, check_mirror

Mirrors = Mapping[str, Mirror]
"""Mirrors by "actor", "critic" and "action"."""


def group_dim(obs: TensorDict, groups: Sequence[str], field: str) -> int:
    """Return the components of some observation groups together.

    Args:
        obs: observations, each group (N, D).
        groups: names of groups.
        field: the setting that names them, for messages.

    Raises:
        UserError: a group that does not exist, or one that is no vector a world.
    """
    total = 0
    for group in groups:
        names = list(map(str, obs.keys()))
        if group not in names:
            raise UserError(f"{field}: the environment has no group '{group}', {suggest(group, names)}")
        if obs[group].ndim != 2:
            raise UserError(f"{field}: group '{group}' has shape {tuple(obs[group].shape)}, must be (num_envs, size)")
        total += obs[group].shape[1]
    return total


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
    actor = Actor(dims.actor, dims.action, cfg.actor, normalize=cfg.normalize_obs, mirror=pair, generator=generator)
    critic = Critic(dims.critic, cfg.critic, normalize=cfg.normalize_obs, mirror=single, generator=generator)
    return actor, critic


def make_augmentation(
    cfg: LearnerCfg, dims: Dims, mirrors: Mirrors | None, device: torch.device | str
) -> AugmentSymmetry | None:
    """Return what adds mirrored samples where cfg.symmetry is "augment", else None."""
    checked = checked_mirrors(cfg, dims, mirrors)
    if cfg.symmetry != "augment" or checked is None:
        return None
    return AugmentSymmetry(**{name: (perm.to(device), sign.to(device)) for name, (perm, sign) in checked.items()})


def checked_mirrors(cfg: LearnerCfg, dims: Dims, mirrors: Mirrors | None) -> dict[str, Mirror] | None:
    """Return the environment's mirrors on the CPU after checking them; None where no symmetry is asked for."""
    if cfg.symmetry == "none":
        return None
    if mirrors is None:
        raise UserError(f"symmetry: '{cfg.symmetry}' needs an environment with a mirror, this one has none; use 'none'")
    sizes = {"actor": dims.actor, "critic": dims.critic, "action": dims.action}
    return {name: check_mirror(name, mirrors[name], size) for name, size in sizes.items()}


class Policy:
    """A trained policy for evaluation: observations in, mean actions out.

    Attributes:
        actor: the network.
        meta: the checkpoint's description.
        path: the checkpoint.
    """

    def __init__(self, actor: Actor, groups: Sequence[str], meta: dict[str, Any], path: Path) -> None:
        """Wrap an actor.

        Args:
            actor: the network, on the device of the observations.
            groups: observation groups that it sees.
            meta: the checkpoint's description.
            path: the checkpoint.
        """
        self.actor, self.groups, self.meta, self.path = actor, tuple(groups), meta, path

    @torch.no_grad()
    def __call__(self, obs: TensorDict) -> Tensor:
        """Return mean actions (N, A) at observations of N worlds."""
        return self.actor.mean(torch.cat([obs[group] for group in self.groups], dim=-1))


def make_policy(run_dir: Path, checkpoint: Path | None = None, device: torch.device | str = "cpu") -> Policy:
    """Load the policy of a run.

    Args:
        run_dir: the run's directory.
        checkpoint: one of its checkpoints; the newest where None.
        device: where it will run.

    Raises:
        UserError: there is no checkpoint, or it is damaged.
    """
    path = Path(checkpoint) if checkpoint is not None else latest_checkpoint(run_dir)
    tensors, meta = load_checkpoint(path)
    cfg = from_dict(LearnerCfg, meta["learner"])
    actor, _ = make_networks(cfg, Dims(**meta["dims"]), mirrors_from_meta(meta))
    state = {name.removeprefix("actor."): t for name, t in tensors.items() if name.startswith("actor.")}
    check_shapes(path, state, actor.state_dict())
    actor.load_state_dict(state)
    return Policy(actor.to(device).eval(), cfg.actor_groups, meta, path)


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

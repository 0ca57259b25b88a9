"""Left-right symmetry by mirrored samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from robot_rl.learn.algorithm import Context
from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.learn.networks.actor_critic import Actor, Critic
from robot_rl.learn.networks.symmetry import Mirror, reflect
from robot_rl.learn.ranks import SINGLE_PROCESS, ProcessGroup
from robot_rl.learn.rollout import Batch, Rollout


class AugmentSymmetry:
    """Adds the mirror image of every sample to the batch.

    An image counts as drawn by the policy at the mirrored state: it has its own mean, log-probability and value there,
    so its probability ratio starts at 1 like any other; its advantage and return are those of the original. A policy
    that is not symmetric would seldom have drawn some images; each therefore has weight min(1, pi(M a | M s) / pi(a |
    s)), the truncated importance weight (Espeholt et al. 2018), without which the ratios of such images diverge. Weight
    times ratio is then pi_new(M a | M s) / pi(a | s), the ratio of rsl_rl and of Mittal et al. (2024), if the image was
    the less probable one; otherwise the ratio begins at 1 here and elsewhere there.
    """

    def __init__(self, actor: Mirror, critic: Mirror, action: Mirror) -> None:
        self.actor, self.critic, self.action = actor, critic, action

    def extend(
        self,
        batch: Batch,
        rollout: Rollout,
        actor: Actor,
        critic: Critic,
        *,
        more: Mapping[str, Tensor] | None = None,
        ranks: ProcessGroup = SINGLE_PROCESS,
    ) -> Batch:
        """Return the batch (B) of a rollout followed by its mirror image.

        `more` are those of `Batch.more` that differ in the image, and `ranks` the processes with weights of mean 1
        together.
        """
        actor_in = actor.encode(reflect(rollout.actor_obs.flatten(0, 1), self.actor))
        critic_in = critic.encode(reflect(rollout.critic_obs[:-1].flatten(0, 1), self.critic))
        action, out = reflect(batch.action, self.action), actor.outputs(actor_in)
        log_prob = actor.distribution.log_prob(action, actor.distribution.params(out))
        own = torch.ones_like(log_prob) if batch.weight is None else batch.weight
        weight = torch.cat((own, own * (log_prob - batch.log_prob).clamp(max=0.0).exp()))
        image = replace(
            batch,
            actor_in=actor_in,
            critic_in=critic_in,
            action=action,
            out=out,
            log_prob=log_prob,
            value=critic.values(critic_in),
            weight=None,
            more=batch.more | dict(more or {}),
        )
        return replace(replace(batch, weight=None).join(image), weight=weight / ranks.mean_(weight.mean()))


def make_augmentation(cfg: PPOLearnerCfg, context: Context) -> AugmentSymmetry | None:
    """Return the object that adds mirrored samples, for symmetry=augment; None for any other."""
    if cfg.symmetry != "augment" or context.mirrors is None:
        return None
    moved = {name: (p.to(context.device), sign.to(context.device)) for name, (p, sign) in context.mirrors.items()}
    return AugmentSymmetry(**moved)

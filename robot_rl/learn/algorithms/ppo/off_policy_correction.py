"""The policy that an update is compared with: the one that acted, or a newer one if rollouts are of an older policy.

Three policies take part: the one that acted (b), the one before the update (p) and the one that learns (pi). Plain PPO
clips pi / b, so that if p has moved away from b, samples are clipped before anything is learned, and the trust
region lies around a policy that is gone. The decoupled objective (Hilton et al. 2021; AReaL, arXiv 2505.24298, equation
6) clips pi / p, and weights each sample by p / b.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from robot_rl.learn.algorithms.ppo.config import CorrectionCfg
from robot_rl.learn.networks.actor_critic import Actor
from robot_rl.learn.ranks import SINGLE_PROCESS, ProcessGroup
from robot_rl.learn.rollout import Rollout, mean_over

MAX_LOG_WEIGHT = 20.0
"""Bound of the logarithm of p / b: squares of weights, and their sums over a batch, stay finite in float32."""


@dataclass(kw_only=True, slots=True)
class ProximalPolicy:
    """The policy that ratios are taken to, and clipped around, at the samples (B) of a rollout.

    Attributes:
        actor_in: (B, F) inputs of its network.
        out: (B, P) outputs of its network.
        log_prob: (B,) log-probability of the actions that were taken.
        frozen: its `Distribution.snapshot`.
        importance: (B,) weight of the samples in the policy's loss; None: all alike.
        trace: (T, N) min(1, p / b) for V-trace; None: plain advantages.
        is_older: whether an older policy acted, for which this one, or its samples' weights, account.
        statistics: () each by name.
    """

    actor_in: Tensor
    out: Tensor
    log_prob: Tensor
    frozen: Tensor | None
    importance: Tensor | None = None
    trace: Tensor | None = None
    is_older: bool = False
    statistics: dict[str, Tensor] = field(default_factory=dict)


@torch.no_grad()
def recorded_policy(actor: Actor, rollout: Rollout) -> ProximalPolicy:
    """Return the policy that acted, as the rollout recorded it."""
    flat = rollout.flat
    return ProximalPolicy(
        actor_in=actor.encode(flat(rollout.actor_obs)),
        out=flat(rollout.out),
        log_prob=flat(rollout.log_prob),
        frozen=rollout.frozen,
    )


@torch.no_grad()
def corrected_policy(
    actor: Actor, cfg: CorrectionCfg, rollout: Rollout, *, clip: float, ranks: ProcessGroup = SINGLE_PROCESS
) -> ProximalPolicy:
    """Return the policy that the settings name for a rollout of an older policy.

    Args:
        actor: The policy before the update.
        cfg: How samples are weighted.
        rollout: The rollout, of which `log_prob` is the one of the policy that acted.
        clip: PPO's, for the statistics.
        ranks: The processes that train together: the gates are open, or not, in all of them.
    """
    policy, distribution, flat = recorded_policy(actor, rollout), actor.distribution, rollout.flat
    found = rollout.sequences(None)
    state, start = found.get("actor_state"), found.get("start")
    out = actor.outputs(policy.actor_in, None if state is None or start is None else (state, start))
    log_prob = distribution.log_prob(flat(rollout.action), distribution.params(out))
    log_ratio = (log_prob - policy.log_prob).clamp(-MAX_LOG_WEIGHT, MAX_LOG_WEIGHT)
    ratio = log_ratio.exp()
    valid = flat(rollout.valid).to(ratio.dtype) if rollout.has_invalid else torch.ones_like(ratio)
    share = valid / valid.mean().clamp(min=1e-8)
    # E_b[p / b - 1 - log(p / b)] is KL(b || p), and no sample of it is negative (Schulman 2020).
    terms = (ratio, ratio.square(), ratio - 1.0 - log_ratio)
    first, second, divergence = ranks.mean_(torch.stack([mean_over(term, share) for term in terms])).unbind()
    effective = first.square() / second.clamp(min=1e-30)
    is_sound = (effective >= cfg.min_effective) & (divergence <= cfg.max_divergence)
    is_near = log_ratio.abs() <= torch.full_like(ratio[:1], cfg.weight_max).log()
    importance = ratio.clamp(max=cfg.weight_max)
    importance = torch.where(is_sound | is_near, importance, 0.0)
    policy.is_older = True
    policy.statistics = {
        "staleness/effective": effective,
        "staleness/divergence": divergence,
        "staleness/gated": (~is_sound).to(ratio.dtype),
        "staleness/left_out": mean_over((importance == 0.0).to(ratio.dtype), share),
        "staleness/plain_ratio": mean_over((ratio - 1.0).abs(), share),
        "staleness/plain_clipped": mean_over(((ratio - 1.0).abs() > clip).to(ratio.dtype), share),
    }
    if cfg.objective == "decoupled":
        policy.out, policy.log_prob, policy.importance = out, log_prob, importance
        policy.frozen = distribution.snapshot()
    if cfg.advantages == "vtrace":
        policy.trace = rollout.unflat(ratio.clamp(max=1.0))
    return policy

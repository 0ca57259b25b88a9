"""Settings of proximal policy optimization."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from robot_rl.errors import UserError
from robot_rl.learn.auxiliaries.config import AmpCfg, ReferenceCfg, RndCfg
from robot_rl.settings import LearnerCfg
from robot_rl.settings.checks import check_range
from robot_rl.settings.schema import check_fields, setting

SCHEDULES = ("adaptive", "fixed", "linear")
BOOTSTRAPS = ("final", "state")
OBJECTIVES = ("decoupled", "none")
ADVANTAGES = ("gae", "vtrace")


@dataclass(kw_only=True, slots=True)
class CorrectionCfg:
    """How PPO learns from rollouts of an older policy (`robot_rl.learn.algorithms.ppo.off_policy_correction`).

    Attributes:
        objective: "decoupled": the ratio is taken to the policy before the update, and clipped there; samples are
            weighted by how much more probable it makes them than the policy that acted. "none": the plain ratio, to the
            policy that acted.
        weight_max: bound of those weights.
        advantages: "gae", as without staleness, or "vtrace" (targets for the policy before the update).
        min_effective: least effective sample size of the weights, as a share.
        max_divergence: greatest divergence of the policy before the update from the one that acted [nat]. Beyond these
            two, samples with weights outside [1 / weight_max, weight_max] are omitted from the policy's loss.
    """

    objective: str = setting("decoupled", choices=OBJECTIVES)
    weight_max: float = setting(2.0, least=1.0, most=1000.0)
    advantages: str = setting("gae", choices=ADVANTAGES)
    min_effective: float = setting(0.5, least=0.0, most=1.0)
    max_divergence: float = setting(0.2, above=0.0, most=math.inf)

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_fields(self)


@dataclass(kw_only=True, slots=True)
class PPOCfg:
    """Proximal policy optimization.

    Attributes:
        gamma: discount a step.
        lam: decay of the generalized advantage estimate.
        clip: the ratio is clipped to [1 - clip, 1 + clip].
        epochs: passes over a rollout.
        minibatches: parts of a rollout, drawn again in each epoch.
        learning_rate: Adam's step size at the start.
        schedule: "adaptive" (by the policy's divergence), "fixed", or "linear" to zero at the last iteration.
        desired_kl: target divergence of the adaptive schedule [nat].
        min_learning_rate: least step size of the adaptive schedule.
        max_learning_rate: greatest step size of the adaptive schedule.
        entropy_coef: weight of the entropy bonus.
        value_coef: weight of the value loss.
        max_grad_norm: gradient norm that each network is clipped to.
        clip_value_loss: keep the new value within `clip` of the old one (Schulman's variant).
        bootstrap: value added at a time-out: "final" is V(final observation), "state" is V(s_t) as in rsl_rl.
        cuda_graph: on a GPU record the step over a minibatch as a CUDA graph, and replay it.
        correction: how it learns from an older policy's rollouts, such as those of `overlap`.
    """

    gamma: float = setting(0.99, least=0.0, most=1.0)
    lam: float = setting(0.95, least=0.0, most=1.0)
    clip: float = setting(0.2, above=0.0, most=10.0)
    epochs: int = setting(5, least=1, most=1000)
    minibatches: int = setting(4, least=1, most=65536)
    learning_rate: float = setting(1e-3, above=0.0, most=1.0)
    schedule: str = setting("adaptive", choices=SCHEDULES)
    desired_kl: float = setting(0.01, above=0.0, most=10.0)
    min_learning_rate: float = setting(1e-5, above=0.0, most=1.0)
    max_learning_rate: float = 1e-2
    entropy_coef: float = setting(0.005, least=0.0, most=10.0)
    value_coef: float = setting(1.0, least=0.0, most=1000.0)
    max_grad_norm: float = setting(1.0, above=0.0, most=math.inf)
    clip_value_loss: bool = True
    bootstrap: str = setting("final", choices=BOOTSTRAPS)
    cuda_graph: bool = True
    correction: CorrectionCfg = field(default_factory=CorrectionCfg)

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_fields(self)
        check_range("max_learning_rate", self.max_learning_rate, self.min_learning_rate, 1.0)
        if self.schedule == "adaptive":
            check_range("learning_rate", self.learning_rate, self.min_learning_rate, self.max_learning_rate)


@dataclass(kw_only=True, slots=True)
class PPOLearnerCfg(LearnerCfg):
    """Proximal policy optimization: `learner=ppo`.

    Attributes:
        ppo: the algorithm.
        normalize_values: the critic works in deviations of the returns from their running mean, so that neither its
            step size nor `ppo.clip_value_loss` depends on the scale of the rewards.
        several_critics: one critic for each of the task's groups of rewards, with separately normalized advantages.
        reward_weights: weight of each group's advantages, in the environment's order; empty: all 1.
        rnd: random network distillation, a reward for new states.
        amp: an adversarial motion prior, a reward for moving as recorded motion does.
        reference: a penalty for leaving a frozen policy.
        auxiliaries: further objectives, each a "module:name" that takes the `Context` and returns a
            `robot_rl.learn.auxiliaries.auxiliary.Auxiliary`.
    """

    implementation: ClassVar[str] = "robot_rl.learn.algorithms.ppo.ppo"
    presets: ClassVar[tuple[str, ...]] = ("ppo",)
    supports_stale_rollouts: ClassVar[bool] = True
    smoke_overrides: ClassVar[Mapping[str, Any]] = {"num_steps": 4, "ppo.epochs": 1, "ppo.minibatches": 2}
    supports_precision: ClassVar[bool] = True

    name: str = "ppo"
    ppo: PPOCfg = field(default_factory=PPOCfg)
    normalize_values: bool = False
    several_critics: bool = False
    reward_weights: tuple[float, ...] = ()
    rnd: RndCfg = field(default_factory=RndCfg)
    amp: AmpCfg = field(default_factory=AmpCfg)
    reference: ReferenceCfg = field(default_factory=ReferenceCfg)
    auxiliaries: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the ranges."""
        LearnerCfg.__post_init__(self)  # Dataclasses with slots are made twice, which a bare super() does not survive.
        for weight in self.reward_weights:
            check_range("reward_weights", weight, 0.0, 1e6)
        if self.reward_weights and not any(self.reward_weights):
            raise UserError("reward_weights: all are 0, one must be larger")

    def num_values(self, reward_groups: tuple[str, ...]) -> int:
        """Return the number of values of a state: one, or with several critics one for each group of rewards."""
        weights = list(self.reward_weights)
        if not self.several_critics:
            if weights:
                raise UserError(
                    f"reward_weights: {weights} change nothing with one critic; add several_critics=true, or "
                    "leave reward_weights empty"
                )
            return 1
        if len(reward_groups) < 2:
            raise UserError(
                f"several_critics: the environment has {len(reward_groups)} groups of rewards, must be 2 or more "
                "(give the task's rewards a `group`)"
            )
        if weights and len(weights) != len(reward_groups):
            raise UserError(f"reward_weights: {len(weights)} of them, must be {len(reward_groups)}")
        return len(reward_groups)

"""Settings of learning through a learned world."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from robot_rl.errors import UserError
from robot_rl.settings import LearnerCfg, NetworkCfg
from robot_rl.settings.checks import check_range


@dataclass(kw_only=True, slots=True)
class WorldModelCfg:
    """Learning through a learned world.

    Attributes:
        gamma: discount a step.
        lam: weight of longer sums in the critic's targets.
        horizon: the most steps that are imagined on end.
        least_horizon: the fewest, for any gap.
        max_gap: model gap up to which steps are imagined: the difference between imagined and real sums of rewards,
            over the real ones.
        rows: states that imagination begins at, for one step of the policy.
        policy_steps: steps of the policy in one iteration.
        critic_steps: steps of the critic for each of the policy.
        model_steps: steps of the model in one iteration.
        model_horizon: steps over which the model's loss goes; 1: single ones only.
        batch: transitions of a step of the model.
        hidden: hidden layers of the model.
        learning_rate: step size of the policy.
        critic_learning_rate: step size of the critic.
        model_learning_rate: step size of the model.
        final_share: share of the step sizes that is left at the end of the training; they fall linearly.
        max_grad_norm: gradient norm that policy, critic and model are each clipped to.
        tau: share of the critic that its target takes over in each step.
        entropy_coef: weight of the entropy bonus.
        replay: transitions that are kept, of all worlds together.
        warm_up: transitions before the policy is learned.
    """

    gamma: float = 0.98
    lam: float = 0.95
    horizon: int = 48
    least_horizon: int = 8
    max_gap: float = 0.5
    rows: int = 48
    policy_steps: int = 8
    critic_steps: int = 1
    model_steps: int = 24
    model_horizon: int = 1
    batch: int = 2048
    hidden: tuple[int, ...] = (256, 256)
    learning_rate: float = 2e-3
    critic_learning_rate: float = 1e-3
    model_learning_rate: float = 2e-3
    final_share: float = 0.1
    max_grad_norm: float = 1.0
    tau: float = 0.02
    entropy_coef: float = 1e-3
    replay: int = 100_000
    warm_up: int = 8_000

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("gamma", "lam"):
            check_range(name, getattr(self, name), 0.0, 1.0)
        check_range("horizon", self.horizon, 1, 1000)
        check_range("least_horizon", self.least_horizon, 1, 1000)
        check_range("model_horizon", self.model_horizon, 1, 1000)
        check_range("max_gap", self.max_gap, 0.0, math.inf)
        for name in ("rows", "policy_steps", "critic_steps", "model_steps"):
            check_range(name, getattr(self, name), 1, 65536)
        check_range("batch", self.batch, 2, 2**24)
        self.hidden = tuple(self.hidden)
        for width in self.hidden:
            check_range("hidden", width, 1, 65536)
        if not self.hidden:
            raise UserError("hidden", self.hidden, "must name at least one layer", "such as [256, 256]")
        for name in ("learning_rate", "critic_learning_rate", "model_learning_rate"):
            check_range(name, getattr(self, name), 0.0, 1.0, open_low=True)
        check_range("max_grad_norm", self.max_grad_norm, 0.0, math.inf, open_low=True)
        check_range("final_share", self.final_share, 0.0, 1.0)
        check_range("tau", self.tau, 0.0, 1.0, open_low=True)
        check_range("entropy_coef", self.entropy_coef, 0.0, 10.0)
        check_range("replay", self.replay, 1, 2**31)
        check_range("warm_up", self.warm_up, 0, 2**31)


@dataclass(kw_only=True, slots=True)
class WorldModelLearnerCfg(LearnerCfg):
    """Learning through a learned world: `learner=world_model`.

    Attributes:
        world_model: the algorithm.
    """

    implementation: ClassVar[str] = "robot_rl.learn.algorithms.world_model.world_model"
    presets: ClassVar[tuple[str, ...]] = ()
    needs_world_obs: ClassVar[bool] = True
    supports_stale_rollouts: ClassVar[bool] = True
    smoke_overrides: ClassVar[Mapping[str, Any]] = {
        "num_steps": 4,
        "world_model.replay": 4096,
        "world_model.policy_steps": 1,
    }

    name: str = "world_model"
    num_steps: int = 8
    max_iterations: int = 400
    overlap: bool = True
    actor: NetworkCfg = field(default_factory=lambda: NetworkCfg(hidden=(128, 128), init_std=0.3))
    critic: NetworkCfg = field(default_factory=lambda: NetworkCfg(hidden=(128, 128), output_gain=1.0))
    world_model: WorldModelCfg = field(default_factory=WorldModelCfg)

    def __post_init__(self) -> None:
        """Check the ranges, and refuse settings without a counterpart in this learner."""
        LearnerCfg.__post_init__(self)
        if self.symmetry == "augment":
            raise UserError("symmetry=augment: learner=world_model mirrors no samples; use network or none")
        for name, cfg in (("actor", self.actor), ("critic", self.critic)):
            if cfg.memory.kind != "none":
                raise UserError(
                    f"{name}.memory.kind={cfg.memory.kind}: learner=world_model has no memory; use learner=ppo"
                )
            if cfg.conv.groups:
                raise UserError(f"{name}.conv.groups: learner=world_model has no encoders; use learner=ppo")

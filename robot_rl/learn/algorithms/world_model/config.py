"""Settings of learning through a learned world."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from robot_rl.errors import UserError
from robot_rl.settings import LearnerCfg, NetworkCfg
from robot_rl.settings.schema import check_fields, setting


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

    gamma: float = setting(0.98, least=0.0, most=1.0)
    lam: float = setting(0.95, least=0.0, most=1.0)
    horizon: int = setting(48, least=1, most=1000)
    least_horizon: int = setting(8, least=1, most=1000)
    max_gap: float = setting(0.5, least=0.0, most=math.inf)
    rows: int = setting(48, least=1, most=65536)
    policy_steps: int = setting(8, least=1, most=65536)
    critic_steps: int = setting(1, least=1, most=65536)
    model_steps: int = setting(24, least=1, most=65536)
    model_horizon: int = setting(1, least=1, most=1000)
    batch: int = setting(2048, least=2, most=2**24)
    hidden: tuple[int, ...] = setting((256, 256), least=1, most=65536, at_least_one="layer")
    learning_rate: float = setting(2e-3, above=0.0, most=1.0)
    critic_learning_rate: float = setting(1e-3, above=0.0, most=1.0)
    model_learning_rate: float = setting(2e-3, above=0.0, most=1.0)
    final_share: float = setting(0.1, least=0.0, most=1.0)
    max_grad_norm: float = setting(1.0, above=0.0, most=math.inf)
    tau: float = setting(0.02, above=0.0, most=1.0)
    entropy_coef: float = setting(1e-3, least=0.0, most=10.0)
    replay: int = setting(100_000, least=1, most=2**31)
    warm_up: int = setting(8_000, least=0, most=2**31)

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_fields(self)


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
                    f"{name}.memory.kind", cfg.memory.kind, "learner=world_model lacks memory", "use learner=ppo"
                )
            if cfg.conv.groups:
                raise UserError(f"{name}.conv.groups: learner=world_model lacks encoders; use learner=ppo")

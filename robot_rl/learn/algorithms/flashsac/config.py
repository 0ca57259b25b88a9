"""Settings of FlashSAC."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from robot_rl.errors import UserError
from robot_rl.settings import LearnerCfg
from robot_rl.settings.schema import check_fields, setting


@dataclass(kw_only=True, slots=True)
class FlashSACCfg:
    """FlashSAC (arXiv 2604.04539); the defaults are the paper's as far as a CPU bears them.

    Attributes:
        gamma: discount a step.
        horizon: steps that rewards are summed over before the critics' value is added (n-step returns).
        updates: gradient steps of the critics for each control step of all worlds; below 1, one in so many steps.
        policy_period: gradient steps of the critics for each one of the policy.
        batch: transitions of a gradient step.
        learning_rate: Adam's step size at the start.
        final_learning_rate: the same at the end; it falls linearly.
        max_grad_norm: gradient norm that policy, critics and temperature are each clipped to.
        tau: share of the critics that their targets take over in each step.
        replay: transitions that are kept, of all worlds together.
        warm_up: transitions of random actions before anything is learned.
        policy_width: units of the policy's residual blocks.
        policy_blocks: residual blocks of the policy.
        critic_width: units of the critics' residual blocks.
        critic_blocks: residual blocks of each critic.
        expansion: inner units of a residual block, in widths.
        bins: values of a critic's distribution of returns.
        value_bound: the bins span [-value_bound, value_bound], in units of normalized returns.
        target_std: standard deviation of actions in (-1, 1); the temperature steers to its entropy.
        temperature: weight of the entropy at the start.
        max_action: largest magnitude of the environment's actions; their ranges are the joints' limits within it.
        noise_repeat: most steps for which exploration noise is held; held for k steps with a probability of 1 / k^2.
    """

    gamma: float = setting(0.97, least=0.0, most=1.0)
    horizon: int = setting(1, least=1, most=1000)
    updates: float = setting(1.0, above=0.0, most=1000.0)
    policy_period: int = setting(2, least=1, most=1000)
    batch: int = setting(1024, least=2, most=2**24)
    learning_rate: float = setting(3e-4, above=0.0, most=1.0)
    final_learning_rate: float = setting(1.5e-4, least=0.0, most=1.0)
    max_grad_norm: float = setting(10.0, above=0.0, most=math.inf)
    tau: float = setting(0.01, above=0.0, most=1.0)
    replay: int = setting(500_000, least=1, most=2**31)
    warm_up: int = setting(10_000, least=0, most=2**31)
    policy_width: int = setting(128, least=1, most=65536)
    policy_blocks: int = setting(1, least=0, most=100)
    critic_width: int = setting(128, least=1, most=65536)
    critic_blocks: int = setting(1, least=0, most=100)
    expansion: int = setting(2, least=1, most=64)
    bins: int = setting(101, least=2, most=65536)
    value_bound: float = setting(5.0, above=0.0, most=1e6)
    target_std: float = setting(0.15, above=0.0, most=10.0)
    temperature: float = setting(0.01, above=0.0, most=1e6)
    max_action: float = setting(math.inf, above=0.0, most=math.inf)
    noise_repeat: int = setting(16, least=1, most=100_000)

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_fields(self)


@dataclass(kw_only=True, slots=True)
class FlashSACLearnerCfg(LearnerCfg):
    """FlashSAC: `learner=flashsac`. Of `actor` and `critic` nothing is read: `flashsac` has their sizes.

    Attributes:
        flashsac: the algorithm.
    """

    implementation: ClassVar[str] = "robot_rl.learn.algorithms.flashsac.flashsac"
    presets: ClassVar[tuple[str, ...]] = ()
    smoke_overrides: ClassVar[Mapping[str, Any]] = {"num_steps": 4, "flashsac.warm_up": 0, "flashsac.replay": 4096}
    supports_stale_rollouts: ClassVar[bool] = True

    name: str = "flashsac"
    num_steps: int = 8
    max_iterations: int = 3000
    save_interval: int = 1000
    save_interval_s: float = 600.0
    flashsac: FlashSACCfg = field(default_factory=FlashSACCfg)

    def __post_init__(self) -> None:
        """Check the ranges, and refuse settings without a counterpart in this learner."""
        LearnerCfg.__post_init__(self)
        if self.symmetry == "network":
            raise UserError("symmetry=network: learner=flashsac lacks symmetric networks; use augment or none")
        for name, cfg in (("actor", self.actor), ("critic", self.critic)):
            if cfg.memory.kind != "none":
                raise UserError(
                    f"{name}.memory.kind", cfg.memory.kind, "learner=flashsac lacks memory", "use learner=ppo"
                )
            if cfg.conv.groups:
                raise UserError(f"{name}.conv.groups: learner=flashsac lacks encoders; use learner=ppo")
        if self.converter:
            raise UserError("converter", self.converter, "learner=flashsac takes none", "omit it")

    def acting(self, worlds: int) -> FlashSACLearnerCfg:
        """Return the settings without a replay memory, but for the least one."""
        return replace(self, flashsac=replace(self.flashsac, replay=(self.num_steps + 1) * worlds))

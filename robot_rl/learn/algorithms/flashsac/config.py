"""Settings of FlashSAC."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from robot_rl.errors import UserError
from robot_rl.settings import LearnerCfg
from robot_rl.settings.checks import check_range


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

    gamma: float = 0.97
    horizon: int = 1
    updates: float = 1.0
    policy_period: int = 2
    batch: int = 1024
    learning_rate: float = 3e-4
    final_learning_rate: float = 1.5e-4
    max_grad_norm: float = 10.0
    tau: float = 0.01
    replay: int = 500_000
    warm_up: int = 10_000
    policy_width: int = 128
    policy_blocks: int = 1
    critic_width: int = 128
    critic_blocks: int = 1
    expansion: int = 2
    bins: int = 101
    value_bound: float = 5.0
    target_std: float = 0.15
    temperature: float = 0.01
    max_action: float = math.inf
    noise_repeat: int = 16

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_range("gamma", self.gamma, 0.0, 1.0)
        check_range("horizon", self.horizon, 1, 1000)
        check_range("updates", self.updates, 0.0, 1000.0, open_low=True)
        check_range("policy_period", self.policy_period, 1, 1000)
        check_range("batch", self.batch, 2, 2**24)
        check_range("learning_rate", self.learning_rate, 0.0, 1.0, open_low=True)
        check_range("final_learning_rate", self.final_learning_rate, 0.0, 1.0)
        check_range("max_grad_norm", self.max_grad_norm, 0.0, math.inf, open_low=True)
        check_range("tau", self.tau, 0.0, 1.0, open_low=True)
        check_range("replay", self.replay, 1, 2**31)
        check_range("warm_up", self.warm_up, 0, 2**31)
        for name in ("policy_width", "critic_width"):
            check_range(name, getattr(self, name), 1, 65536)
        for name in ("policy_blocks", "critic_blocks"):
            check_range(name, getattr(self, name), 0, 100)
        check_range("expansion", self.expansion, 1, 64)
        check_range("bins", self.bins, 2, 65536)
        check_range("value_bound", self.value_bound, 0.0, 1e6, open_low=True)
        check_range("target_std", self.target_std, 0.0, 10.0, open_low=True)
        check_range("temperature", self.temperature, 0.0, 1e6, open_low=True)
        check_range("max_action", self.max_action, 0.0, math.inf, open_low=True)
        check_range("noise_repeat", self.noise_repeat, 1, 100_000)


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
    keep_checkpoints: int = 2
    flashsac: FlashSACCfg = field(default_factory=FlashSACCfg)

    def __post_init__(self) -> None:
        """Check the ranges, and refuse settings without a counterpart in this learner."""
        LearnerCfg.__post_init__(self)
        if self.symmetry == "network":
            raise UserError("symmetry=network: learner=flashsac has no symmetric networks; use augment or none")
        for name, cfg in (("actor", self.actor), ("critic", self.critic)):
            if cfg.memory.kind != "none":
                raise UserError(
                    f"{name}.memory.kind={cfg.memory.kind}: learner=flashsac has no memory; use learner=ppo"
                )
            if cfg.conv.groups:
                raise UserError(f"{name}.conv.groups: learner=flashsac has no encoders; use learner=ppo")
        if self.converter:
            raise UserError(f"converter={self.converter}: learner=flashsac takes none; leave it out")

    def acting(self, worlds: int) -> FlashSACLearnerCfg:
        """Return the settings without a replay memory, but for the least one."""
        return replace(self, flashsac=replace(self.flashsac, replay=(self.num_steps + 1) * worlds))

"""Settings of rsl_rl's runner: those of PPO; settings without a counterpart in rsl_rl are refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg


@dataclass(kw_only=True, slots=True)
class RslRlLearnerCfg(PPOLearnerCfg):
    """rsl_rl's runner on the same environment and networks: `learner=rsl_rl`."""

    implementation: ClassVar[str] = "robot_rl.learn.algorithms.rsl_rl.runner"
    supports_stale_rollouts: ClassVar[bool] = False
    supports_precision: ClassVar[bool] = False

    name: str = "rsl_rl"

"""Settings of rsl_rl's runner: those of PPO; settings without a counterpart in rsl_rl are refused."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, ClassVar

from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg


@dataclass(kw_only=True, slots=True)
class RslRlLearnerCfg(PPOLearnerCfg):
    """rsl_rl's runner on the same environment and networks: `learner=rsl_rl`."""

    uses_stale: ClassVar[bool] = False
    quantizes: ClassVar[bool] = False

    name: str = "rsl_rl"

    def make_session(self, env: Any, **options: Any) -> Any:
        """Build rsl_rl's runner, which has its own loop."""
        return importlib.import_module("robot_rl.learn.algorithms.rsl_rl.runner").RslRlRunner(env, self, **options)

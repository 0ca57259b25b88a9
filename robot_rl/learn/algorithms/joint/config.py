"""Settings of joint PPO."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, ClassVar

from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg


@dataclass(kw_only=True, slots=True)
class JointLearnerCfg(PPOLearnerCfg):
    """PPO over all joints of a team at once, a baseline that no team of robots could run: `learner=joint`.

    Its policy sees every robot's observations, and its reward is the mean of the robots'.
    """

    is_team: ClassVar[bool] = True
    joins: ClassVar[bool] = True
    uses_stale: ClassVar[bool] = False

    name: str = "joint"
    normalize_values: bool = True

    def make_session(self, env: Any, **options: Any) -> Any:
        """Build the training, in an environment of one robot with all joints."""
        return importlib.import_module("robot_rl.learn.algorithms.joint.joint").make_joint(self, env, **options)

"""Independent PPO: a team's policies, each with a critic that sees its own robot only."""

from robot_rl.learn.algorithms.ippo.config import IPPOLearnerCfg as Learner

__all__ = ["Learner"]

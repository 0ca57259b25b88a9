"""rsl_rl's own runner, as a baseline."""

from robot_rl.learn.algorithms.rsl_rl.config import RslRlLearnerCfg as Learner

__all__ = ["Learner"]

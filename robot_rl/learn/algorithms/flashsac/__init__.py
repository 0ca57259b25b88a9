"""FlashSAC: soft actor-critic with few large updates and bounded weights, features and gradients."""

from robot_rl.learn.algorithms.flashsac.config import FlashSACLearnerCfg as Learner

__all__ = ["Learner"]

"""Learning through a learned world: the policy's gradient goes back through imagined steps of a model."""

from robot_rl.learn.algorithms.world_model.config import WorldModelLearnerCfg as Learner

__all__ = ["Learner"]

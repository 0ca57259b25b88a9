"""Proximal policy optimization."""

from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg as Learner

__all__ = ["Learner"]

"""Imitation of a teacher's policy in the states that the student gets into."""

from robot_rl.learn.algorithms.distill.config import DistillLearnerCfg as Learner

__all__ = ["Learner"]

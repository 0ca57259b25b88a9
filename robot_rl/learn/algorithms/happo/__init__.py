"""HAPPO: a team's policies, improved one after the other, each with regard to what the ones before it changed."""

from robot_rl.learn.algorithms.happo.config import HAPPOLearnerCfg as Learner

__all__ = ["Learner"]

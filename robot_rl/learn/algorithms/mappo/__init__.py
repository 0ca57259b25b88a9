"""Multi-agent PPO: a team's policies with one critic that sees the whole team."""

from robot_rl.learn.algorithms.mappo.config import MAPPOLearnerCfg as Learner

__all__ = ["Learner"]

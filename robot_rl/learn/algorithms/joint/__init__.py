"""Joint PPO: one policy that sees and drives all robots of a team, as if they were one."""

from robot_rl.learn.algorithms.joint.config import JointLearnerCfg as Learner

__all__ = ["Learner"]

"""Reinforcement learning for robots: the learner, its measurements and the command line."""

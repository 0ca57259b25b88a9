"""Vectorized robot environments: a robot, a list of task terms and a physics engine."""

"""Sim-to-sim: MuJoCo plays the robot in one process, the robot's own binary runs the policy in another."""

"""Unitree Go2, a quadruped with twelve actuated joints."""

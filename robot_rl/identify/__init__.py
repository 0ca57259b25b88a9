"""Identification of a robot's joints from its logs: gains, rotor inertia, damping, friction, offsets and the delay."""

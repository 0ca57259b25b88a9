"""Environments of Isaac Lab as the learner takes them; Isaac Lab is imported when one is made, and not before."""

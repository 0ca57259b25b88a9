"""Environments of Gymnasium as the learner takes them; no simulator is imported here."""

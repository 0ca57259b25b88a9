"""Checkpoints: their files and descriptions, writing in the background, the state of the worlds."""

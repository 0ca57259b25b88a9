"""Checkpoints: their files, what they say about themselves, writing in the background, the state of the worlds."""

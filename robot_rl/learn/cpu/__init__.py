"""Passes written out for the CPU; every one has a plain twin of PyTorch operations, and a test that compares both."""

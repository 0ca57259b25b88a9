"""Franka Emika Panda, an arm of seven joints, with its two-finger hand."""

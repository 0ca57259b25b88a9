"""The terms of a task on states that no engine computed, with their gradients, for algorithms that imagine.

The functions are those of the simulator's kernels; Warp also compiles their adjoints.
"""

"""Benchmarks: ours and the rival in turn, several repeats, medians and spreads."""

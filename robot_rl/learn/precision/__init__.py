"""Less than float32, the same in rollout, update, evaluation and export: formats, layers, their kernels and bounds."""

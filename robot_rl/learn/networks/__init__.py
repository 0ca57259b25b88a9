"""Networks: layouts of observations, normalizers, encoders, memories, perceptrons, distributions, symmetry."""

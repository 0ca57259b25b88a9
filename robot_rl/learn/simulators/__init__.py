"""Simulators apart from the learner: they send segments of rollouts, and follow its weights, at most so many behind."""

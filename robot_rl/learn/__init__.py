"""Learning: proximal policy optimization over any rsl_rl VecEnv. Nothing is imported here."""

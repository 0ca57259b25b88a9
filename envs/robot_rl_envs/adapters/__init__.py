"""Environments in the forms of other libraries: Gymnasium, Isaac Lab, skrl and rl_games."""

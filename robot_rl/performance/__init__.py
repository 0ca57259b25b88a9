"""How fast it is, and why: measurements of steps and updates, and predictions for a GPU, made without one."""

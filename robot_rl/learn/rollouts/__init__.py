"""Where the rollouts of a trainer come from: simulated here, ahead of the update, or elsewhere."""

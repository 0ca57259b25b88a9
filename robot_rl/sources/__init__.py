"""Where tasks come from: robot-rl's own, Gymnasium, Isaac Lab, and packages that add their own source."""

"""Several robots in one world: one scene of all of them, rows of each robot's own state, and a step over both."""

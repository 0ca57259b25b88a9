"""A policy that adapts to the robot it runs on: the robot acts in real time, and learning follows its log."""

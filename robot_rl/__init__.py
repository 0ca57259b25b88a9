"""Robot RL: the learner and the command line. Nothing is imported here; import from the submodules."""

from robot_rl import moved

__version__ = "0.2.0"
moved.install()

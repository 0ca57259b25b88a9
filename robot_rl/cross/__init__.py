"""One policy in several engines: evaluations of one process each, merged into a table."""

from robot_rl.cross.table import Cell, merge, read_cell, to_json

__all__ = ["Cell", "merge", "read_cell", "to_json"]

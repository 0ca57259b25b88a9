"""Drills: a fault is put into a copy of a run, and what it costs to go on is measured."""

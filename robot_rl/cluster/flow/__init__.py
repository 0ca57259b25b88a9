"""Flows: the steps from a training to a robot as a graph that runs here, or on OSMO."""

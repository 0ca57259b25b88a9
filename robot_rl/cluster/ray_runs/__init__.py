"""Runs on Ray: what `launcher=ray` needs, by concept. Only functions in here import ray, an extra."""

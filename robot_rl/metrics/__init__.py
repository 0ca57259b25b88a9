"""Metrics that a run writes while it trains. Nothing is imported here."""

"""Robots from their own model files."""

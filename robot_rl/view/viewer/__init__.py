"""Watching a policy: a video without a display, and a live page in the browser. Nothing is imported here."""

"""How long a robot waits for its command: measured from a log or a report, drawn, and kept for training."""

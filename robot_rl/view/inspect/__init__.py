"""What happened to a quarantined world: its file read, replayed and drawn."""

"""The tasks: one folder each, found by the registry; nothing else is edited when one is added."""

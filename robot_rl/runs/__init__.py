"""A run and its parts: directory, settings, overrides, inputs, policies, training; no command line."""

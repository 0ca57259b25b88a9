"""A run and what it is made of: directory, settings, overrides, inputs, policies, training; no command line."""

"""A run and what it is made of: directory, settings, overrides, guides, policies, training; no command line."""

"""One policy in several engines: evaluations of one process each, merged into a table."""

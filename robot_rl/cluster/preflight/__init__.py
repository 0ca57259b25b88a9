"""Preflight: find problems that would stop or slow a run on a cluster, before a GPU hour is spent."""

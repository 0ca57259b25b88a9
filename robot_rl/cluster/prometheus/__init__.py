"""Metrics of runs for Prometheus, read from the runs' files at each scrape, with a dashboard and alert rules."""

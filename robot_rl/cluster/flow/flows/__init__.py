"""The flows that come with the project: each file here, with `make_flow`."""

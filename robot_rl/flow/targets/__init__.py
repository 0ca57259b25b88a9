"""Manifests of a flow for clusters: Slurm, Ray and OSMO; each writes the same graph in its own terms."""

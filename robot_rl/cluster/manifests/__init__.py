"""What a cluster starts a run with: batch scripts of Slurm, manifests of Kubernetes and workflows of OSMO."""

"""A Slurm cluster for the tests that need one."""

import pytest

from tests.cluster.slurm import SlurmCluster, missing
from tests.conftest import lacking


@pytest.fixture(scope="session")
def slurm_cluster():
    """A Slurm cluster of two nodes on this machine."""
    if missing():
        lacking(f"no {', '.join(missing())} (Debian: slurm-wlm munge)")
    with SlurmCluster() as cluster:
        yield cluster


@pytest.fixture
def slurm(slurm_cluster):
    """The cluster without any jobs."""
    slurm_cluster.clear()
    return slurm_cluster

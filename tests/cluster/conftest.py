"""A Slurm cluster for the tests that need one, and what a test finds that runs once more."""

import shutil

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


BEFORE = pytest.StashKey[set]()


@pytest.fixture(autouse=True)
def no_runs_of_a_failed_attempt(request):
    """Where a test runs once more: without the runs of its first attempt, which the same commands would continue."""
    if "root" not in request.fixturenames:
        return
    found = set((request.getfixturevalue("root") / "runs/cartpole").glob("*"))
    for path in found - request.node.stash.setdefault(BEFORE, found):
        if not path.name.startswith("undisturbed"):  # Other tests compare with it.
            shutil.rmtree(path)

"""Thousands of manifests are validated here: kubernetes-validate's schemas, 2 MB of JSON, are read once."""

import functools

import pytest
from kubernetes_validate import utils


@pytest.fixture(scope="session", autouse=True)
def schemas():
    """kubernetes-validate with its files kept in memory."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("schema_contents", "all_versions"):
            patch.setattr(utils, name, functools.cache(getattr(utils, name)))
        yield

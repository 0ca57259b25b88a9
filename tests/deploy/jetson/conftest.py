"""A bundle of the toy robot that a test may change."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def bundle(toy_bundle, tmp_path):
    """A copy of the toy's bundle."""
    return Path(shutil.copytree(toy_bundle, tmp_path / "bundle"))

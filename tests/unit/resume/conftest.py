"""What the contracts of every task use as well."""

import pytest

from tests.resuming import maker, one_thread  # noqa: F401


@pytest.fixture(autouse=True)
def _one_thread(one_thread):  # noqa: F811
    """In all of these tests."""

"""The states that every golden sequence ends with."""

from types import SimpleNamespace

import numpy as np
import pytest
from robot_rl_deploy.forced import STANDING_STEPS, TOGETHER, _commands


@pytest.mark.parametrize("count", [0, 3, 68])
def test_each_component_reaches_its_ends_and_few_of_them_at_once(count):
    upper = np.arange(1.0, count + 1.0)
    found = _commands(SimpleNamespace(command=[SimpleNamespace(lower=-2.0 * k, upper=k) for k in upper]))
    assert found.shape == (STANDING_STEPS + 2 * count + 2, count)
    assert (found[:STANDING_STEPS] == 0.0).all()
    assert (found.max(axis=0) == upper).all()
    assert (found.min(axis=0) == -2.0 * upper).all()
    shares = np.where(found < 0.0, found / (-2.0 * upper), found / upper)
    assert shares.sum(axis=1).max(initial=0.0) <= TOGETHER + 1e-9

"""The value added at a time-out determines the bias of a value function."""

import pytest
from value_bias import value_bias


@pytest.mark.long
@pytest.mark.parametrize("limit", [10, 100])
def test_only_the_value_of_the_final_observation_is_without_bias(limit):
    bias = {name: value_bias(name, gamma=0.99, limit=limit) for name in ("final", "state", "none")}
    assert abs(bias["final"]) < 1e-5
    assert bias["state"] < -0.002
    assert bias["none"] < bias["state"]

"""The synthetic robot of benchmarks and tests."""

import pytest
from robot_rl_deploy.describe import make_contract
from robot_rl_deploy.synthetic import TRAINING, describe, write_synthetic_bundle


def test_29_joints_give_98_observations():
    layout = make_contract(describe("synthetic", [f"joint_{i}" for i in range(29)]), TRAINING).layout
    assert (layout.observation_size, layout.action_size) == (98, 29)


@pytest.mark.parametrize("sizes", [{"joints": 0}, {"hidden": (16, 0)}, {"memory": -1}])
def test_sizes_below_1_are_refused(tmp_path, sizes):
    with pytest.raises(ValueError, match="sizes of at least 1 are needed"):
        write_synthetic_bundle(tmp_path / "policy", **sizes)
    assert list(tmp_path.iterdir()) == []

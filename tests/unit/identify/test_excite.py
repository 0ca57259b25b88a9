"""An excitation keeps to each joint's limits, starts and ends smoothly, and moves no two joints alike."""

import numpy as np
import pytest
from robot_rl_assets.registry import get_robot

from robot_rl.errors import UserError
from robot_rl.identify.excite import excite
from robot_rl.identify.plant_model import joint_limits


@pytest.mark.parametrize("name", ["unitree_go2", "unitree_g1", "franka_panda"])
def test_an_excitation_keeps_to_the_robots_limits(name):
    robot = get_robot(name)
    arrays = excite(robot, 10.0, 200.0)
    target, time = arrays["target"], arrays["time"]
    limits, speed = joint_limits(robot)[0], np.abs(np.gradient(target, time, axis=0)).max(0)
    assert ((target >= limits[:, 0]) & (target <= limits[:, 1])).all()
    most = np.array([joint.velocity_limit for joint in robot.joints])
    assert (speed <= 0.81 * most).all()
    np.testing.assert_allclose(target[0], robot.default_pos(), atol=1e-9)
    np.testing.assert_allclose(target[[0, -2]], target[[1, -1]], atol=0.002)
    moving = np.array([joint.kp > 0 for joint in robot.joints])
    assert (np.ptp(target[:, moving], axis=0) > 0.005).all()
    alike = np.abs(np.corrcoef(target[:, moving].T)) - np.eye(moving.sum())
    assert alike.max() < 0.95


def test_what_cannot_be_excited():
    with pytest.raises(UserError, match="none of its joints"):
        excite(get_robot("cartpole"))
    with pytest.raises(UserError, match="seconds=1: must be in"):
        excite(get_robot("unitree_go2"), 1.0)

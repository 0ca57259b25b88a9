"""An excitation keeps to each joint's limits, starts and ends smoothly, and moves no two joints alike."""

import numpy as np
import pytest
from robot_rl_assets.registry import get_robot
from robot_rl_deploy.bundle import read_bundle
from robot_rl_deploy.session import Session

from robot_rl.errors import UserError
from robot_rl.identify.excitation_bundle import PERIOD_S, write_excitation_bundle
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


def test_a_bundle_plays_the_excitation_again_and_again(tmp_path):
    """By the exported network, at the phases of the second period; targets are float32 and a series without an end."""
    robot = get_robot("franka_panda")
    arrays = excite(robot, 8.0, 1.0 / PERIOD_S)
    error = write_excitation_bundle(tmp_path / "chirps", robot, arrays)
    assert error < 2e-3
    bundle = read_bundle(tmp_path / "chirps")
    period = len(arrays["time"])
    phases = np.array([term.params["frequency_hz"] for term in bundle.contract.observations], np.float64)
    steps = np.arange(period, 2 * period, 7)
    angles = 2 * np.pi * phases * PERIOD_S * steps[:, None]
    observation = np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(len(steps), -1).astype(np.float32)
    driven = [not joint.passive for joint in robot.joints]
    session = Session(bundle.model, bundle.contract)
    target = session.run(observation, session.start_state(len(steps)))[1]
    np.testing.assert_allclose(target, arrays["target"][steps - period][:, driven], atol=error + 1e-4)

"""Each discrete cause repairs the log that it is the cause of."""

import numpy as np
import pytest

from robot_rl.explain.causes import causes, product
from robot_rl.identify.robot_log import make_log
from robot_rl.identify.start_values import limbs


@pytest.fixture(scope="module")
def log(go2):
    rng = np.random.default_rng(0)
    quat = rng.normal(size=(40, 4)) + np.array([4.0, 0.0, 0.0, 0.0])
    arrays = {
        "time": np.arange(40) * 0.002,
        "q": np.array(go2.default_pos()) + 0.1 * rng.normal(size=(40, 12)),
        "dq": rng.normal(size=(40, 12)),
        "target": np.array(go2.default_pos()) + 0.1 * rng.normal(size=(40, 12)),
        "kp": 40.0 + np.arange(12),
        "kd": np.ones(12),
        "quat": quat / np.linalg.norm(quat, axis=1, keepdims=True),
        "gyro": rng.normal(size=(40, 3)),
        "accel": rng.normal(size=(40, 3)),
    }
    return make_log("log", "", arrays, go2)


def named(robot, start):
    return next(cause for cause in causes(robot) if cause.name.startswith(start))


def test_limbs_are_named_by_what_their_joints_have_in_common(go2):
    assert limbs(go2) == {"FL": (0, 1, 2), "FR": (3, 4, 5), "RL": (6, 7, 8), "RR": (9, 10, 11)}


def test_joints_by_kind_come_back_to_the_order_by_limb(go2, log):
    by_kind = named(go2, "joint order: joints are ordered by kind").repair
    hips_first = [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11]
    for key in ("joint_pos", "joint_vel", "target", "kp"):
        values = getattr(log, key)
        np.testing.assert_array_equal(getattr(by_kind(log_with(log, key, values[:, hips_first])), key), values)


def log_with(log, key, values):
    from dataclasses import replace

    return replace(log, **{key: values})


def test_a_swap_of_commands_leaves_the_states(go2, log):
    cause = named(go2, "joint order of commands: FL and FR are swapped")
    found = cause.repair(log)
    np.testing.assert_array_equal(found.target[:, :6], log.target[:, [3, 4, 5, 0, 1, 2]])
    np.testing.assert_array_equal(found.joint_pos, log.joint_pos)
    assert cause.advice == "swap FL and FR in the map of commands"


def test_a_unit_turned_about_z_reads_forward_as_sideways(go2, log):
    """Its x axis points to the base's left: a turn about the base's y axis is one about its own x axis."""
    cause = named(go2, "IMU mounted turned by +90 degrees about z")
    found = cause.repair(log_with(log, "gyro", np.tile([1.0, 0.0, 0.0], (40, 1))))
    np.testing.assert_allclose(found.gyro, np.tile([0.0, 1.0, 0.0], (40, 1)), atol=1e-12)
    turn = np.array([np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)])
    np.testing.assert_allclose(product(found.quat, turn), log.quat, atol=1e-12)
    assert cause.advice == "measured in another frame: turn the IMU's readings by +90 degrees about z"


def test_mountings_are_the_other_23_orientations_of_a_cube(go2, log):
    mountings = [cause for cause in causes(go2) if cause.name.startswith("IMU mounted")]
    turned = np.array([cause.repair(log).gyro[0] for cause in mountings])
    assert len({tuple(row) for row in turned.round(9)}) == 23
    np.testing.assert_allclose(np.sort(np.abs(turned), 1), np.tile(np.sort(np.abs(log.gyro[0])), (23, 1)))


def test_the_order_of_a_quaternion_comes_back(go2, log):
    last = log_with(log, "quat", np.roll(log.quat, -1, axis=1))
    np.testing.assert_array_equal(named(go2, "quaternion order: w is last").repair(last).quat, log.quat)


def test_causes_have_names_of_their_own(go2, arm):
    for robot in (go2, arm):
        names = [cause.name for cause in causes(robot)]
        assert len(names) == len(set(names))

"""An IMU whose signals follow different conventions is found while a damped robot is tilted, and the cause is named."""

import math

import numpy as np
import pytest

SECONDS = 2.5


def quaternion(roll, pitch, yaw):
    """Return the quaternion (w, x, y, z) of turns about z, then y, then x [rad]."""
    cr, sr, cp, sp, cy, sy = (f(angle / 2) for angle in (roll, pitch, yaw) for f in (math.cos, math.sin))
    return np.array(
        [
            cr * cp * cy + sr * sp * sy,
            sr * cp * cy - cr * sp * sy,
            cr * sp * cy + sr * cp * sy,
            cr * cp * sy - sr * sp * cy,
        ]
    )


def imu(time_s, yaw):
    """Return orientation (4,), gyroscope (3,) [rad/s] and accelerometer (3,) [m/s^2] of a base tilted by hand."""
    roll, pitch = 0.3 * math.sin(2.5 * time_s), 0.25 * math.sin(1.9 * time_s + 1)
    roll_rate, pitch_rate = 0.75 * math.cos(2.5 * time_s), 0.475 * math.cos(1.9 * time_s + 1)
    gyro = np.array([roll_rate, pitch_rate * math.cos(roll), -pitch_rate * math.sin(roll)])
    up = np.array([-math.sin(pitch), math.cos(pitch) * math.sin(roll), math.cos(pitch) * math.cos(roll)])
    return quaternion(roll, pitch, yaw), gyro, 9.81 * up


def mounted(angle):
    """Turn gyroscope and accelerometer into the frame of an IMU that is mounted turned about z [rad]."""
    c, s = round(math.cos(angle)), round(math.sin(angle))
    turn = np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]])
    return lambda q, gyro, acc: (q, turn @ gyro, turn @ acc)


@pytest.fixture
def tilt(runtime, make_rig):
    """tilt(change, yaw): the line of what was found by the end, "" where nothing was."""

    def run(change, yaw=0.0, acc=False):
        rig, noise = make_rig(acc=acc), np.random.default_rng(0)
        healthy = type(rig).state

        def state():
            made = healthy(rig)
            q, gyro, acc = imu(rig.ticks * 0.002, yaw)
            gyro, acc = gyro + noise.normal(0.0, 0.02, 3), acc + noise.normal(0.0, 0.2, 3)
            made.quat_wxyz, made.gyro, made.acc = change(q, gyro, acc)
            return made

        rig.state = state
        rig.start().run(SECONDS)
        rig.ask(runtime.Request.DAMP)  # what is acknowledged stays while it is so
        found = rig.commander.finding
        return runtime.describe(found, rig.contract) if found.fault != runtime.Fault.OPERATOR_STOP else ""

    return run


@pytest.mark.parametrize("yaw", [0.0, 0.5, 2.5])
@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda q, gyro, acc: (np.roll(q, -1), gyro, acc), "as if it were in the order x, y, z, w"),
        (lambda q, gyro, acc: (q * [1, -1, -1, -1], gyro, acc), "as if it were inverted, of the world in the base"),
        (lambda q, gyro, acc: (q, -gyro, acc), "imu_gyro does not fit the orientation, as if it had the opposite sign"),
        (lambda q, gyro, acc: (q, gyro, -acc), "as if it were gravity, not the specific force, which points up"),
        (mounted(math.pi / 2), "as if mounted turned by 90 degrees about z"),
        (mounted(math.pi), "as if mounted turned by 180 degrees about z"),
        (mounted(-math.pi / 2), "as if mounted turned by -90 degrees about z"),
    ],
    ids=["xyzw", "inverse", "gyro", "gravity", "90", "180", "-90"],
)
def test_the_cause_is_named(tilt, change, cause, yaw):
    found = tilt(change, yaw, acc=True)
    assert found.startswith("imu_disagrees: imu_")
    assert cause in found


@pytest.mark.parametrize("yaw", [0.0, 2.5])
def test_a_sound_imu_is_no_fault(tilt, yaw):
    assert tilt(lambda q, gyro, acc: (q, gyro, acc), yaw, acc=True) == ""


@pytest.mark.parametrize("change", [lambda q, gyro, acc: (np.roll(q, -1), gyro, acc), mounted(math.pi / 2)])
def test_turns_alone_show_it_where_the_policy_reads_no_accelerometer(tilt, change):
    assert "as if " in tilt(change)


def test_an_accelerometer_in_the_frame_of_its_imu_is_no_fault_where_the_policy_does_not_read_it(tilt):
    assert tilt(lambda q, gyro, acc: (q, gyro, -acc)) == ""

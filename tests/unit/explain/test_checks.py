"""Checks without a simulation name the fault, and correct the units so that the simulation can continue."""

import numpy as np
import pytest

from robot_rl.explain.checks import check, turning

DEGREES = 180.0 / np.pi


@pytest.fixture
def arrays(go2):
    """3 s of a Go2 whose joints follow slow waves, its base turning about all axes."""
    time = np.arange(1500) * 0.002
    rate = 2.0 * np.pi * (0.7 + 0.15 * np.arange(12))
    phase = rate * time[:, None] + np.arange(12)
    target = np.array(go2.default_pos()) + 0.2 * np.sin(phase)
    half = 0.15 * np.sin(2.0 * np.pi * time[:, None] + np.arange(3))
    quat = np.concatenate([np.sqrt(1.0 - (half**2).sum(1, keepdims=True)), half], 1)
    return {
        "time": time,
        "q": target,
        "dq": 0.2 * rate * np.cos(phase),
        "target": target,
        "kp": np.full((1500, 12), 40.0),
        "kd": np.ones((1500, 12)),
        "quat": quat,
        "gyro": turning(time, quat),
        "accel": np.tile([0.0, 0.0, 9.81], (1500, 1)),
    }


def test_a_good_log_has_no_findings(arrays, go2):
    found, good = check(arrays, go2)
    assert found == []
    assert all((good[key] == arrays[key]).all() for key in arrays)


@pytest.mark.parametrize(
    ("key", "change", "cause"),
    [
        ("q", lambda rows: rows * DEGREES, "measured positions are in degrees"),
        ("target", lambda rows: rows * DEGREES, "targets are in degrees"),
        ("gyro", lambda rows: rows * DEGREES, "the gyro is in degrees per second"),
        ("accel", lambda rows: rows / 9.81, "the accelerometer is in g"),
        ("dq", lambda rows: rows * np.r_[1.0, 1.0, -1.0, np.ones(9)], "speeds of FL_calf_joint have the other sign"),
    ],
)
def test_units_and_signs_are_named_and_corrected(arrays, go2, key, change, cause):
    wrong = arrays | {key: change(arrays[key])}
    if key == "q":
        wrong["dq"] = arrays["dq"] * DEGREES
    found, good = check(wrong, go2)
    assert [row.cause for row in found if row.cause.startswith(cause)]
    np.testing.assert_allclose(good[key], arrays[key], atol=1e-9)


def test_speeds_in_another_order_are_named_with_the_joint_that_they_belong_to(arrays, go2):
    swapped = [1, 0, *range(2, 12)]
    found, _ = check(arrays | {"dq": arrays["dq"][:, swapped]}, go2)
    assert "the position of FL_hip_joint is that of FL_thigh_joint" in found[0].cause


def test_an_encoder_that_freezes_is_named_with_its_time_and_ends_the_log(arrays, go2):
    frozen = arrays["q"].copy()
    frozen[600:, 4] = frozen[600, 4]
    (found,), good = check(arrays | {"q": frozen}, go2)
    assert found.joints == ("FR_thigh_joint",)
    assert found.first_s == pytest.approx(1.2)
    assert len(good["time"]) == 600


def test_rows_gaps_targets_and_norms_are_named(arrays, go2):
    time, target = arrays["time"].copy(), arrays["target"].copy()
    time[700:] += 0.3
    target[:, 2] += 2.0
    wrong = arrays | {"time": time, "target": target, "quat": 1.2 * arrays["quat"]}
    for key in ("q", "dq"):
        wrong[key] = wrong[key].copy()
        wrong[key][1:400:2] = wrong[key][0:399:2]
    causes = [row.cause for row in check(wrong, go2)[0]]
    assert causes[0] == "the orientation's quaternion is not of norm 1"
    assert causes[1:] == ["targets of FL_calf_joint are outside the limits", "states repeat", "the log has a gap"]

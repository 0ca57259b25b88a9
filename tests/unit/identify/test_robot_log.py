"""Logs are read as they are, and what cannot be used is one line that names it."""

import numpy as np
import pytest

from robot_rl.errors import UserError
from robot_rl.identify.robot_log import check_excitation, make_log, read_log, speed_lag


def still(arrays, joint):
    for key in ("q", "target"):
        arrays[key][:, joint] = 0.1
    return arrays


def repeat(arrays, every):
    """Each row but one in `every` is the row before."""
    rows = np.arange(len(arrays["q"])) // every * every
    return {**arrays, "q": arrays["q"][rows], "dq": arrays["dq"][rows]}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda a: {**a, "time": a["time"][::-1]}, "time does not increase at row 1"),
        (lambda a: {**a, "time": np.arange(len(a["time"]))}, "time must be measured, in seconds"),
        (lambda a: repeat(a, 2), "50 % of the rows repeat"),
        (lambda a: {**a, "q": np.degrees(a["q"])}, "perhaps degrees"),
        (lambda a: {**a, "q": a["q"][:, :2]}, "arm has 3 joints"),
        (lambda a: {**a, "kp": -a["kp"]}, "kp or kd is negative"),
        (lambda a: {**a, "kp": ["stiff"] * 3}, "kp must be an array of numbers"),
        (lambda a: {key: a[key] for key in a if key != "target"}, "without the array 'target'"),
        (
            lambda a: {key: value[:5] if key not in ("kp", "kd", "joints") else value for key, value in a.items()},
            "5 rows",
        ),
    ],
)
def test_arrays_that_cannot_be_used(arm, changed, change, line):
    with pytest.raises(UserError, match=line):
        make_log("log", "", change(changed()), arm)


def test_a_joint_without_excitation_is_named(arm, changed):
    log = make_log("log", "", still(changed(), 1), arm)
    with pytest.raises(UserError, match="the target of upper changes by 0.0 mrad only"):
        check_excitation([log], arm)
    check_excitation([log], arm, omit=("upper",))


def test_a_log_of_damping_is_refused(arm, changed):
    with pytest.raises(UserError, match="all damping"):
        check_excitation([make_log("log", "", changed(kp=np.zeros(3)), arm)], arm)


def test_rows_with_nan_are_dropped_and_counted(arm, changed, arrays):
    q = arrays["q"].copy()
    q[[7, 70], 2] = np.nan
    log = make_log("log", "", changed(q=q), arm)
    assert len(log.time) == len(q) - 2
    assert "2 rows with NaN are dropped" in log.notes


def test_repeated_rows_of_a_moving_robot_are_found(arm, changed):
    """Every tenth row repeats. A robot at rest with coarse encoders also repeats rows, which is correct."""
    arrays = changed()
    rows = np.arange(len(arrays["q"]))
    rows[10::10] -= 1
    log = make_log("log", "", {**arrays, "q": arrays["q"][rows], "dq": arrays["dq"][rows]}, arm)
    assert set(np.flatnonzero(log.repeated)) <= set(range(10, len(rows), 10))
    assert log.repeated.sum() > 0.8 * len(range(10, len(rows), 10))
    assert any("made up" in note for note in log.notes)
    resting = changed(q=np.round(0.01 * arrays["q"], 3), dq=0.0 * arrays["dq"])
    assert not make_log("log", "", resting, arm).repeated.any()


def test_joints_are_found_by_name_in_any_order(arm, arrays, tmp_path):
    order = [2, 0, 1]
    turned = {key: np.asarray(value)[..., order] if key != "time" else value for key, value in arrays.items()}
    np.savez(tmp_path / "log.npz", allow_pickle=False, **turned)
    log = read_log(tmp_path / "log.npz", arm)
    np.testing.assert_array_equal(log.joint_pos, arrays["q"])
    np.testing.assert_array_equal(log.kp[0], arrays["kp"])
    np.savez(tmp_path / "other.npz", **{**arrays, "joints": ["turn", "upper", "knee"]})
    with pytest.raises(UserError, match="another robot than arm: without lower and with knee"):
        read_log(tmp_path / "other.npz", arm)


def test_late_speeds_are_shifted(arm, arrays, changed):
    """A motor's own filter makes its speed 20 ms late; a fit would take this for something else."""
    time, dq = arrays["time"], arrays["dq"]
    late = np.stack([np.interp(time - 0.02, time, speed) for speed in dq.T], 1)
    assert speed_lag(time, arrays["q"], dq) == 0.0
    assert speed_lag(time, arrays["q"], late) == pytest.approx(0.02, abs=0.002)
    log = make_log("log", "", changed(dq=late), arm)
    inner = slice(20, -20)
    assert np.abs(log.joint_vel[inner] - dq[inner]).max() < 0.2


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("none.npz", None, "no such file"),
        ("log.txt", b"x", "neither"),
        ("log.npz", b"no archive", "is not an .npz of plain arrays"),
    ],
)
def test_files_that_cannot_be_read(arm, tmp_path, name, content, line):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=line):
        read_log(tmp_path / name, arm)

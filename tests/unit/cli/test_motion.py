"""robot-rl motion."""

import numpy as np


def test_facts_and_a_strip(run, tmp_path, gl):
    code, out, err = run("motion", "step", f"out={tmp_path / 'step.png'}")
    assert code == 0, err
    assert "4.40 s, 133 frames at 30 Hz; its ends meet, it loops" in out
    from PIL import Image

    assert Image.open(tmp_path / "step.png").size == (8 * 200, 260)


def test_a_motion_is_written_as_npz(run, tmp_path):
    code, _, err = run("motion", "file=squat", f"out={tmp_path / 'mine.npz'}")
    assert code == 0, err
    with np.load(tmp_path / "mine.npz") as arrays:
        assert arrays["joint_pos"].shape == (151, 29)
        assert str(arrays["robot"]) == "unitree_g1"


def test_what_is_wrong_is_one_line(run, tmp_path):
    short = tmp_path / "short.csv"
    short.write_text("1,2,3\n")
    for words, line in (
        ((), "file: is missing; must be a .csv, a .npz, or one of get_up, squat"),
        (("file=sqat",), "file='sqat': robot 'unitree_g1' lacks a motion of that name"),
        ((f"file={short}",), f"file={str(short)!r}: line 1: has 3 columns; must have 36"),
        (("file=squat", "robot=franka_panda"), "franka_panda"),
        (("file=squat", "out=x.gif"), "out=x.gif"),
    ):
        code, _, err = run("motion", *words)
        assert (code, err.count("\n")) == (2, 1), err
        assert line in err

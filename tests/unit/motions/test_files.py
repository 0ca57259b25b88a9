"""Reading motions: CSV with and without a header, npz of several kinds, AMASS; and what is wrong with a file."""

import re

import numpy as np
import pytest
from robot_rl_assets.registry import get_robot
from robot_rl_envs.motions import Motion, read_motion
from robot_rl_envs.motions.files import library

from robot_rl.errors import UserError
from robot_rl.runs.settings import change, default_tree, resolve

G1 = get_robot("unitree_g1")
JOINTS = len(G1.joint_names)
YAW = np.array([np.cos(0.2), 0.0, 0.0, np.sin(0.2)])
"""A heading of 0.4 rad, w x y z."""


@pytest.fixture
def frames():
    """Five frames: joint j of frame t is at t / 10 + j / 1000 rad."""
    t = np.arange(5.0)
    return {
        "joint_pos": t[:, None] / 10 + np.arange(JOINTS) / 1000,
        "base_pos": np.stack([t, -t, 0.7 + t / 100], axis=1),
        "base_quat_wxyz": np.tile(YAW, (5, 1)),
    }


def check(motion, frames, rate):
    assert motion.rate_hz == pytest.approx(rate)
    assert motion.joint_names == tuple(G1.joint_names)
    for name, want in frames.items():
        np.testing.assert_allclose(getattr(motion, name), want, atol=1e-6, err_msg=name)


def test_a_csv_without_a_header_has_the_quaternion_s_w_last(tmp_path, frames):
    table = np.concatenate([frames["base_pos"], frames["base_quat_wxyz"][:, [1, 2, 3, 0]], frames["joint_pos"]], axis=1)
    np.savetxt(tmp_path / "walk.csv", table, delimiter=",")
    check(read_motion(str(tmp_path / "walk.csv"), G1), frames, 30.0)


def test_a_header_names_the_columns_in_any_order(tmp_path, frames):
    names = [
        "time",
        *reversed(G1.joint_names),
        "root_qw",
        "root_qx",
        "root_qy",
        "root_qz",
        "base_x",
        "base_y",
        "base_z",
    ]
    time = np.arange(5.0)[:, None] / 60.0
    table = np.concatenate([time, frames["joint_pos"][:, ::-1], frames["base_quat_wxyz"], frames["base_pos"]], axis=1)
    np.savetxt(tmp_path / "walk.csv", table, delimiter=",", header=",".join(names), comments="")
    check(read_motion(str(tmp_path / "walk.csv"), G1), frames, 60.0)


def test_what_is_saved_is_read_back(tmp_path, frames):
    motion = Motion(name="m", rate_hz=50.0, joint_names=tuple(G1.joint_names), robot="unitree_g1", **frames)
    motion.save(tmp_path / "m.npz")
    check(read_motion(str(tmp_path / "m.npz"), G1), frames, 50.0)


@pytest.mark.parametrize("kind", ["retargeted", "mjlab"])
def test_npz_of_others(tmp_path, frames, kind):
    base, quat = frames["base_pos"], frames["base_quat_wxyz"]
    if kind == "retargeted":
        arrays = {"dof_pos": frames["joint_pos"], "root_pos": base, "root_rot": quat[:, [1, 2, 3, 0]], "fps": [40]}
    else:
        other = np.zeros((5, 3, 3)), np.zeros((5, 3, 4))
        other[0][:, 0], other[1][:, 0] = base, quat
        arrays = {"joint_pos": frames["joint_pos"], "body_pos_w": other[0], "body_quat_w": other[1], "fps": 40}
    np.savez(tmp_path / "m.npz", **arrays)
    check(read_motion(str(tmp_path / "m.npz"), G1), frames, 40.0)


def test_a_joint_that_the_file_lacks_keeps_its_default_pose(tmp_path, frames):
    names = G1.joint_names[:-1]
    np.savez(tmp_path / "m.npz", **(frames | {"joint_pos": frames["joint_pos"][:, :-1], "joint_names": names}))
    motion = read_motion(str(tmp_path / "m.npz"), G1)
    np.testing.assert_allclose(motion.joint_pos[:, -1], G1.joints[-1].default_pos)


def smpl_arrays():
    """SMPL stands with its arms down and faces -y; then the left hip and knee bend, and the left elbow."""
    poses, trans = np.zeros((2, 156)), np.tile([0.0, 0.0, 0.9], (2, 1))
    poses[:, 0] = np.pi / 2  # AMASS is z up, the body y up
    poses[:, 3 * 16 + 2], poses[:, 3 * 17 + 2] = -np.pi / 2, np.pi / 2
    poses[1, 3 * 1], poses[1, 3 * 4], poses[1, 3 * 18 + 1] = -0.5, 1.0, -0.7
    trans[1, 0] = 1.0
    return {"poses": poses, "trans": trans, "mocap_framerate": np.float64(120.0)}


def test_amass_is_retargeted_by_joints(tmp_path):
    np.savez(tmp_path / "m.npz", **smpl_arrays())
    motion = read_motion(str(tmp_path / "m.npz"), G1)
    at = {name.removesuffix("_joint"): k for k, name in enumerate(G1.joint_names)}
    want = np.zeros((2, JOINTS))
    want[:, [at["left_elbow"], at["right_elbow"]]] = np.pi / 2  # straight
    want[1, [at["left_hip_pitch"], at["left_knee"], at["left_elbow"]]] = -0.5, 1.0, np.pi / 2 - 0.7
    np.testing.assert_allclose(motion.joint_pos, want, atol=1e-6)
    np.testing.assert_allclose(np.abs(motion.base_quat_wxyz[0] @ [np.sqrt(0.5), 0, 0, -np.sqrt(0.5)]), 1.0, atol=1e-6)
    assert motion.rate_hz == 120.0
    # legs of 0.63 m against 0.83 m: both straight legs stand with their soles on the floor, and a meter is less
    assert motion.base_pos[0, 2] == pytest.approx(0.793, abs=0.01)
    assert 0.6 < motion.base_pos[1, 0] < 0.9


def wrong(frames, tmp_path, kind):
    """Write a file that is wrong in one way; return its path."""
    path = tmp_path / ("m.csv" if kind.startswith("csv") else "m.npz")
    arrays = dict(frames)
    if kind == "csv columns":
        path.write_text("0," * 30 + "0\n")
    elif kind == "csv text":
        path.write_text("0,0,0.7,0,0,0,1," + ",".join(["0"] * 28 + ["x"]) + "\n")
    elif kind == "csv header":
        path.write_text("base_x,base_y\n0,0\n")
    elif kind == "csv empty":
        path.write_text("")
    elif kind == "no npz":
        path.write_bytes(b"PK not really")
    elif kind == "pickle":
        np.savez(path, joint_pos=np.array([{}], dtype=object))
    else:
        change = {
            "robot": {"robot": "unitree_go2"},
            "joint": {"joint_names": ["tail_joint", *G1.joint_names[1:]]},
            "width": {"joint_pos": frames["joint_pos"][:, :20]},
            "nan": {"base_pos": np.full((5, 3), np.nan)},
            "quat": {"base_quat_wxyz": np.ones((5, 4))},
            "short": {name: value[:1] for name, value in frames.items()},
            "fps": {"fps": -3.0},
            "frames": {"base_pos": frames["base_pos"][:4]},
            "twice": {"joint_names": [G1.joint_names[0], *G1.joint_names[:-1]]},
        }[kind]
        np.savez(path, **(arrays | change))
    return path


WRONG = {
    "csv columns": "line 1: has 31 columns; must have 36",
    "csv text": "line 1, column 36: 'x' is not a number",
    "csv header": "column 'base_z': is missing in the header",
    "csv empty": "rows: the file is empty",
    "no npz": "cannot be read: ",
    "pickle": "array 'joint_pos': is missing",
    "robot": "robot='unitree_go2': the motion is for another robot; this one is 'unitree_g1'",
    "joint": "joint 'tail_joint': robot 'unitree_g1' lacks a joint of that name",
    "width": "joint_pos: has 20 columns; must have 29",
    "nan": "base_pos: frame 0, column 0 is not a finite number",
    "quat": "base_quat_wxyz: frame 0 has length 2",
    "short": "frames=1: a motion needs at least 2",
    "fps": "rate=-3: must be between",
    "frames": "base_pos: has shape (4, 3); must be (5, 3)",
    "twice": "joint 'left_hip_pitch_joint': is there twice",
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_file_is_one_line_with_the_file_and_the_element(tmp_path, frames, kind):
    path = wrong(frames, tmp_path, kind)
    with pytest.raises(ValueError, match=re.escape(WRONG[kind])) as error:
        read_motion(str(path), G1, "motions.mine")
    assert str(error.value).startswith(f"motions.mine={str(path)!r}: ")
    assert "\n" not in str(error.value)


def test_a_missing_file_and_an_unknown_name_are_refused():
    with pytest.raises(ValueError, match=r"motions\.mine='/no/walk\.csv': no such file"):
        read_motion("/no/walk.csv", G1, "motions.mine")
    with pytest.raises(ValueError, match=r"motions\.mine='sqat': .* did you mean 'squat'"):
        read_motion("sqat", G1, "motions.mine")


def test_motions_are_chosen_and_added_on_the_command_line(tmp_path, frames):
    Motion(name="m", rate_hz=50.0, joint_names=tuple(G1.joint_names), **frames).save(tmp_path / "m.npz")
    tree = default_tree("g1_track", "cpu")
    assert set(tree["motions"]) <= set(library(G1))
    from robot_rl.settings.words import read_changes

    cfg = resolve(change(tree, read_changes(["~motions.turn", f"motions.mine={tmp_path / 'm.npz'}"])))
    assert cfg.task.motions["mine"] == cfg.tree["motions"]["mine"] == str(tmp_path / "m.npz")
    assert "turn" not in cfg.task.motions
    assert cfg.task.motions["squat"] == "squat"


def test_a_task_without_motions_takes_none():
    with pytest.raises(UserError, match=r"unknown key 'motions\.mine'"):
        change(default_tree("go2_flat", "cpu"), {"motions.mine": "walk.csv"})

"""Arms with a fixed base: a stretched one is bent, the hand is the frame of the tool, and notes say so."""

import ast
import itertools
from dataclasses import replace

import mujoco
import numpy as np
import pytest
from robot_rl_assets.registry import get_robot
from robot_rl_envs.entity.limbs import check_stretched, find_hand

from robot_rl.errors import UserError
from robot_rl.robots.tasks import reach_words, task_words
from robot_rl.runs.robot_facts import find_all
from tests.unit.robots.files import drafted, joint, link, notes, urdf, write

WIDE = 'lower="-2" upper="2" effort="30" velocity="3"'
GEARED = '<dynamics damping="10" friction="1"/>'
NAMES = ("base", "shoulder", "upper", "fore", "wrist")


def arm(*frames, geared=""):
    """A straight arm along z: a pan, and three pitch joints with 0.3 m between them; frames are fixed to its end."""
    size = (0.01, 0.01, 0.002)
    links = [link(name, mass=1.0, com="0 0 0.1", moments=size) for name in NAMES]
    pan = joint("pan", "base", "shoulder", limit=WIDE, at="0 0 0.1").replace('xyz="0 1 0"', 'xyz="0 0 1"')
    pairs = itertools.pairwise(NAMES[1:])
    pitches = [joint(f"pitch_{two}", one, two, limit=WIDE, at="0 0 0.3", more=geared) for one, two in pairs]
    ends = [joint(f"{name}_fixed", "wrist", name, kind="fixed", at="0 0 0.1") for name in frames]
    return urdf(*links, *(f'<link name="{name}"/>' for name in frames), pan, *pitches, *ends)


def test_an_empty_link_has_its_marker_in_its_own_origin(tmp_path):
    """MuJoCo compiles the center of mass of an empty link to its offset from its parent."""
    model = drafted(write(tmp_path, arm("tool"), "arm.urdf"))[2]
    tool = model.body("tool")
    (geom,) = np.flatnonzero(model.geom_bodyid == tool.id)
    assert tool.pos.tolist() == [0.0, 0.0, 0.1]
    assert model.geom_pos[geom].tolist() == tool.ipos.tolist() == [0.0, 0.0, 0.0]
    assert 'pos="0 0 0" mass="0"' in (tmp_path / "new" / "model.xml").read_text()


def test_a_stretched_arm_is_bent_and_a_bent_one_without_a_note(tmp_path):
    draft, robot, model = drafted(write(tmp_path, arm("tool"), "arm.urdf"))
    (line,) = notes(draft, "default pose: bent to ")
    default = {one.name: one.default_pos for one in robot.joints}
    assert default["pan"] == 0.0
    assert abs(default["pitch_fore"]) == 1.0
    assert "pitch_fore 1" in line
    assert not check_stretched(robot)
    straight = replace(robot, joints=tuple(replace(one, default_pos=0.0) for one in robot.joints))
    (finding,) = check_stretched(straight)
    assert not finding.is_problem
    assert finding.text.startswith("default_pos: the arm is at the boundary of its reach; its hand 'tool' moves")
    assert finding in find_all(straight)
    box = ast.literal_eval(reach_words(robot)["box"])
    assert all(box[f"{axis}_hi"] - box[f"{axis}_lo"] > 0.15 for axis in "xyz")
    data = mujoco.MjData(model)
    for name, value in default.items():
        data.joint(name).qpos[0] = value
    mujoco.mj_kinematics(model, data)
    assert data.body("tool").xpos[0] > 0.0


@pytest.mark.parametrize("name", ["franka_panda", "unitree_go2", "cartpole"])
def test_robots_with_a_good_pose_are_without_a_note(name):
    assert not check_stretched(get_robot(name))


@pytest.mark.parametrize(
    ("frames", "hand"),
    [((), "wrist"), (("tip_frame", "camera"), "tip_frame"), (("flange",), "flange"), (("camera",), "wrist")],
)
def test_the_hand_is_the_frame_of_a_tool(tmp_path, frames, hand):
    model = drafted(write(tmp_path, arm(*frames), "arm.urdf"))[2]
    assert find_hand(model, ["pan", "pitch_wrist"]).name == hand


def test_a_hand_of_choice_and_those_that_are_none(tmp_path):
    robot = drafted(write(tmp_path, arm("tool"), "arm.urdf"))[1]
    assert task_words("reach", robot, "wrist")["hand"] == '"wrist"'
    for kind, hand, line in (
        ("reach", "fist", "hand=fist: is not a site or body of the model; there are base, "),
        ("reach", "base", "hand=base: no joint moves it"),
        ("pose", "wrist", "hand=wrist: does not affect a task of kind=pose"),
    ):
        with pytest.raises(UserError, match=line):
            task_words(kind, robot, hand)


def test_the_note_on_gains_names_the_joints_that_are_stiffer(tmp_path):
    (line,) = notes(drafted(write(tmp_path, arm(geared=GEARED), "arm.urdf"))[0], "gains: ")
    assert "; stiffer than that: " in line
    assert "pitch_wrist (damping)" in line


def test_new_task_prints_the_hand_and_its_targets(run, in_tmp):
    path = write(in_tmp, arm("tool"), "arm.urdf")
    assert run("new", "project", "mine")[0] == 0
    assert run("new", "robot", "desk_arm", f"from={path}", "root=mine")[0] == 0
    code, out, err = run("new", "task", "desk_reach", "robot=franka_panda", "hand=hand", "root=mine")
    assert code == 0, err
    assert "  the hand 'hand' reaches for targets in the box x " in out
    assert "mine/desk_reach/__init__.py has them as HAND and REACH_M" in out

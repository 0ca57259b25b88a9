"""A robot that does not fit its model is refused before anything is compiled: height, pose, mirror, names."""

from dataclasses import replace

import pytest
from robot_rl_assets import get_robot, list_robots
from robot_rl_assets.robot import Joint, Robot
from robot_rl_envs.entity.robot_checks import check_robot, describe_robot, other_side
from robot_rl_envs.entity.scene import make_scene
from robot_rl_tasks.registry import get_task, list_tasks

GO2 = get_robot("unitree_go2")


def problems(robot):
    return [finding.text for finding in check_robot(robot) if finding.is_problem]


def notes(robot):
    return [finding.text for finding in check_robot(robot) if not finding.is_problem]


def changed(robot, names, **fields):
    joints = tuple(replace(joint, **fields) if joint.name in names else joint for joint in robot.joints)
    return replace(robot, joints=joints)


@pytest.mark.parametrize("name", list_robots())
def test_every_robot_is_sound(name):
    assert check_robot(get_robot(name)) == ()


@pytest.mark.parametrize("name", list_tasks())
def test_the_robot_of_every_task_is_sound(name):
    assert problems(get_task(name).robot) == []


@pytest.mark.parametrize(
    ("height", "word"), [(0.0289, "too low"), (0.2, "too low"), (0.36, "too high"), (2.89, "too high")]
)
def test_a_robot_under_or_above_the_ground(height, word):
    (text,) = problems(replace(GO2, base_height=height))
    assert text.startswith(f"base_height={height:g}: in the default pose it is ")
    assert word in text
    assert text.endswith("0.288 puts it on the ground")


@pytest.mark.parametrize(
    ("names", "fields", "blamed"),
    [
        (("FL_hip_joint", "FR_hip_joint"), {"mirror_sign": 1.0}, "'FL_hip_joint'"),
        (("RL_thigh_joint", "RR_thigh_joint"), {"mirror_sign": -1.0}, "'RL_thigh_joint'"),
    ],
)
def test_a_wrong_sign_of_a_pair(names, fields, blamed):
    (text,) = problems(changed(GO2, names, **fields))
    assert text.startswith("mirrored poses are not mirror images: a body is up to 0.")
    assert f"most by joint {blamed}" in text


def test_partners_that_are_on_the_same_side():
    """Front and rear are exchanged, which is an involution, too."""
    joints = [
        replace(joint, mirror=joint.name[0].translate(str.maketrans("FR", "RF")) + joint.name[1:])
        for joint in GO2.joints
    ]
    (text,) = problems(replace(GO2, joints=tuple(joints)))
    assert text.startswith("mirrored poses are not mirror images")


def test_a_mirror_that_is_missing():
    joints = tuple(replace(joint, mirror=None, mirror_sign=1.0) for joint in GO2.joints)
    (text,) = problems(replace(GO2, joints=joints, foot_mirror=(0, 1, 2, 3)))
    assert text.startswith("joints: none names a mirror, but 'FL_calf_joint' and 'FR_calf_joint' are of two sides")


def test_a_default_pose_outside_of_a_range():
    texts = problems(changed(GO2, ("FL_calf_joint", "FR_calf_joint"), default_pos=0.5))
    assert any(text.startswith("joint 'FL_calf_joint': default_pos=0.5 is outside of its range in ") for text in texts)
    assert any("must be within [-2.723, -0.8378]" in text for text in texts)


def test_gains_that_ring_or_creep_are_noted():
    stiff = changed(GO2, {joint.name for joint in GO2.joints}, kp=1e5, kd=0.0)
    assert problems(stiff) == []
    assert any("give a natural frequency of " in text and "usual are 0.3 to 60" in text for text in notes(stiff))
    assert any("give a damping ratio of " in text for text in notes(stiff))


ARM = """
<mujoco><worldbody><body name="upper" pos="0 0 1"><inertial pos="0.1 0 0" mass="1" diaginertia="1e-3 1e-3 1e-3"/>
<joint name="{one}" axis="0 0 1"/><geom size="0.1" conaffinity="1"/>
<body name="lower" pos="0.2 0 0"><inertial pos="0.1 0 0" mass="0.5" diaginertia="1e-3 1e-3 1e-3"/>
<joint name="elbow" axis="0 1 0"/><geom size="0.1" conaffinity="1"/></body></body></worldbody></mujoco>
"""


def arm(tmp_path, *joints, one="shoulder"):
    path = tmp_path / "arm.xml"
    path.write_text(ARM.format(one=one))
    return Robot(name="arm", model=path, joints=joints)


def driven(name, **fields):
    return Joint(name=name, default_pos=0.0, effort_limit=10.0, velocity_limit=5.0, kp=10.0, kd=0.5, **fields)


def test_an_arm_needs_no_mirror_and_a_joint_that_is_not_listed_is_noted(tmp_path):
    assert check_robot(arm(tmp_path, driven("shoulder"), driven("elbow"))) == ()
    (text,) = notes(arm(tmp_path, driven("elbow")))
    assert text.startswith("joints: shoulder of ")


def test_a_planar_arm_in_the_middle_has_a_mirror(tmp_path):
    """A shoulder about the vertical turns the other way in the mirror, the elbow the same way."""
    assert problems(arm(tmp_path, driven("shoulder", mirror_sign=-1.0), driven("elbow"))) == []
    assert problems(arm(tmp_path, driven("shoulder", mirror_sign=-1.0), driven("elbow", mirror_sign=-1.0))) != []


def test_a_scene_is_refused_with_the_same_line():
    task = get_task("go2_flat")
    with pytest.raises(
        ValueError, match=r"^robot 'unitree_go2': base_height=0.0289: in the default pose it is 0.259 m too low"
    ):
        make_scene(replace(task, robot=replace(GO2, base_height=0.0289)))


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("FL_hip_joint", "FR_hip_joint"),
        ("left_knee", "right_knee"),
        ("knee_R", "knee_L"),
        ("leftKnee", "rightKnee"),
        ("LeftKnee", "RightKnee"),
        ("panda_joint1", "panda_joint1"),
        ("small_finger", "small_finger"),
    ],
)
def test_the_name_of_the_other_side(name, other):
    assert other_side(name) == other
    assert other_side(other) == name


def test_what_a_robot_is_made_of():
    lines = describe_robot(GO2)
    assert lines[1] == "12 joints (12 driven, 6 pairs), 13 bodies, 15.206 kg"
    assert lines[2] == "floating base base_link at 0.289 m, feet FL, FR, RL, RR, IMU at imu"


def test_the_command(run):
    code, out, err = run("check", "robot=unitree_go2")
    assert (code, err) == (0, "")
    assert out.endswith("no problems, no notes\n")
    code, out, err = run("check", "robot=unitree_go")
    assert (code, out) == (2, "")
    assert "did you mean 'unitree_go2'?" in err
    assert run("check")[0] == 2

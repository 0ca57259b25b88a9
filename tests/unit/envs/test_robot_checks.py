"""A robot that does not fit its model is refused before anything is compiled: height, pose, mirror, names."""

from dataclasses import replace

import pytest
from robot_rl_assets import get_robot, list_robots
from robot_rl_assets.robot import Joint, Robot
from robot_rl_envs.entity.robot_checks import check_robot, describe_robot, other_side, require_mirror
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


def test_options_that_a_model_sets_in_every_task_are_noted(tmp_path):
    robot = arm(tmp_path, driven("shoulder"), driven("elbow"))
    option = '<option timestep="0.001" density="3"><flag contact="disable"/></option>'
    robot.model.write_text(robot.model.read_text().replace("<worldbody>", f"{option}<worldbody>", 1))
    (text,) = notes(replace(robot, name="heavy"))  # Another robot than the one that is remembered.
    assert text == f"option: {robot.model} sets density, disableflags in every task; remove a scene's options"


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
        ("RLEG_KNEE", "LLEG_KNEE"),
    ],
)
def test_the_name_of_the_other_side(name, other):
    assert other_side(name, [name, other]) == other
    assert other_side(other, [name, other]) == name


@pytest.mark.parametrize(
    ("names", "pair"),
    [
        # Every word of a side, where that is there; else one: R is roll.
        (("left_hand_right_finger", "right_hand_left_finger", "right_hand_right_finger"), (0, 1)),
        (("RLEG_HIP_R", "LLEG_HIP_R"), (0, 1)),
        (("torso_to_abduct_fl_j", "abduct_fl_to_thigh_fl_j", "abduct_fr_to_thigh_fr_j"), (1, 2)),
        # Two that would have the same partner have none.
        (("l_r", "r_l", "r_r"), (0, 1)),
    ],
)
def test_names_with_several_words_of_a_side(names, pair):
    for k, name in enumerate(names):
        other = names[pair[1 - pair.index(k)]] if k in pair else name
        assert other_side(name, names) == other


def sided(folder, *, camera="", left_y=0.1, mirror=True):
    """A trunk with two legs, and what is mounted on its left leg and trunk."""
    legs = "".join(
        f'<body name="{side}_leg" pos="0 {y} 0"><joint name="{side}_hip" axis="1 0 0"/>'
        f'<geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.02" mass="1"/>{camera if side == "left" else ""}</body>'
        for side, y in (("left", left_y), ("right", -0.1))
    )
    trunk = f'<body name="trunk"><freejoint/><geom size="0.1" pos="0 0.01 0" mass="3"/>{camera}{legs}</body>'
    path = folder / f"legs_{left_y}.xml"  # What is checked is kept by the name.
    path.write_text(f"<mujoco><worldbody>{trunk}</worldbody></mujoco>")
    joints = tuple(
        replace(driven(f"{one}_hip"), mirror=f"{other}_hip", mirror_sign=-1.0) if mirror else driven(f"{one}_hip")
        for one, other in (("left", "right"), ("right", "left"))
    )
    return Robot(name="legs", model=path, joints=joints, base_body="trunk", base_height=0.42)


def test_what_is_fixed_to_a_link_and_where_the_base_is_heavy_are_no_matter_of_the_mirror(tmp_path):
    """A camera of 20 g on one side moves the leg's center of mass by 2 mm; the trunk's is 1 cm to the left."""
    camera = '<body pos="0 0.1 -0.2"><geom size="0.01" mass="0.02"/></body>'
    assert problems(sided(tmp_path, camera=camera)) == []
    (text,) = problems(sided(tmp_path, camera=camera, left_y=0.15))
    assert text.startswith("mirrored poses are not mirror images: a body is up to 0.05")


def test_sides_that_are_no_mirror_images_need_no_mirror_and_cannot_be_mirrored(tmp_path):
    assert len(problems(sided(tmp_path, mirror=False))) == 1
    robot = sided(tmp_path, mirror=False, left_y=0.15)
    assert problems(robot) == []
    (text,) = notes(robot)
    assert text.endswith("they are not mirror images in the default pose, and no task can have mirror=True")
    with pytest.raises(
        ValueError, match=r"mirror=True: joints 'left_hip' and 'right_hip' of robot 'legs' name no mirror"
    ):
        require_mirror(robot)
    require_mirror(sided(tmp_path))


def test_what_a_robot_is_made_of():
    lines = describe_robot(GO2)
    assert lines[1] == "12 joints (12 driven, 6 pairs), 13 bodies, 15.206 kg"
    assert lines[2] == "floating base 'base_link' at 0.289 m, feet FL, FR, RL, RR, IMU at imu"


def test_the_command(run):
    code, out, err = run("check", "robot=unitree_go2")
    assert (code, err) == (0, "")
    assert out.endswith("no problems, no notes\n")
    code, out, err = run("check", "robot=unitree_go")
    assert (code, out) == (2, "")
    assert "did you mean 'unitree_go2'?" in err
    assert run("check")[0] == 2

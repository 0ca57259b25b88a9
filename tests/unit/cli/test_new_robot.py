"""A robot is drafted from its own model: what is found, what is guessed and said, and what is refused."""

import shutil

import mujoco
import numpy as np
import pytest
from robot_rl_envs.entity.robot_checks import check_robot

from robot_rl.errors import UserError
from robot_rl.robots.draft import Gains, make_draft
from robot_rl.robots.source import read_source
from robot_rl.robots.writing import draft_robot, make_robot, write_files

LEG = """
<body name="{side}_thigh" pos="{x} {y} 0">
  <inertial pos="0 0 -0.1" mass="1" diaginertia="0.004 0.004 0.001"/>
  <joint name="{side}_hip" axis="0 1 0" range="-1.5 1.5" damping="0.1"/>
  <geom name="{side}_mesh" type="mesh" mesh="bar" contype="0" conaffinity="0" group="1"/>
  <body name="{side}_calf" pos="0 0 -0.2">
    <inertial pos="0 0 -0.1" mass="0.3" diaginertia="0.001 0.001 0.0002"/>
    <joint name="{side}_knee" axis="0 {axis} 0" range="{low} {high}"/>
    <geom type="capsule" fromto="0 0 0 0 0 -0.18" size="0.015"/>
    <geom {foot} pos="0 0 -0.2"/>
  </body>
</body>
"""
MODEL = """
<mujoco>
  <compiler meshdir="parts" angle="radian"/>
  <asset><mesh name="bar" file="bar.obj"/></asset>
  <worldbody>
    <light pos="0 0 3"/><geom type="plane" size="5 5 1"/>
    <body name="table" pos="2 0 0"><geom type="box" size="0.1 0.1 0.1"/></body>
    <body name="trunk" pos="0 0 0.5">
      <inertial pos="0 0 0" mass="5" diaginertia="0.05 0.1 0.1"/>
      <freejoint/>
      <geom type="box" size="0.2 0.1 0.05"/>
      {legs}
    </body>
  </worldbody>
  <actuator><motor joint="FL_hip" ctrllimited="true" ctrlrange="-2 2" gear="6"/>
    <position joint="FL_knee" kp="30" forcerange="-9 9"/>{motors}</actuator>
  <sensor><gyro site="none"/></sensor>
</mujoco>
"""
BAR = """
v -0.01 -0.01 0
v 0.01 -0.01 0
v 0.01 0.01 0
v -0.01 0.01 0
v -0.01 -0.01 -0.2
v 0.01 -0.01 -0.2
v 0.01 0.01 -0.2
v -0.01 0.01 -0.2
f 1 2 3
f 1 3 4
f 5 7 6
f 5 8 7
f 1 6 2
f 1 5 6
f 3 8 4
f 3 7 8
"""


def write_quadruped(folder, foot='type="sphere" size="0.025"'):
    """A dog whose right knees turn about the opposite axis, with a mesh, a floor, a table and some actuators."""
    legs = "".join(
        LEG.format(
            side=f"{end}{side}",
            x=0.2 if end == "F" else -0.2,
            y=0.1 if side == "L" else -0.1,
            axis=1 if side == "L" else -1,
            low=-2.5 if side == "L" else 0.5,
            high=-0.5 if side == "L" else 2.5,
            foot=foot,
        )
        for end in "FR"
        for side in "LR"
    )
    (folder / "parts").mkdir()
    (folder / "parts" / "bar.obj").write_text(BAR)
    path = folder / "dog.xml"
    others = [f"{end}{side}_{part}" for end in "FR" for side in "LR" for part in ("hip", "knee")][2:]
    motors = "".join(f'<motor joint="{name}"/>' for name in others)  # Without a limit.
    path.write_text(MODEL.format(legs=legs, motors=motors).replace('<sensor><gyro site="none"/></sensor>', ""))
    return path


@pytest.fixture
def quadruped(tmp_path):
    return write_quadruped(tmp_path)


def drafted(path, folder, *, base="auto", collision="meshes", gains=None):
    draft, files = draft_robot("dog", path, base=base, collision=collision, gains=gains or Gains(5.0, 1.0))
    write_files(folder, files)
    return draft, make_robot(draft, "dog", folder / "model.xml")


@pytest.mark.parametrize("collision", ["meshes", "primitives", "boxes"])
def test_a_quadruped_is_drafted_and_sound(quadruped, tmp_path, collision):
    draft, robot = drafted(quadruped, tmp_path / "new", collision=collision)
    assert check_robot(robot) == ()
    model = mujoco.MjModel.from_xml_path(str(robot.model))
    source = mujoco.MjModel.from_xml_path(str(quadruped))
    assert (model.nu, model.nsensor, model.nlight) == (0, 0, 0)
    assert not (model.geom_type == int(mujoco.mjtGeom.mjGEOM_PLANE)).any()
    assert model.nmesh == (1 if collision == "meshes" else 0)
    assert (tmp_path / "new" / "meshes" / "bar.obj").exists() == (collision == "meshes")
    for i in range(1, model.nbody):
        name = model.body(i).name
        assert model.body(name).mass == pytest.approx(source.body(name).mass)
        assert np.sort(model.body(name).inertia) == pytest.approx(np.sort(source.body(name).inertia))
    assert set(model.geom_group) <= {2, 3}
    assert robot.base_body == "trunk"
    assert any("table" in line for line in draft.said)


def test_feet_pose_and_mirror(quadruped, tmp_path):
    """Knees that cannot be straight are bent, with the foot below the hip; the right ones turn the other way."""
    draft, robot = drafted(quadruped, tmp_path / "new")
    assert robot.feet == ("FL", "FR", "RL", "RR")
    assert robot.foot_radius == 0.025
    assert robot.foot_mirror == (1, 0, 3, 2)
    joints = {joint.name: joint for joint in robot.joints}
    assert joints["FL_knee"].default_pos == -1.5
    assert joints["FR_knee"].default_pos == 1.5
    assert joints["FL_knee"].mirror == "FR_knee"
    assert joints["FL_knee"].mirror_sign == -1.0
    assert joints["FL_hip"].mirror_sign == 1.0
    assert joints["FL_hip"].default_pos == pytest.approx(0.75, abs=0.1)  # Half of the knee's angle.
    assert robot.base_height == pytest.approx(2 * 0.2 * np.cos(0.75) + 0.025, abs=0.01)
    assert any(line.startswith("standing: it holds its default pose") for line in draft.said)


def test_limits_are_taken_and_what_is_missing_is_said(quadruped, tmp_path):
    draft, robot = drafted(quadruped, tmp_path / "new")
    joints = {joint.name: joint for joint in robot.joints}
    # A motor's control range times its gear; the force range of a position actuator; the other side has none.
    assert joints["FL_hip"].effort_limit == joints["FR_hip"].effort_limit
    efforts = {name: limits.effort for name, limits in read_source(quadruped, "auto", "keep").limits.items()}
    assert efforts == {"FL_hip": 12.0, "FL_knee": 9.0}
    said = next(line for line in draft.said if line.startswith("effort limit: the file has none for "))
    assert "FR_hip" in said
    assert "FL_hip" not in said
    assert any(line.startswith("velocity limit: the file has none for all joints") for line in draft.said)


def test_gains_follow_the_wanted_frequency_and_damping(quadruped):
    """With a high frequency nothing carries more than the gain holds: kp grows with its square, kd with it."""

    def gains(frequency, damping):
        source = read_source(quadruped, "auto", "keep")
        return make_draft(source, "keep", Gains(frequency, damping)).joints["RL_knee"]

    one, two, damped = gains(30.0, 1.0), gains(60.0, 1.0), gains(30.0, 2.0)
    assert two["kp"] == pytest.approx(4.0 * one["kp"], rel=1e-3)
    assert two["kd"] == pytest.approx(2.0 * one["kd"], rel=0.02)
    assert damped["kp"] == one["kp"]
    assert damped["kd"] == pytest.approx(2.0 * one["kd"], rel=0.02)


def test_a_foot_without_a_sphere_gets_one(tmp_path):
    path = write_quadruped(tmp_path, foot='type="box" size="0.03 0.02 0.01"')
    draft, robot = drafted(path, tmp_path / "new")
    assert check_robot(robot) == ()
    assert robot.foot_radius == 0.02
    assert any("spheres of 0.02 m were added" in line for line in draft.said)


URDF = """
<robot name="arm">
  <link name="base"><inertial><mass value="2"/>
    <inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><geometry><box size="0.1 0.1 0.1"/></geometry></collision></link>
  <link name="upper"><inertial><origin xyz="0.1 0 0"/><mass value="1"/>
    <inertia ixx="0.001" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="lower">{inertial}</link>
  <joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/><origin xyz="0 0 0.1"/>
    <axis xyz="0 1 0"/><limit lower="-1" upper="1" effort="20" velocity="3"/></joint>
  <joint name="{second}" type="revolute"><parent link="upper"/><child link="lower"/><origin xyz="0.2 0 0"/>
    <axis xyz="0 1 0"/><limit lower="-2" upper="-0.5" effort="7" velocity="4"/></joint>
</robot>
"""
INERTIAL = """<inertial><origin xyz="0.1 0 0"/><mass value="0.5"/>
    <inertia ixx="0.001" iyy="0.004" izz="0.004" ixy="0" ixz="0" iyz="0"/></inertial>"""


def write_arm(folder, inertial=INERTIAL, second="elbow", low="-2"):
    path = folder / "arm.urdf"
    path.write_text(URDF.format(inertial=inertial, second=second).replace('lower="-2"', f'lower="{low}"'))
    return path


def test_an_arm_from_a_urdf(tmp_path):
    draft, robot = drafted(write_arm(tmp_path), tmp_path / "new")
    assert check_robot(robot) == ()
    assert robot.base_body is None
    assert robot.feet == ()
    assert robot.joint_names == ("shoulder", "elbow")
    assert [joint.effort_limit for joint in robot.joints] == [20.0, 7.0]
    assert [joint.velocity_limit for joint in robot.joints] == [3.0, 4.0]
    assert [joint.default_pos for joint in robot.joints] == [0.0, -1.25]
    assert any("base: fixed, since the file has 1 limbs" in line for line in draft.said)


def test_a_base_can_be_said(quadruped, tmp_path):
    _, robot = drafted(quadruped, tmp_path / "fixed", base="fixed")
    assert (robot.base_body, robot.base_height, robot.feet) == (None, 0.0, ())
    _, robot = drafted(write_arm(tmp_path), tmp_path / "floating", base="floating")
    assert robot.base_body == "base"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"inertial": ""}, "link 'lower' moves and has no <inertial>; give it one"),
        ({"second": "shoulder"}, "joint 'shoulder' is there twice; names must be unique"),
        ({"low": "2"}, "arm.urdf: joint 'elbow': lower=2 is above upper=-0.5"),
    ],
)
def test_a_urdf_that_cannot_be_used(tmp_path, change, line):
    with pytest.raises(UserError, match=line):
        read_source(write_arm(tmp_path, **change), "auto", "keep")


def test_a_mesh_that_is_missing_is_named_and_boxes_need_none(quadruped, tmp_path):
    shutil.rmtree(tmp_path / "parts")
    with pytest.raises(UserError, match=r"mesh 'bar' is missing: .*bar.obj; put it there, or write collision=boxes"):
        draft_robot("dog", quadruped, base="auto", collision="meshes", gains=Gains(5.0, 1.0))
    _, robot = drafted(quadruped, tmp_path / "new", collision="boxes")
    assert check_robot(robot) == ()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("<mujoco><worldbody><body><geom size='1'/></body></worldbody></mujoco>", "has no joint; a robot has some"),
        ("<mujoco><worldbody>", "from="),
        (
            "<mujoco><worldbody><body name='a'><joint/><geom size='1'/></body>"
            "<body name='b'><joint/><geom size='1'/></body></worldbody></mujoco>",
            r"has 2 things that could be the robot \(a, b\); leave one in a copy",
        ),
        (
            "<mujoco><worldbody><body name='a'><joint name='j' type='ball'/><geom size='1'/></body></worldbody>"
            "</mujoco>",
            "joint 'j' is a ball; joints must be hinges or slides",
        ),
    ],
)
def test_a_model_that_is_no_robot(tmp_path, text, line):
    path = tmp_path / "model.xml"
    path.write_text(text)
    with pytest.raises(UserError, match=line):
        read_source(path, "auto", "keep")


def test_the_command_in_a_project(run, in_tmp, quadruped):
    assert run("new", "project", "mine")[0] == 0
    code, out, err = run("new", "robot", "dog", f"from={quadruped}", "collision=primitives", "root=mine")
    assert code == 0, err
    for word in ("mine/mine/dog/robot.py", "mirror: 4 pairs", "standing: ", "next: robot-rl check robot=dog"):
        assert word in out
    assert 'dog = "mine.dog.robot:ROBOT"' in (in_tmp / "mine" / "pyproject.toml").read_text()
    facts = (in_tmp / "mine" / "mine" / "dog" / "robot.py").read_text()
    assert facts.count("\n") <= 150
    assert max(map(len, facts.splitlines())) <= 120
    for words, line in (
        (["new", "robot", "cat", "from=nowhere.xml", "root=mine"], "from=nowhere.xml: no such file"),
        (
            ["new", "robot", "cat", f"from={quadruped}", "collision=none", "root=mine"],
            "collision=none: must be one of meshes",
        ),
        (["new", "robot", "cat", f"from={quadruped}", "base=up", "root=mine"], "base=up: must be one of auto"),
        (["new", "task", "cat", f"from={quadruped}", "root=mine"], "has no effect on new task"),
    ):
        code, out, err = run(*words)
        assert (code, out) == (2, "")
        assert line in err
        assert not (in_tmp / "mine" / "mine" / "cat").exists()


CLASSES = """
<mujoco>
  <compiler angle="degree" settotalmass="6" inertiafromgeom="true"/>
  <size nkey="3"/>
  <option timestep="0.002"/>
  <default>
    <general ctrllimited="true"/>
    <default class="pole">
      <joint type="hinge" axis="0 1 0" range="-90 90"/>
      <geom type="capsule" fromto="0 0 0 0 0 0.3" size="0.02" mass="1" material="paint"/>
      <default class="tip"><site type="capsule" fromto="0 0 0 0 0 0.1" size="0.01"/></default>
    </default>
  </default>
  <asset><texture name="paint" type="2d" file="paint.png"/><material name="paint" texture="paint"/></asset>
  <worldbody>
    <body name="stand">
      <geom type="box" size="0.1 0.1 0.1" mass="2"/>
      <body childclass="pole" pos="0 0 0.1">
        <frame pos="0 0 0.05" euler="0 0 90"><joint/><geom name="imu"/></frame>
        <body pos="0 0 0.3"><joint name="second" range="-45 45"/><geom/><site class="tip" name="end"/></body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


def test_classes_frames_textures_and_names_that_are_missing(tmp_path):
    """What is read again is the source: its masses, its axes in frames, its ranges in degrees."""
    path = tmp_path / "arm.xml"
    path.write_text(CLASSES)
    draft, robot = drafted(path, tmp_path / "new")
    assert check_robot(robot) == ()
    assert [joint.name for joint in robot.joints] == ["body_1_joint_1", "second"]
    assert any(line.startswith("names: 2 bodies had none") for line in draft.said)
    model = mujoco.MjModel.from_xml_path(str(robot.model))
    source = mujoco.MjModel.from_xml_string(
        CLASSES.replace('<texture name="paint" type="2d" file="paint.png"/>', "").replace(' texture="paint"', "")
    )
    np.testing.assert_allclose(model.body_mass, source.body_mass, atol=1e-6)
    np.testing.assert_allclose(model.jnt_axis, source.jnt_axis, atol=1e-6)
    np.testing.assert_allclose(model.jnt_range, np.radians([[-90, 90], [-45, 45]]), atol=1e-5)
    assert (model.nkey, model.ntex) == (0, 0)


def test_meshes_of_one_name_in_two_folders_stay_two(tmp_path):
    arm = URDF.format(inertial=INERTIAL, second="elbow")
    for folder, link in (("big", "upper"), ("small", "lower")):
        (tmp_path / "meshes" / folder).mkdir(parents=True)
        bar = BAR if folder == "big" else BAR.replace("0.01", "0.005")
        (tmp_path / "meshes" / folder / "bar.obj").write_text(bar)
        mesh = f'<collision><geometry><mesh filename="package://arm/meshes/{folder}/bar.obj"/></geometry></collision>'
        arm = arm.replace(f'<link name="{link}">', f'<link name="{link}">{mesh}', 1)
    path = tmp_path / "arm.urdf"
    path.write_text(arm)
    _, robot = drafted(path, tmp_path / "new")
    assert sorted(file.name for file in (tmp_path / "new" / "meshes").iterdir()) == ["bar.obj", "bar_2.obj"]
    model = mujoco.MjModel.from_xml_path(str(robot.model))
    assert model.nmesh == 2
    widths = sorted(float(np.sort(model.geom_aabb[k, 3:])[0]) for k in range(model.ngeom) if model.geom_dataid[k] >= 0)
    assert widths == pytest.approx([0.005, 0.01], rel=1e-3)


def test_a_mesh_that_mujoco_does_not_read(tmp_path):
    """One that is only seen is left out; one that touches is named."""
    arm, look = URDF.format(inertial=INERTIAL, second="elbow"), '<geometry><mesh filename="look.dae"/></geometry>'
    (tmp_path / "look.dae").write_text("<COLLADA/>")
    path = tmp_path / "arm.urdf"
    path.write_text(arm.replace('<link name="upper">', f'<link name="upper"><visual>{look}</visual>', 1))
    draft, _ = drafted(path, tmp_path / "new")
    assert any(line.startswith("left out: 1 meshes that are only seen") for line in draft.said)
    path.write_text(arm.replace('<link name="upper">', f'<link name="upper"><collision>{look}</collision>', 1))
    with pytest.raises(UserError, match=r"mesh 'look' is a .dae, which MuJoCo does not read; make it an .obj or .stl"):
        drafted(path, tmp_path / "new")


GRIPPER = """
<mujoco>
  <compiler angle="radian"/>
  <worldbody>
    <body name="base">
      <inertial pos="0 0 0" mass="1" diaginertia="0.01 0.01 0.01"/>
      <body name="hand" pos="0 0 0.5">
        <inertial pos="0 0 0" mass="0.5" diaginertia="0.001 0.001 0.001"/>
        <joint name="wrist" axis="0 0 1" range="-1 1"/>
        <body name="near" pos="0 0.02 0.05">
          <inertial pos="0 0 0.02" mass="0.02" diaginertia="1e-5 1e-5 1e-5"/>
          <joint name="near_slide" type="slide" axis="0 1 0" range="0 0.04"/>
          <geom type="box" size="0.01 0.005 0.02" pos="0 0 0.03"/>
        </body>
        <body name="far" pos="0 -0.02 0.05">
          <inertial pos="0 0 0.02" mass="0.02" diaginertia="1e-5 1e-5 1e-5"/>
          <joint name="far_slide" type="slide" axis="0 -1 0" range="0 0.08"/>
          <geom type="box" size="0.01 0.005 0.02" pos="0 0 0.03"/>
        </body>
      </body>
    </body>
  </worldbody>
  <tendon><fixed name="pull"><joint joint="near_slide" coef="1"/><joint joint="far_slide" coef="1"/></fixed></tendon>
  <equality><joint joint1="far_slide" joint2="near_slide" polycoef="0 2 0 0 0"/></equality>
  <actuator><position joint="wrist" kp="30" forcerange="-9 9"/>
    <position tendon="pull" kp="30" forcerange="-40 40"/></actuator>
  <keyframe><key qpos="0 0.02 0"/></keyframe>
</mujoco>
"""


def test_a_gripper_is_driven_by_one_of_its_fingers(tmp_path):
    path = tmp_path / "hand.xml"
    path.write_text(GRIPPER)
    draft, robot = drafted(path, tmp_path / "new")
    near, far = draft.joints["near_slide"], draft.joints["far_slide"]
    assert (near["default_pos"], near["effort_limit"]) == (0.02, 40.0)
    assert (far["default_pos"], far["effort_limit"], far["kp"]) == (0.04, 0.0, 0.0)
    assert [joint.name for joint in robot.joints if joint.passive] == ["far_slide"]
    model = mujoco.MjModel.from_xml_path(str(robot.model))
    assert model.neq == 1
    # between the fingers as they are in the default pose: y = (0.02 + 0.02 - 0.02 - 0.04) / 2
    np.testing.assert_allclose(model.site("hand_tcp").pos, [0, -0.01, 0.08], atol=1e-6)
    assert any("gripper: near_slide, far_slide on hand, driven by near_slide" in line for line in draft.said)
    assert any("left out: 1 tendons" in line for line in draft.said)


def write_mimic(folder, leader):
    mimic = f'<mimic joint="{leader}" multiplier="-1" offset="0.1"/>'
    inertial = '<inertial><mass value="1"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>'
    links = "".join(f'<link name="{name}">{inertial}</link>' for name in ("base", "left", "right"))
    joints = "".join(
        f'<joint name="{name}_hinge" type="revolute"><parent link="base"/><child link="{name}"/><axis xyz="0 0 1"/>'
        f'<origin xyz="0 {y} 0"/><limit lower="-1" upper="1" effort="5" velocity="2"/>{extra}</joint>'
        for name, y, extra in (("left", 0.1, ""), ("right", -0.1, mimic))
    )
    path = folder / "jaws.urdf"
    path.write_text(f'<robot name="jaws">{links}{joints}</robot>')
    return path


def test_a_urdfs_mimic_joint_follows(tmp_path):
    draft, robot = drafted(write_mimic(tmp_path, "left_hinge"), tmp_path / "new", base="fixed", collision="boxes")
    assert draft.joints["right_hinge"]["default_pos"] == pytest.approx(0.1)
    assert [joint.name for joint in robot.joints if joint.passive] == ["right_hinge"]
    model = mujoco.MjModel.from_xml_path(str(robot.model))
    data = mujoco.MjData(model)
    data.joint("left_hinge").qpos[0] = 0.5
    for _ in range(2000):
        data.qfrc_applied[:] = -2.0 * data.qvel
        mujoco.mj_step(model, data)
    assert data.joint("right_hinge").qpos[0] == pytest.approx(0.1 - data.joint("left_hinge").qpos[0], abs=1e-3)


def test_a_mimic_of_no_joint_is_one_line(tmp_path):
    path = write_mimic(tmp_path, "lefty")
    with pytest.raises(UserError, match=r"jaws.urdf: joint 'right_hinge' mimics 'lefty', which is not there"):
        drafted(path, tmp_path / "new", base="fixed", collision="boxes")


DOG = """
<mujoco model="dog">
  <compiler meshdir="sub" angle="degree"/>
  <default><default class="leg"><joint axis="0 1 0" range="-60 60"/></default></default>
  <asset><mesh name="bar" file="bar.obj"/></asset>
  <worldbody>
    <body name="trunk" pos="0 0 0.5">
      <freejoint/>
      <geom type="box" size="0.2 0.1 0.05" mass="5"/>
      <body name="FL_leg" pos="0.2 0.1 0" childclass="leg">
        <joint name="FL_hip"/><geom type="mesh" mesh="bar" mass="1"/>
      </body>
      <body name="FR_leg" pos="0.2 -0.1 0" childclass="leg">
        <joint name="FR_hip"/><geom type="mesh" mesh="bar" mass="1"/>
      </body>
    </body>
  </worldbody>
  <actuator><position name="a" joint="FL_hip" kp="30" forcerange="-9 9"/></actuator>
</mujoco>
"""
ASSET = '<asset><model name="dog" file="parts/dog.xml"/></asset>'
WRAPPED = {
    "include": '<mujoco><include file="dog.xml"/><worldbody><geom type="plane" size="1 1 1"/></worldbody></mujoco>',
    "attach": f'<mujoco>{ASSET}<worldbody><attach model="dog" prefix="r_"/></worldbody></mujoco>',
    "attach a body": f'<mujoco>{ASSET}<worldbody><frame pos="0 0 0.1"><attach model="dog" body="trunk" prefix="r_"/>'
    "</frame></worldbody></mujoco>",
    "replicate": f'<mujoco>{ASSET}<worldbody><replicate count="1" offset="1 0 0"><attach model="dog" body="trunk" '
    'prefix="r_"/></replicate></worldbody></mujoco>',
}


@pytest.mark.parametrize("kind", WRAPPED)
def test_a_model_in_another_one_is_read_with_its_meshes(tmp_path, kind):
    (tmp_path / "parts" / "sub").mkdir(parents=True)
    (tmp_path / "parts" / "sub" / "bar.obj").write_text(BAR)
    (tmp_path / "parts" / "dog.xml").write_text(DOG)
    path = tmp_path / ("parts" if kind == "include" else "") / "scene.xml"
    path.write_text(WRAPPED[kind])
    _, robot = drafted(path, tmp_path / "new")
    assert check_robot(robot) == ()
    assert [len(robot.joints), *[joint.mirror_sign for joint in robot.joints]] == [2, 1.0, 1.0]
    model = mujoco.MjModel.from_xml_path(str(robot.model))
    assert (model.nmesh, model.body_mass.sum()) == (1, pytest.approx(7.0))
    np.testing.assert_allclose(model.jnt_range[1:], np.radians([[-60, 60]] * 2), atol=1e-5)


def test_meshes_of_one_name_in_two_attached_models_are_refused(tmp_path):
    for folder, bar in (("parts", BAR), ("more", BAR.replace("0.01", "0.005"))):
        (tmp_path / folder / "sub").mkdir(parents=True)
        (tmp_path / folder / "sub" / "bar.obj").write_text(bar)
        (tmp_path / folder / "dog.xml").write_text(DOG)
    path = tmp_path / "scene.xml"
    asset = ASSET.replace("</asset>", '<model name="dog2" file="more/dog.xml"/></asset>')
    path.write_text(f'<mujoco>{asset}<worldbody><attach model="dog" prefix="r_"/></worldbody></mujoco>')
    with pytest.raises(UserError, match=r"mesh 'r_bar' may be any of .*; give the files different names"):
        drafted(path, tmp_path / "new")


LEGS = """
<mujoco>
  <worldbody>
    <body name="trunk" pos="0 0 0.5">
      <freejoint/><geom type="box" size="0.1 0.1 0.05" mass="3"/>
      <replicate count="6" euler="0 0 60">
        <body name="leg" pos="0.2 0 0">
          <joint name="hip" axis="0 1 0" range="-60 60"/><geom type="capsule" size="0.02" fromto="0 0 0 0.1 0 0"/>
          <body name="shin" pos="0.1 0 0">
            <joint name="knee" axis="0 1 0" range="-60 60"/><geom type="capsule" size="0.02" fromto="0 0 0 0 0 -0.2"/>
          </body>
        </body>
      </replicate>
    </body>
  </worldbody>
</mujoco>
"""


def test_legs_made_by_replicate(tmp_path):
    path = tmp_path / "hexapod.xml"
    path.write_text(LEGS)
    _, robot = drafted(path, tmp_path / "new")
    assert [finding for finding in check_robot(robot) if finding.is_problem] == []
    assert (len(robot.joints), len(robot.feet)) == (12, 6)


SCENE = """
<mujoco>
  <worldbody>
    <body name="arm"><joint name="elbow" axis="0 1 0"/><geom size="0.1 0.1" type="capsule"/></body>
    <body name="door" pos="1 0 0"><joint name="door"/><geom size="0.1"/>
      <body name="knob"><joint name="knob"/><geom size="0.1"/></body></body>
    <body name="ball" pos="2 0 0"><freejoint/><geom size="0.1"/></body>
  </worldbody>
  <equality><joint joint1="knob" joint2="door"/></equality>
  <actuator><motor joint="elbow"/></actuator>
</mujoco>
"""


def test_the_robot_is_what_motors_drive(tmp_path):
    path = tmp_path / "scene.xml"
    path.write_text(SCENE)
    draft, robot = drafted(path, tmp_path / "new")
    assert robot.joint_names == ("elbow",)
    assert [line for line in draft.said if "by itself" in line] == [
        "left out: body 'door', which moves by itself",
        "left out: body 'ball', which moves by itself",
    ]
    model = mujoco.MjModel.from_xml_path(str(robot.model))
    assert (model.nbody, model.neq) == (2, 0)


FLEX = """
<mujoco><worldbody><flexcomp name="cloth" type="grid" count="3 3 1" spacing="0.1 0.1 0.1" dim="2" radius="0.01"/>
</worldbody></mujoco>
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (FLEX, r"has a soft body, flex 'cloth'; robots are made of rigid ones$"),
        ("<mujocoinclude/>", r"is a fragment \(<mujocoinclude>\), no model; take the file that includes it$"),
        (
            "<mujoco><worldbody><body><freejoint/><geom size='1'/></body></worldbody></mujoco>",
            "has no hinge or slide, only bodies that move freely; a robot has joints$",
        ),
    ],
)
def test_what_moves_and_is_no_robot(tmp_path, text, line):
    path = tmp_path / "model.xml"
    path.write_text(text)
    with pytest.raises(UserError, match=line):
        read_source(path, "auto", "keep")


def fixed_link(name, inertial, shape=""):
    joint = f'<joint name="{name}" type="fixed"><parent link="lower"/><child link="{name}"/></joint></robot>'
    return f'<link name="{name}">{inertial}{shape}</link>{joint}'


def test_links_that_are_fixed_to_another_need_no_valid_inertia(tmp_path):
    """A point mass keeps its mass; a link without an inertia has none, whatever its shape."""
    point = '<inertial><mass value="0.3"/><inertia ixx="0" iyy="0" izz="0" ixy="0" ixz="0" iyz="0"/></inertial>'
    odd = '<inertial><mass value="0.2"/><inertia ixx="1" iyy="1" izz="1" ixy="1" ixz="1" iyz="1"/></inertial>'
    box = '<collision><geometry><box size="0.1 0.1 0.1"/></geometry></collision>'
    dot = '<visual><geometry><sphere radius="0"/></geometry></visual>'
    path = write_arm(tmp_path)
    for name, inertial, shape in (("mass", point, ""), ("odd", odd, ""), ("cover", "", box), ("dot", "", dot)):
        path.write_text(path.read_text().replace("</robot>", fixed_link(name, inertial, shape)))
    draft, robot = drafted(path, tmp_path / "new")
    assert check_robot(robot) == ()
    model = mujoco.MjModel.from_xml_path(str(robot.model))
    assert model.body_mass.sum() == pytest.approx(2.0 + 1.0 + 0.5 + 0.3 + 0.2)
    assert "inertia: that of mass, odd is invalid, a ball's of the same mass is there" in draft.said
    assert "left out: a shape of size 0 of link 'dot'" in draft.said


def test_the_line_of_an_error_is_that_of_the_file(tmp_path):
    """Blank lines and comments count, though the file may not begin with one by the rules of XML."""
    path = write_arm(tmp_path)
    text = '\n<?xml version="1.0"?>\n<!-- a\ncomment -->' + path.read_text()
    path.write_text(text)
    assert drafted(path, tmp_path / "new")[1].joint_names == ("shoulder", "elbow")
    path.write_text(text.replace('xyz="0.2 0 0"', 'xyz="0.2 0 zero"'))
    number = next(k for k, line in enumerate(path.read_text().splitlines(), 1) if "zero" in line)
    with pytest.raises(UserError, match=rf"bad format in attribute 'xyz' Element 'origin', line {number}$"):
        read_source(path, "auto", "keep")


def test_what_mujoco_warns_of_is_said(tmp_path, capfd):
    path = tmp_path / "arm.xml"
    path.write_text(CLASSES)
    draft, _ = drafted(path, tmp_path / "new")
    assert [line for line in draft.said if line.startswith("MuJoCo: compiler attribute 'settotalmass'")]
    assert capfd.readouterr().err == ""


def test_a_floating_robot_without_a_mirror_says_so_and_can_be_trained(quadruped, tmp_path):
    """A leg that is 5 cm further out than its partner is no mirror image, whatever their names are."""
    quadruped.write_text(quadruped.read_text().replace('name="FL_thigh" pos="0.2 0.1', 'name="FL_thigh" pos="0.2 0.15'))
    draft, robot = drafted(quadruped, tmp_path / "new")
    assert any(line.startswith("mirror: none; names of two sides are no mirror images") for line in draft.said)
    assert robot.foot_mirror == (0, 1, 2, 3)
    assert [finding.is_problem for finding in check_robot(robot)] == [False]


def test_a_robot_that_looks_along_y_is_told_to_turn(quadruped, tmp_path):
    text = quadruped.read_text()
    for x, y, name in ((0.2, 0.1, "FL"), (0.2, -0.1, "FR"), (-0.2, 0.1, "RL"), (-0.2, -0.1, "RR")):
        text = text.replace(f'name="{name}_thigh" pos="{x} {y} 0"', f'name="{name}_thigh" pos="{-y} {x} 0"')
    quadruped.write_text(text.replace('axis="0 1 0"', 'axis="1 0 0"').replace('axis="0 -1 0"', 'axis="-1 0 0"'))
    draft, _ = drafted(quadruped, tmp_path / "new")
    (line,) = [line for line in draft.said if line.startswith("mirror: none")]
    assert line.endswith("the two sides are front and back: turn the model's base so that the robot looks along +x")


def test_a_base_that_nothing_is_below_is_bolted_down(tmp_path):
    path = write_arm(tmp_path)
    path.write_text(path.read_text().replace("<collision>", '<collision><origin xyz="0 0 0.3"/>'))
    assert drafted(path, tmp_path / "new")[1].base_body is None
    with pytest.raises(UserError, match=r"0.2\d\d m above the origin of its base 'base', .*; write base=fixed"):
        drafted(path, tmp_path / "floating", base="floating")


def test_an_arm_with_two_fingers_of_two_joints_is_fixed(tmp_path):
    links = ["base", *(f"link{k}" for k in range(4)), "l1", "l2", "r1", "r2"]
    parents = {"link0": "base", "link1": "link0", "link2": "link1", "link3": "link2"}
    parents |= {"l1": "link3", "l2": "l1", "r1": "link3", "r2": "r1"}
    text = "".join(f'<link name="{name}">{INERTIAL}</link>' for name in links)
    text += "".join(
        f'<joint name="{child}" type="revolute"><parent link="{parent}"/><child link="{child}"/><axis xyz="0 1 0"/>'
        f'<origin xyz="0 {0.1 if child[0] == "l" else -0.1} 0.1"/>'
        '<limit lower="-1" upper="1" effort="5" velocity="2"/></joint>'
        for child, parent in parents.items()
    )
    path = tmp_path / "arm.urdf"
    path.write_text(f'<robot name="arm">{text}</robot>')
    source = read_source(path, "auto", "boxes")
    assert source.base is None
    assert "base: fixed, since the file has 1 limbs; base= says it otherwise" in source.said


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"inertial": ""}, "arm.urdf: link 'lower' moves and has no <inertial>; give it one"),
        ({"second": "shoulder"}, "arm.urdf: joint 'shoulder' is there twice; names must be unique"),
        ({"inertial": INERTIAL + '<collision><geometry><mesh filename="a/hand.stl"/></geometry></collision>'}, "mesh"),
    ],
)
def test_bad_input_is_one_line_with_file_and_element_and_nothing_is_written(run, in_tmp, change, line):
    assert run("new", "project", "mine")[0] == 0
    path = write_arm(in_tmp, **change)
    before = sorted(in_tmp.rglob("*"))
    code, out, err = run("new", "robot", "cat", f"from={path}", "root=mine")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"from={path}" in err
    assert ("mesh 'hand' is missing: " if line == "mesh" else line) in err
    assert sorted(in_tmp.rglob("*")) == before

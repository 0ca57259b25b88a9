"""Guesses about a robot: feet, pose, mirror, limits, gains and grippers, each with its reason as a note."""

import mujoco
import numpy as np
import pytest
from robot_rl_envs.entity.robot_checks import check_robot

from robot_rl.robots.draft import make_draft
from robot_rl.robots.parts import Gains
from robot_rl.robots.source import read_source
from tests.unit.robots.files import BAR, DOG, drafted, joint, link, notes, refused, urdf, write


@pytest.fixture
def quadruped(tmp_path):
    write(tmp_path / "parts", BAR, "bar.obj")
    return write(tmp_path, DOG)


@pytest.mark.parametrize("collision", ["meshes", "primitives", "boxes"])
def test_a_quadruped_is_drafted_and_sound(quadruped, collision):
    draft, robot, model = drafted(quadruped, collision=collision)
    assert check_robot(robot) == ()
    source = mujoco.MjModel.from_xml_path(str(quadruped))
    assert (model.nu, model.nsensor, model.nlight) == (0, 0, 0)
    assert not (model.geom_type == int(mujoco.mjtGeom.mjGEOM_PLANE)).any()
    assert model.nmesh == (1 if collision == "meshes" else 0)
    assert (robot.model.parent / "meshes" / "bar.obj").exists() == (collision == "meshes")
    for i in range(1, model.nbody):
        name = model.body(i).name
        assert model.body(name).mass == pytest.approx(source.body(name).mass)
        assert np.sort(model.body(name).inertia) == pytest.approx(np.sort(source.body(name).inertia))
    assert set(model.geom_group) <= {2, 3}
    assert robot.base_body == "trunk"
    assert any("table" in line for line in draft.notes)


def test_feet_pose_and_mirror(quadruped):
    """Knees that cannot be straight are bent, with the foot below the hip; the right ones turn the other way."""
    draft, robot, _ = drafted(quadruped)
    assert robot.feet == ("FL", "FR", "RL", "RR")
    assert robot.foot_radius == 0.025
    assert robot.foot_mirror == (1, 0, 3, 2)
    joints = {joint.name: joint for joint in robot.joints}
    assert [joints[name].default_pos for name in ("FL_knee", "FR_knee")] == [-1.5, 1.5]
    assert (joints["FL_knee"].mirror, joints["FL_knee"].mirror_sign) == ("FR_knee", -1.0)
    assert joints["FL_hip"].mirror_sign == 1.0
    assert joints["FL_hip"].default_pos == pytest.approx(0.75, abs=0.1)  # Half of the knee's angle.
    assert robot.base_height == pytest.approx(2 * 0.2 * np.cos(0.75) + 0.025, abs=0.01)
    assert notes(draft, "standing: it holds its default pose")


def test_limits_are_taken_and_missing_ones_are_noted(quadruped):
    draft, robot, _ = drafted(quadruped)
    joints = {joint.name: joint for joint in robot.joints}
    # A motor's control range times its gear; the force range of a position actuator; the other side has none.
    assert joints["FL_hip"].effort_limit == joints["FR_hip"].effort_limit
    efforts = {name: limits.effort for name, limits in read_source(quadruped, "auto", "keep").limits.items()}
    assert efforts == {"FL_hip": 12.0, "FL_knee": 9.0}
    line = notes(draft, "effort limit: the file has none for ")[0]
    assert "FR_hip" in line
    assert "FL_hip" not in line
    assert notes(draft, "velocity limit: the file has none for all joints")


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


def test_a_foot_without_a_sphere_gets_one(quadruped):
    foot = 'type="box" size="0.03 0.02 0.01"'
    draft, robot, _ = drafted(write(quadruped.parent, DOG.replace('type="sphere" size="0.025"', foot)))
    assert check_robot(robot) == ()
    assert robot.foot_radius == 0.02
    assert any("spheres of 0.02 m were added" in line for line in draft.notes)


@pytest.mark.parametrize("damage", ["moved", "turned"])
def test_a_robot_without_a_mirror_has_a_reason_and_can_be_trained(quadruped, damage):
    """A leg is 5 cm further out than its partner, or the robot looks along y."""
    text = DOG.replace('name="FL_thigh" pos="0.2 0.1', 'name="FL_thigh" pos="0.2 0.15')
    if damage == "turned":
        text = DOG
        for x, y, name in ((0.2, 0.1, "FL"), (0.2, -0.1, "FR"), (-0.2, 0.1, "RL"), (-0.2, -0.1, "RR")):
            text = text.replace(f'name="{name}_thigh" pos="{x} {y} 0"', f'name="{name}_thigh" pos="{-y} {x} 0"')
        text = text.replace('axis="0 1 0"', 'axis="1 0 0"').replace('axis="0 -1 0"', 'axis="-1 0 0"')
    draft, robot, _ = drafted(write(quadruped.parent, text))
    (line,) = notes(draft, "mirror: none; names of two sides are not mirror images")
    assert line.endswith("turn the model's base so that the robot looks along +x") == (damage == "turned")
    assert robot.foot_mirror == (0, 1, 2, 3)
    assert [finding.is_problem for finding in check_robot(robot)] == [False]


def arm(shape=""):
    limits = ('lower="-1" upper="1" effort="20" velocity="3"', 'lower="-2" upper="-0.5" effort="7" velocity="4"')
    joints = (("shoulder", "base", "upper"), ("elbow", "upper", "lower"))
    links = (link("base", shape), link("upper", com="0.1 0 0"), link("lower", com="0.1 0 0"))
    return urdf(
        *links, *(joint(*names, limit=limit, at="0.2 0 0") for names, limit in zip(joints, limits, strict=True))
    )


def test_an_arm_from_a_urdf_and_its_base(tmp_path):
    box = '<collision>{}<geometry><box size="0.1 0.1 0.1"/></geometry></collision>'
    path = write(tmp_path, arm(box.format("")), "arm.urdf")
    draft, robot, _ = drafted(path)
    assert check_robot(robot) == ()
    assert (robot.base_body, robot.feet, robot.joint_names) == (None, (), ("shoulder", "elbow"))
    assert [joint.effort_limit for joint in robot.joints] == [20.0, 7.0]
    assert [joint.velocity_limit for joint in robot.joints] == [3.0, 4.0]
    assert [joint.default_pos for joint in robot.joints] == [0.0, -1.25]
    assert "base: fixed, since the file has 1 limb; set base= to change it" in draft.notes
    assert drafted(path, base="floating")[1].base_body == "base"
    path = write(tmp_path, arm(box.format('<origin xyz="0 0 0.3"/>')), "arm.urdf")
    line = refused(path, base="floating")
    assert "0.2" in line
    assert line.endswith("so that it cannot stand on the ground; write base=fixed")


def test_a_fixed_base_has_no_feet(quadruped):
    _, robot, _ = drafted(quadruped, base="fixed")
    assert (robot.base_body, robot.base_height, robot.feet) == (None, 0.0, ())


def test_an_arm_with_two_fingers_of_two_joints_is_fixed(tmp_path):
    parents = {"link0": "base", "link1": "link0", "link2": "link1", "link3": "link2"}
    parents |= {"l1": "link3", "l2": "l1", "r1": "link3", "r2": "r1"}
    joints = [joint(child, parent, child, at="0 0.1 0.1") for child, parent in parents.items()]
    text = urdf(link("base"), *map(link, parents), *joints)
    source = read_source(write(tmp_path, text, "arm.urdf"), "auto", "boxes")
    assert source.base is None
    assert "base: fixed, since the file has 1 limb; set base= to change it" in source.notes


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
    draft, robot, model = drafted(write(tmp_path, GRIPPER, "hand.xml"))
    near, far = draft.joints["near_slide"], draft.joints["far_slide"]
    assert (near["default_pos"], near["effort_limit"]) == (0.02, 40.0)
    assert (far["default_pos"], far["effort_limit"], far["kp"]) == (0.04, 0.0, 0.0)
    assert [joint.name for joint in robot.joints if joint.passive] == ["far_slide"]
    assert model.neq == 1
    # between the fingers as they are in the default pose: y = (0.02 + 0.02 - 0.02 - 0.04) / 2
    np.testing.assert_allclose(model.site("hand_tcp").pos, [0, -0.01, 0.08], atol=1e-6)
    assert notes(draft, "gripper: near_slide, far_slide on hand, driven by near_slide")
    assert notes(draft, "left out: 1 tendons")


def test_legs_made_by_replicate(tmp_path):
    leg = """<body name="leg" pos="0.2 0 0"><joint name="hip" axis="0 1 0" range="-60 60"/>
      <geom type="capsule" size="0.02" fromto="0 0 0 0.1 0 0"/>
      <body name="shin" pos="0.1 0 0"><joint name="knee" axis="0 1 0" range="-60 60"/>
        <geom type="capsule" size="0.02" fromto="0 0 0 0 0 -0.2"/></body></body>"""
    text = f"""<mujoco><worldbody><body name="trunk" pos="0 0 0.5"><freejoint/>
      <geom type="box" size="0.1 0.1 0.05" mass="3"/><replicate count="6" euler="0 0 60">{leg}</replicate></body>
      </worldbody></mujoco>"""
    _, robot, _ = drafted(write(tmp_path, text, "hexapod.xml"))
    assert [finding for finding in check_robot(robot) if finding.is_problem] == []
    assert (len(robot.joints), len(robot.feet)) == (12, 6)

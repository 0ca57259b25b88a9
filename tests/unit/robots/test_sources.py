"""Robots from models of MuJoCo's: a file keeps its meaning, its scene is removed, and both are noted."""

import math

import mujoco
import numpy as np
import pytest
from robot_rl_envs.entity.robot_checks import check_robot, other_side
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.task import Actions, Sim

from robot_rl.robots.source import read_source
from tests.unit.robots.files import BAR, dog, drafted, joint, link, notes, refused, urdf, write


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ('<option><flag contact="disable"/></option>', "disableflags"),
        ('<option><flag gravity="disable"/></option>', "disableflags"),
        ('<option gravity="0 0 -1.6"/>', "gravity"),
        ('<option density="1000" viscosity="1"/>', "density"),
        ('<option impratio="100"/>', "impratio"),
        ('<size memory="64K"/>', "memory"),
    ],
)
def test_options_of_the_sources_scene_are_left_out(tmp_path, option, name):
    draft, robot, model = drafted(write(tmp_path, dog(head=option)))
    (line,) = notes(draft, "left out: ")
    assert name in line
    assert model.opt.gravity[2] == pytest.approx(-9.81)
    assert (model.opt.disableflags, model.opt.density, model.opt.impratio) == (0, 0.0, 1.0)
    assert "<size" not in robot.model.read_text()
    assert notes(draft, "standing: it holds its default pose")
    assert notes(drafted(write(tmp_path, dog(), "plain.xml"))[0], "left out: ") == []


@pytest.mark.parametrize(
    ("text", "way"),
    [
        (dog(head='<default><geom solref="-1 -0.1" solimp="0.0001 0.0001 0.001"/></default>'), "sinks"),
        (dog('gravcomp="3"'), "rises"),
    ],
)
def test_a_base_that_sinks_or_rises_by_more_than_its_height_is_a_problem(run, in_tmp, text, way):
    """Contacts that give way like feathers, and a base that falls upwards."""
    assert drafted(write(in_tmp, dog()))[0].problems == []
    assert run("new", "project", "mine")[0] == 0
    code, out, _ = run("new", "robot", "odd", f"from={write(in_tmp, text, 'odd.xml')}", "root=mine")
    assert code == 1
    assert f"problem: standing: base 'trunk' {way} by " in out
    assert "holds its default pose" not in out


def turned(draft, model):
    """The rotation of everything in the base, in which it stands."""
    data = mujoco.MjData(model)
    data.qpos[:7] = [0, 0, draft.height, 1, 0, 0, 0]
    mujoco.mj_forward(model, data)
    return data


KEY = '<keyframe><key qpos="0 0 0.5 {quat} 0 0 0 0 0 0 0 0"/></keyframe>'


@pytest.mark.parametrize("kind", ["body", "keyframe", "body with a frame", "inertial"])
def test_a_base_that_is_turned_stands_as_the_file_has_it(tmp_path, kind):
    """The model has y upwards; its body, or its keyframe, turns it by a quarter about x."""
    up = {"up": lambda x, y, z: (x, z, -y), "geom": 'type="box" size="0.2 0.05 0.1"'}
    if kind == "keyframe":
        text = dog(more=KEY.format(quat="0.70710678 0.70710678 0 0"), **up)
    else:
        text = dog('euler="1.5707963 0 0"', **up)
    if kind == "body with a frame":
        extra = '<frame pos="0 0.1 0"><geom name="fin" type="box" size="0.01 0.02 0.03"/><site name="imu"/></frame>'
        text = text.replace('mass="5"/>', f'mass="5"/>{extra}')
    if kind == "inertial":
        inertial = '<inertial pos="0 0.02 0.01" mass="6" diaginertia="0.1 0.2 0.25" euler="0 0.3 0"/>'
        text = text.replace("<freejoint/>", f"<freejoint/>{inertial}")
    path = write(tmp_path, text)
    draft, robot, model = drafted(path)
    assert robot.feet == ("FL", "FR", "RL", "RR")
    assert notes(draft, "standing: it holds its default pose")
    assert notes(draft, "mirror: 4 pairs")
    assert [line for line in notes(draft, "base: ") if "leans by 90 degrees" in line]
    assert [finding for finding in check_robot(robot) if finding.is_problem] == []
    source = mujoco.MjModel.from_xml_path(str(path))
    own = mujoco.MjData(source)
    own.qpos[:7] = [0, 0, draft.height, 0.70710678, 0.70710678, 0, 0]
    mujoco.mj_forward(source, own)
    data = turned(draft, model)
    for name in ("trunk", "FL_calf", "RR_thigh"):
        np.testing.assert_allclose(data.body(name).xipos, own.body(name).xipos, atol=1e-5)
        moments = [one.body(name).ximat.reshape(3, 3) for one in (data, own)]
        inertias = [m @ np.diag(one.body(name).inertia) @ m.T for m, one in zip(moments, (model, source), strict=True)]
        np.testing.assert_allclose(*inertias, atol=1e-5)
    if kind == "body with a frame":
        np.testing.assert_allclose(data.geom("fin").xmat, own.geom("fin").xmat, atol=1e-5)
        np.testing.assert_allclose(data.site("imu").xpos, own.site("imu").xpos, atol=1e-5)
        np.testing.assert_allclose(data.site("imu").xmat, np.eye(3).ravel(), atol=1e-5)


def test_a_turn_about_the_vertical_is_of_the_scene(tmp_path):
    """The same robot whichever way it looks in its scene, by its body, by a frame around it, or by a keyframe."""
    frame = (
        dog().replace("<worldbody>", '<worldbody><frame euler="0 0 2">').replace("</worldbody>", "</frame></worldbody>")
    )
    texts = [dog(), dog('euler="0 0 2"'), frame, dog(more=KEY.format(quat="0.5403023 0 0 0.8414710"))]
    for k, text in enumerate(texts):
        draft, robot, model = drafted(write(tmp_path / str(k), text))
        assert notes(draft, "mirror: 4 pairs")
        assert notes(draft, "base: ") == []
        assert robot.feet == ("FL", "FR", "RL", "RR")
        np.testing.assert_allclose(model.body("trunk").quat, [1, 0, 0, 0], atol=1e-6)


def test_a_keyframe_that_leans_a_little_keeps_the_heading_of_the_base(tmp_path):
    """Turned by 2 rad about the vertical, then by 0.3 rad about the base's own y: only the second is its pose."""
    quat, heading, lean = np.zeros(4), [math.cos(1), 0, 0, math.sin(1)], [math.cos(0.15), 0, math.sin(0.15), 0]
    mujoco.mju_mulQuat(quat, np.array(heading), np.array(lean))
    draft, _, _ = drafted(write(tmp_path, dog(more=KEY.format(quat=" ".join(map(str, quat))))))
    np.testing.assert_allclose(draft.turn, lean, atol=1e-6)


def test_a_mesh_in_a_frame_with_an_angle_becomes_a_shape_that_is_where_it_was(tmp_path):
    (tmp_path / "bar.obj").write_text(BAR)
    asset = '<asset><mesh name="bar" file="bar.obj"/></asset>'
    extra = '<frame pos="0 0 0.2" euler="0 0.5 0"><geom type="mesh" mesh="bar" euler="0 0 0.7" mass="1"/></frame>'
    path = write(tmp_path, dog(head=asset, extra=extra))
    _, _, model = drafted(path, collision="primitives")
    source = mujoco.MjModel.from_xml_path(str(path))
    own, new = ((m.body("trunk").geomadr[0] + 1) for m in (source, model))
    turns = [np.zeros(9), np.zeros(9)]
    for turn, m, k in ((turns[0], source, own), (turns[1], model, new)):
        mujoco.mju_quat2Mat(turn, m.geom_quat[k])
    center = source.geom_pos[own] + turns[0].reshape(3, 3) @ source.geom_aabb[own, :3]
    new = next(k for k in range(model.ngeom) if np.allclose(model.geom_pos[k], center, atol=1e-4))
    assert model.geom_bodyid[new] == model.body("trunk").id


ACTUATORS = """
<motor joint="FL_hip" ctrllimited="true" ctrlrange="-10 10" gear="3"/><motor joint="FL_hip" ctrlrange="-2 2"/>
<velocity joint="FL_knee" kv="5" ctrlrange="-20 20"/>
<motor joint="FR_hip" ctrlrange="-30 0"/><position joint="FR_knee" kp="20" forcerange="-7 0"/>
<motor joint="RL_hip" ctrllimited="false" ctrlrange="-30 30"/>
<velocity joint="RL_knee" kv="2" forcerange="-3 3" ctrlrange="-8 8"/><adhesion body="RR_hip" ctrlrange="0 1" gain="90"/>
<motor joint="RR_hip" ctrlrange="-1 1" forcerange="-0.5 0.5" gear="30"/>
<motor joint="RR_knee" ctrlrange="-30 30"/>
"""


def test_each_actuator_says_what_it_limits(tmp_path):
    """A motor's control is an effort, a velocity servo's a speed; several add up, and adhesion is no joint's."""
    text = dog(more=f"<actuator>{ACTUATORS}</actuator>").replace('body name="RR_thigh"', 'body name="RR_hip"')
    text = text.replace('name="RR_knee" axis', 'name="RR_knee" actuatorfrcrange="-12 12" axis')
    source = read_source(write(tmp_path, text), "auto", "meshes")
    efforts = {name: limits.effort for name, limits in source.limits.items() if limits.effort}
    speeds = {name: limits.velocity for name, limits in source.limits.items() if limits.velocity}
    assert efforts == {"FL_hip": 32, "FR_hip": 30, "FR_knee": 7, "RL_knee": 3, "RR_hip": 15, "RR_knee": 12}
    assert speeds == {"FL_knee": 20.0, "RL_knee": 8.0}
    assert (
        "effort limit: joint 'FL_hip' has 2 actuators; its limit is 32, the sum of those with a limit" in source.notes
    )


def test_what_a_tendon_couples_to_a_driven_joint_is_driven_and_a_joint_that_is_not_there_is_refused(tmp_path):
    motors = "".join(f'<motor joint="{end}{side}_hip"/>' for end in "FR" for side in "LR")
    joints = '<joint joint="FL_hip" coef="1"/><joint joint="FL_knee" coef="-1"/>'
    tendon = f'<tendon><fixed name="t">{joints}</fixed></tendon>'
    more = f"{tendon}<actuator>{motors}</actuator>"
    source = read_source(write(tmp_path, dog(more=more)), "auto", "meshes")
    assert source.passive == ["FR_knee", "RL_knee", "RR_knee"]
    for name in ('motor joint="FR_hip"', 'joint joint="FL_hip"'):
        text = dog(more=more.replace("<actuator>", '<actuator><motor tendon="t"/>'))
        text = text.replace(name, name.replace("_hip", "_hop"))
        assert "drives a joint that is not there; correct its name" in refused(write(tmp_path, text))


def test_limits_of_two_sides_that_differ_are_kept_and_said(tmp_path):
    motors = "".join(
        f'<motor joint="{end}{side}_{part}" ctrlrange="-{limit} {limit}"/>'
        for end, side, part, limit in (("F", "L", "hip", 20), ("F", "R", "hip", 30), ("F", "L", "knee", 9))
    )
    others = "".join(f'<motor joint="{name}"/>' for name in ("FR_knee", "RL_hip", "RL_knee", "RR_hip", "RR_knee"))
    draft, robot, _ = drafted(write(tmp_path, dog(more=f"<actuator>{motors}{others}</actuator>")))
    efforts = {joint.name: joint.effort_limit for joint in robot.joints}
    assert (efforts["FL_hip"], efforts["FR_hip"]) == (20.0, 30.0)
    assert (efforts["FL_knee"], efforts["FR_knee"]) == (9.0, 9.0)
    assert notes(draft, "effort limit: two sides differ: 'FL_hip' has 20 and 'FR_hip' 30")
    assert "effort limit: the file has none for FR_knee; that of the other side is there" in draft.notes
    assert efforts["RL_hip"] == efforts["RR_hip"]


def test_couplings_of_a_model_in_degrees_with_reference_positions(tmp_path):
    """MuJoCo couples what joints have moved from their references, here of 20 and -10 degrees."""
    text = """<mujoco><worldbody><body name="palm"><joint name="wrist" range="-90 90"/><geom size="0.1"/>
      <body name="a"><joint name="ja" ref="20" range="10 80"/><geom size="0.1"/></body>
      <body name="b"><joint name="jb" ref="-10" range="-20 30"/><geom size="0.1"/></body></body></worldbody>
      <equality><joint joint1="jb" joint2="ja" polycoef="0 2 0 0 0"/></equality></mujoco>"""
    _, robot, model = drafted(write(tmp_path, text, "hand.xml"))
    np.testing.assert_allclose(model.joint("ja").range, np.radians([15, 40]), atol=1e-5)
    pose = {one.name: one.default_pos for one in robot.joints}
    rise = pose["ja"] - math.radians(20)
    assert pose["jb"] == pytest.approx(math.radians(-10) + 2 * rise, abs=1e-5)
    assert [finding for finding in check_robot(robot) if finding.is_problem] == []


@pytest.mark.parametrize("folder", ["Rob's robot", 'a "b"', "a & b", "a < b", "ä ö"])
@pytest.mark.parametrize("kind", ["urdf", "xml"])
def test_paths_with_letters_that_xml_escapes(tmp_path, folder, kind):
    """Nothing in model.xml names where the source lies; its meshes are in the robot's own folder."""
    write(tmp_path / folder, BAR, "it's.obj")
    shape = '<visual><geometry><mesh filename="it\'s.obj"/></geometry></visual>'
    text = urdf(link("base"), link("arm", shape), joint("j", "base", "arm"))
    if kind == "xml":
        text = dog(head='<asset><mesh name="bar" file="it\'s.obj"/></asset>', extra='<geom type="mesh" mesh="bar"/>')
    _, robot, model = drafted(write(tmp_path / folder, text, f"arm.{kind}"))
    assert model.nmesh == 1
    assert str(tmp_path) not in robot.model.read_text()
    assert (robot.model.parent / "meshes" / "it's.obj").is_file()


TAKEN = """<asset><texture name="sky" type="2d" builtin="flat" width="8" height="8"/>
  <material name="terrain" texture="sky"/>
  <texture name="terrain" type="skybox" builtin="gradient" width="8" height="48"/></asset>"""


def test_names_of_the_scene_are_renamed_at_once(tmp_path):
    extra = '<geom name="floor" type="box" size="0.01 0.01 0.01" material="terrain"/>'
    draft, robot, model = drafted(write(tmp_path, dog(head=TAKEN, extra=extra)))
    assert len(notes(draft, "names: ")) == 4
    scene = Scene(robot, Sim(), Actions())
    assert scene.render_model.geom("floor").type == int(mujoco.mjtGeom.mjGEOM_PLANE)
    material = int(model.geom_matid[model.geom("robot_floor_1").id])
    assert model.material(material).name == "robot_terrain_1"
    assert model.texture(int(model.mat_texid[material][1])).name == "robot_sky_1"


@pytest.mark.parametrize(
    "names",
    [("lf", "lm", "lr", "rf", "rm", "rr"), ("L1", "L2", "L3", "R1", "R2", "R3"), ("LF", "LM", "LH", "RF", "RM", "RH")],
)
def test_names_of_six_legs_have_their_sides(names):
    joints = [f"{name}_coxa_joint" for name in names]
    assert [other_side(joint, joints) for joint in joints] == joints[3:] + joints[:3]
    dogs = ["FL_hip", "FR_hip", "RL_hip", "RR_hip"]
    assert [other_side(name, dogs) for name in dogs] == ["FR_hip", "FL_hip", "RR_hip", "RL_hip"]


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


def test_classes_frames_textures_and_names_that_are_missing(tmp_path, capfd):
    """What is read again is the source: its masses, its axes in frames, its ranges in degrees."""
    draft, robot, model = drafted(write(tmp_path, CLASSES, "arm.xml"))
    assert check_robot(robot) == ()
    assert [joint.name for joint in robot.joints] == ["body_1_joint_1", "second"]
    assert notes(draft, "names: 2 bodies had none")
    assert notes(draft, "MuJoCo: compiler attribute 'settotalmass'")
    assert capfd.readouterr().err == ""
    plain = CLASSES.replace('<texture name="paint" type="2d" file="paint.png"/>', "").replace(' texture="paint"', "")
    source = mujoco.MjModel.from_xml_string(plain)
    np.testing.assert_allclose(model.body_mass, source.body_mass, atol=1e-6)
    np.testing.assert_allclose(model.jnt_axis, source.jnt_axis, atol=1e-6)
    np.testing.assert_allclose(model.jnt_range, np.radians([[-90, 90], [-45, 45]]), atol=1e-5)
    assert (model.nkey, model.ntex) == (0, 0)


LEGLESS = """
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
    write(tmp_path / "parts" / "sub", BAR, "bar.obj")
    write(tmp_path / "parts", LEGLESS)
    _, robot, model = drafted(write(tmp_path / ("parts" if kind == "include" else ""), WRAPPED[kind], "scene.xml"))
    assert check_robot(robot) == ()
    assert [len(robot.joints), *[joint.mirror_sign for joint in robot.joints]] == [2, 1.0, 1.0]
    assert (model.nmesh, model.body_mass.sum()) == (1, pytest.approx(7.0))
    np.testing.assert_allclose(model.jnt_range[1:], np.radians([[-60, 60]] * 2), atol=1e-5)


def test_meshes_of_one_name_in_two_attached_models_are_refused(tmp_path):
    for folder, bar in (("parts", BAR), ("more", BAR.replace("0.01", "0.005"))):
        write(tmp_path / folder / "sub", bar, "bar.obj")
        write(tmp_path / folder, LEGLESS)
    asset = ASSET.replace("</asset>", '<model name="dog2" file="more/dog.xml"/></asset>')
    text = f'<mujoco>{asset}<worldbody><attach model="dog" prefix="r_"/></worldbody></mujoco>'
    line = refused(write(tmp_path, text, "scene.xml"))
    assert "mesh 'r_bar' may be any of " in line
    assert line.endswith("; give the files different names")


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
    draft, robot, model = drafted(write(tmp_path, SCENE, "scene.xml"))
    assert robot.joint_names == ("elbow",)
    names = ("door", "ball")
    assert notes(draft, "left out: body") == [f"left out: body '{name}', which moves by itself" for name in names]
    assert (model.nbody, model.neq) == (2, 0)


FLEX = '<flexcomp name="cloth" type="grid" count="3 3 1" spacing="0.1 0.1 0.1" dim="2" radius="0.01"/>'


@pytest.mark.parametrize(
    ("bodies", "line"),
    [
        (FLEX, "has a soft body, flex 'cloth'; robots are made of rigid ones"),
        (
            "<body><freejoint/><geom size='1'/></body>",
            "has only bodies that move freely, without a hinge or slide; a robot has",
        ),
        ("<body><geom size='1'/></body>", "is without a joint; a robot has some"),
        (
            "<body name='a'><joint/><geom size='1'/></body><body name='b'><joint/><geom size='1'/></body>",
            "has 2 things that could be the robot (a, b); leave one in a copy",
        ),
        ("<body><joint name='j' type='ball'/><geom size='1'/></body>", "joint 'j' is a ball; joints must be hinges"),
    ],
)
def test_what_is_no_robot(tmp_path, bodies, line):
    assert line in refused(write(tmp_path, f"<mujoco><worldbody>{bodies}</worldbody></mujoco>"))


def test_fragments_and_damaged_files(tmp_path):
    line = refused(write(tmp_path, "<mujocoinclude/>"))
    assert line.endswith("is a fragment (<mujocoinclude>), no model; take the file that includes it")
    assert "XML parse error" in refused(write(tmp_path, "<mujoco><worldbody>"))

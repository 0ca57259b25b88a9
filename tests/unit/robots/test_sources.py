"""Robots from files of all kinds: what a file means is kept, what is of its scene is removed, and both are noted."""

import math
import struct

import mujoco
import numpy as np
import pytest
import torch
from robot_rl_envs.entity.couplings import find_leaders
from robot_rl_envs.entity.robot_checks import check_robot, other_side
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import events, observations, rewards
from robot_rl_envs.task import Actions, Event, Observation, ObservationGroup, Reward, Sim, Task

from robot_rl.robots.source import read_source
from tests.unit.robots.files import BAR, LIMIT, dog, drafted, joint, link, notes, refused, urdf, write


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
    centre = source.geom_pos[own] + turns[0].reshape(3, 3) @ source.geom_aabb[own, :3]
    new = next(k for k in range(model.ngeom) if np.allclose(model.geom_pos[k], centre, atol=1e-4))
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


def fingers(mimics, limits=None, order="abc"):
    """A palm with fingers a, b and c; `mimics` by finger."""
    limits = limits or {}
    return urdf(
        link("palm"),
        *(link(name) for name in "abc"),
        *(joint(f"j{k}", "palm", k, limit=limits.get(k, LIMIT), more=mimics.get(k, "")) for k in order),
    )


def mimic(leader, factor=1.0, offset=0.0):
    return f'<mimic joint="j{leader}" multiplier="{factor}" offset="{offset}"/>'


@pytest.mark.parametrize("order", ["abc", "cba", "bca"])
def test_a_chain_of_mimics_follows_one_joint_in_any_order(tmp_path, order):
    """C = 0.1 - B and B = 0.2 + 2 A, so C = -0.1 - 2 A; each equality is in the model once."""
    text = fingers({"b": mimic("a", 2.0, 0.2), "c": mimic("b", -1.0, 0.1)}, order=order)
    draft, robot, model = drafted(write(tmp_path, text, "hand.urdf"))
    assert model.neq == 2
    assert [one.name for one in robot.joints if not one.passive] == ["ja"]
    assert sorted(notes(draft, "coupled: ")) == [
        f"coupled: joint 'j{k}' follows 'ja'; one action drives both" for k in "bc"
    ]
    scene = Scene(robot, Sim(), Actions())
    follows = dict(zip(robot.joint_names, scene.entity.joint_follows, strict=True))
    places = {name: k for k, name in enumerate(robot.joint_names)}
    np.testing.assert_allclose(follows["jb"], [places["ja"], 2.0, 0.2], atol=1e-6)
    np.testing.assert_allclose(follows["jc"], [places["ja"], -2.0, -0.1], atol=1e-6)
    assert follows["ja"][0] == -1
    pose = {one.name: one.default_pos for one in robot.joints}
    assert (pose["jb"], pose["jc"]) == pytest.approx((0.2 + 2 * pose["ja"], -0.1 - 2 * pose["ja"]))


def test_a_reset_keeps_a_chain_of_mimics_together(tmp_path):
    """Joints are spread by 0.5 rad, and c, which is before b in the file, follows b, which follows a."""
    text = fingers({"b": mimic("a", 2.0, 0.2), "c": mimic("b", -1.0, 0.1)}, order="cba")
    _, robot, _ = drafted(write(tmp_path, text.replace('lower="-1" upper="1"', 'lower="-3" upper="3"'), "hand.urdf"))
    joints = ObservationGroup(terms={"pos": Observation(observations.joint_pos_rel)})
    task = Task(
        name="hand",
        summary="",
        robot=robot,
        observations={"actor": joints, "critic": joints},
        rewards={"alive": Reward(rewards.alive, weight=1.0)},
        events={"joints": Event(events.reset_joints, position=0.5, velocity=0.5)},
        episode_length_s=1.0,
        num_envs=(8, 8),
    )
    env = make_env(task, num_envs=8, device="cpu", seed=1)
    env.reset()
    pos = dict(zip(robot.joint_names, env.state.joint_pos.T, strict=True))
    assert float(pos["ja"].abs().max()) > 0.1
    torch.testing.assert_close(pos["jb"], 0.2 + 2.0 * pos["ja"])
    torch.testing.assert_close(pos["jc"], 0.1 - pos["jb"])
    env.close()


@pytest.mark.parametrize(
    ("mimics", "line"),
    [
        ({"b": mimic("b")}, "joint 'jb' mimics itself; take out one <mimic>"),
        ({"a": mimic("b"), "b": mimic("a")}, "mimics itself, through j"),
        ({"a": mimic("b"), "b": mimic("c"), "c": mimic("a", 2)}, "mimics itself, through j"),
        ({"b": mimic("x")}, "joint 'jb' mimics 'jx', which is not there"),
    ],
)
def test_mimics_that_lead_nowhere_are_refused(tmp_path, mimics, line):
    assert line in refused(write(tmp_path, fingers(mimics), "hand.urdf"))


def test_a_leader_stays_where_its_followers_can_follow(tmp_path):
    limits = {
        "a": 'lower="0.2" upper="0.8" effort="5" velocity="2"',
        "b": 'lower="0" upper="0.6" effort="5" velocity="2"',
    }
    draft, robot, model = drafted(write(tmp_path, fingers({"b": mimic("a", 2.0)}, limits), "hand.urdf"))
    np.testing.assert_allclose(model.joint("ja").range, [0.2, 0.3], atol=1e-6)
    assert "range: that of 'ja' is 0.2 to 0.3, in which 'jb' can follow" in draft.notes
    assert [finding for finding in check_robot(robot) if finding.is_problem] == []
    pose = {one.name: one.default_pos for one in robot.joints}
    assert pose["jb"] == pytest.approx(2.0 * pose["ja"])
    limits["b"] = 'lower="2" upper="3" effort="5" velocity="2"'
    line = refused(write(tmp_path, fingers({"b": mimic("a", 2.0)}, limits), "hand.urdf"))
    assert "joint 'jb' follows 'ja' and is out of its range wherever that is" in line


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


def test_leaders_are_found_whatever_the_order_and_a_circle_is_none():
    pairs = [("c", "b", -1.0, 0.1), ("b", "a", 2.0, 0.2)]
    assert find_leaders(pairs) == {"b": ("a", 2.0, 0.2), "c": ("a", -2.0, -0.1)}
    assert find_leaders(pairs, ["c"]) == {"b": ("c", -1.0, 0.1), "a": ("c", -0.5, pytest.approx(-0.05))}
    assert find_leaders([*pairs, ("b", "a", 2.0, 0.2)]) == find_leaders(pairs)
    with pytest.raises(ValueError, match="follow each other in a circle"):
        find_leaders([*pairs, ("a", "c", 1.0, 0.0)])


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


def test_an_inertia_that_no_body_has_stays_near_the_files_and_is_said(tmp_path):
    """0.1 > 0.001 + 0.001: every moment changes by sqrt(50); one that is only rounded is not worth a line."""
    text = urdf(link("base"), link("arm", moments=(0.001, 0.001, 0.1)), joint("j", "base", "arm"))
    draft, _, model = drafted(write(tmp_path, text, "arm.urdf"))
    (line,) = notes(draft, "inertia: ")
    assert line.startswith(
        "inertia: that of 'arm' has a principal moment above the sum of the other two; all three are"
    )
    root = math.sqrt(50)
    np.testing.assert_allclose(np.sort(model.body("arm").inertia), [0.001 * root, 0.001 * root, 0.1 / root], rtol=1e-3)
    text = text.replace('izz="0.1"', 'izz="0.0020001"')
    draft, _, model = drafted(write(tmp_path, text, "arm.urdf"))
    assert notes(draft, "inertia: ") == []
    np.testing.assert_allclose(np.sort(model.body("arm").inertia), [0.001, 0.001, 0.002], rtol=1e-3)


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


def four_legs(base, base_kind="fixed", first="base_footprint", at="0 0 0.4"):
    """A URDF of four legs whose trunk is below an empty first link."""
    box = '<collision><geometry><box size="0.4 0.2 0.1"/></geometry></collision>'
    rod = '<collision><origin xyz="0 0 -0.1"/><geometry><cylinder radius="0.02" length="0.2"/></geometry></collision>'
    parts = [f'<link name="{first}"/>', base, link("trunk", box, mass=6.0)]
    for name, x, y in (("FL", 0.2, 0.1), ("FR", 0.2, -0.1), ("RL", -0.2, 0.1), ("RR", -0.2, -0.1)):
        parts += [link(f"{name}_thigh", rod), link(f"{name}_calf", rod)]
        parts += [joint(f"{name}_hip", "trunk", f"{name}_thigh", at=f"{x} {y} 0")]
        parts += [joint(f"{name}_knee", f"{name}_thigh", f"{name}_calf", at="0 0 -0.2")]
    return urdf(*parts)


@pytest.mark.parametrize(
    "base",
    [
        joint("root", "base_footprint", "trunk", "fixed", at="0 0 0.4"),
        joint("root", "base_footprint", "trunk", "floating", at="0 0 0.4"),
        '<link name="base_link"/>'
        + joint("root", "base_footprint", "base_link", "fixed", at="0 0 0.4")
        + joint("trunk_joint", "base_link", "trunk", "fixed", at="0.1 0 0.1"),
        '<link name="base_link"/>'
        + joint("root", "base_footprint", "base_link", "floating", at="0 0 0.4")
        + joint("trunk_joint", "base_link", "trunk", "fixed", at="0.1 0 0.1"),
    ],
    ids=["fixed", "floating", "two", "two, floating"],
)
@pytest.mark.parametrize("first", ["base_footprint", "world"])
def test_the_base_is_the_first_link_with_a_mass(tmp_path, base, first):
    text = four_legs(base).replace("base_footprint", first)
    draft, robot, model = drafted(write(tmp_path, text, "dog.urdf"))
    assert robot.base_body == "trunk"
    assert robot.feet == ("FL", "FR", "RL", "RR")
    assert model.nv == 14
    assert robot.base_height == pytest.approx(0.4, abs=0.01)
    assert notes(draft, "standing: it holds its default pose")
    fixed = drafted(write(tmp_path / "fixed", text, "dog.urdf"), base="fixed")
    assert (fixed[1].base_body, fixed[2].nv) == (None, 8)


def test_a_joint_without_a_name_gets_one_with_its_limits(tmp_path):
    text = urdf(link("base"), link("a"), link("b"), joint("", "base", "a"), joint("k", "a", "b"))
    draft, robot, _ = drafted(write(tmp_path, text, "arm.urdf"))
    assert [(one.name, one.effort_limit) for one in robot.joints] == [("a_joint", 5.0), ("k", 5.0)]
    assert "names: 1 joints had none and got one, such as 'a_joint'" in draft.notes


@pytest.mark.parametrize("xyz", ["0 0", "a b c", "0 0 0 0"])
def test_a_place_of_an_empty_link_that_is_none_is_refused(tmp_path, xyz):
    base = '<link name="base_link"/>' + joint("root", "base_footprint", "base_link", "fixed", at=xyz)
    text = four_legs(base + joint("trunk_joint", "base_link", "trunk", "fixed"))
    assert "XML Error: " in refused(write(tmp_path, text, "dog.urdf"))


def test_a_link_that_is_there_twice(tmp_path):
    text = urdf(link("base"), link("a"), link("a"), joint("j", "base", "a"))
    assert "link 'a' is there twice; names must be unique" in refused(write(tmp_path, text, "arm.urdf"))


def test_limbs_that_move_against_the_world_have_no_base_that_floats(tmp_path):
    """Two limbs of two joints on a slide along a rail, which is fixed to the world."""
    limbs = [part for k in "ab" for part in (link(k), link(f"{k}2"), joint(k, "cart", k), joint(f"{k}2", k, f"{k}2"))]
    text = urdf('<link name="world"/>', link("cart"), joint("rail", "world", "cart", "prismatic"), *limbs)
    draft, robot, _ = drafted(write(tmp_path, text, "arms.urdf"))
    assert robot.base_body is None
    assert notes(draft, "base: fixed, since its first link moves with a joint")
    assert "base=floating: body 'cart'" in refused(write(tmp_path, text, "arms.urdf"), base="floating")


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("planar", "joint 'k': type=planar: must be one of fixed, revolute, continuous, prismatic, floating"),
        ("ball", "joint 'k': type=ball: must be one of fixed"),
        ("floating", "joint 'k' floats below link 'a', which is not an empty first link"),
    ],
)
def test_joints_of_a_kind_that_we_do_not_have(tmp_path, kind, line):
    text = urdf(link("base"), link("a"), link("b"), joint("j", "base", "a"), joint("k", "a", "b", kind))
    assert line in refused(write(tmp_path, text, "arm.urdf"))


@pytest.mark.parametrize("kind", ["visual", "collision"])
@pytest.mark.parametrize(
    "size",
    [
        '<box size="0.1 0 0.1"/>',
        '<sphere radius="0"/>',
        '<cylinder radius="0.1" length="0.0"/>',
        '<mesh filename="a.stl" scale="1 0 1"/>',
    ],
)
def test_shapes_of_size_0_are_left_out(tmp_path, kind, size):
    shape = f"<{kind}><geometry>{size}</geometry></{kind}>"
    text = urdf(link("base"), link("arm", shape), joint("j", "base", "arm"))
    draft, _, _ = drafted(write(tmp_path, text, "arm.urdf"))
    assert "left out: a shape of size 0 of link 'arm'" in draft.notes


MESHES = {
    "letters": (b"solid a\nfacet normal 0 0 1\nendsolid a\n" + b" " * 80, "is an .stl in letters"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "is a pointer of Git LFS"),
    "huge": (b"\0" * 80 + struct.pack("<I", 300_000), "has 300000 triangles, 200000 are the most"),
    "empty": (b"", "is an empty file"),
    "dae": (b"<COLLADA/>", "is a .dae, which MuJoCo does not read; make it an .obj or .stl"),
}


@pytest.mark.parametrize("kind", MESHES)
def test_meshes_that_mujoco_does_not_read_are_left_out_where_they_are_only_seen(tmp_path, kind):
    content, line = MESHES[kind]
    name = "look.dae" if kind == "dae" else "look.stl"
    (tmp_path / name).write_bytes(content)
    shape = f'<{{0}}><geometry><mesh filename="{name}"/></geometry></{{0}}>'
    text = urdf(link("base"), link("arm", shape.format("visual")), joint("j", "base", "arm"))
    draft, _, model = drafted(write(tmp_path, text, "arm.urdf"))
    assert model.nmesh == 0
    assert notes(draft, f"left out: 1 meshes that are only seen: each {line}")
    path = write(tmp_path, text.replace("visual", "collision"), "arm.urdf")
    assert f"mesh 'look' {line}" in refused(path)
    assert drafted(path, collision="boxes")[1].joint_names == ("j",)


def test_a_urdf_is_known_by_its_element_and_read_in_any_encoding(tmp_path):
    text = urdf(link("base"), link("arm"), joint("jä", "base", "arm"))
    for name in ("arm.URDF", "arm.xml", "arm.Urdf"):
        assert drafted(write(tmp_path, text, name))[1].joints[0].velocity_limit == 2.0
    for encoding in ("utf-16", "utf-16-le", "utf-8-sig", "iso-8859-1"):
        path = tmp_path / "wide.urdf"
        head = f'<?xml version="1.0" encoding="{encoding.removesuffix("-sig").removesuffix("-le")}"?>'
        mark = "\ufeff" if encoding == "utf-16-le" else ""
        path.write_bytes((mark + head + text).encode(encoding))
        assert drafted(path)[1].joint_names == ("jä",)
    path = tmp_path / "model.xml"
    path.write_bytes(
        ('<?xml version="1.0" encoding="iso-8859-1"?>' + dog().replace("trunk", "Rücken")).encode("latin-1")
    )
    assert "model.xml is not UTF-8, which MuJoCo needs; write it as UTF-8" in refused(path)


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


def test_meshes_of_one_name_in_two_folders_stay_two(tmp_path):
    links = [link("base")]
    for name, factor in (("big", 1.0), ("small", 0.5)):
        vertices = [line.split() for line in BAR.splitlines() if line.startswith("v")]
        scaled = "".join(f"v {' '.join(str(factor * float(value)) for value in line[1:])}\n" for line in vertices)
        write(tmp_path / "meshes" / name, scaled + BAR[BAR.index("f ") :], "bar.obj")
        mesh = f'<geometry><mesh filename="package://arm/meshes/{name}/bar.obj"/></geometry>'
        links.append(link(name, f"<collision>{mesh}</collision>"))
    text = urdf(*links, joint("one", "base", "big"), joint("two", "big", "small"))
    _, robot, model = drafted(write(tmp_path, text, "arm.urdf"))
    assert sorted(file.name for file in (robot.model.parent / "meshes").iterdir()) == ["bar.obj", "bar_2.obj"]
    widths = sorted(float(model.geom_aabb[k, 3:].max()) for k in range(model.ngeom) if model.geom_dataid[k] >= 0)
    assert widths == pytest.approx([0.05, 0.1], rel=1e-3)


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
            "has no hinge or slide, only bodies that move freely; a robot has",
        ),
        ("<body><geom size='1'/></body>", "has no joint; a robot has some"),
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


def test_links_that_are_fixed_to_another_need_no_valid_inertia(tmp_path):
    """A point mass keeps its mass; a link without an inertia has none, whatever its shape."""
    box = '<collision><geometry><box size="0.1 0.1 0.1"/></geometry></collision>'
    odd = link("odd", mass=0.2).replace('ixy="0" ixz="0" iyz="0"', 'ixy="1" ixz="1" iyz="1"')
    fixed = [link("mass", mass=0.3, moments=(0, 0, 0)), odd, f'<link name="cover">{box}</link>']
    joints = [joint(name, "arm", name, "fixed") for name in ("mass", "odd", "cover")]
    text = urdf(link("base"), link("arm"), joint("j", "base", "arm"), *fixed, *joints)
    draft, robot, model = drafted(write(tmp_path, text, "arm.urdf"))
    assert check_robot(robot) == ()
    assert model.body_mass.sum() == pytest.approx(2.0 + 0.3 + 0.2)
    assert notes(draft, "inertia: ") == ["inertia: that of mass, odd is invalid, a ball's of the same mass is there"]


def test_the_line_of_an_error_is_that_of_the_file(tmp_path):
    """Blank lines and comments count, though the file may not begin with one by the rules of XML."""
    text = urdf(link("base"), link("arm"), "\n", joint("j", "base", "arm", at="0.2 0 0"))
    text = '\n<?xml version="1.0"?>\n<!-- a\ncomment -->' + text
    assert drafted(write(tmp_path, text, "arm.urdf"))[1].joint_names == ("j",)
    line = refused(write(tmp_path, text.replace('xyz="0.2 0 0"', 'xyz="0.2 0 zero"'), "arm.urdf"))
    assert line.endswith("bad format in attribute 'xyz' Element 'origin', line 5")

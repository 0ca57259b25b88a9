"""Robots from URDF files: joints that mimic others, bases, inertias and meshes; faults are refused in one line."""

import math
import struct

import numpy as np
import pytest
import torch
from robot_rl_envs.entity.couplings import find_leaders
from robot_rl_envs.entity.robot_checks import check_robot
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import events, observations, rewards
from robot_rl_envs.task import Actions, Event, Observation, ObservationGroup, Reward, Sim, Task

from tests.unit.robots.files import BAR, LIMIT, PLACES, dog, drafted, joint, link, notes, refused, urdf, write


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


def test_a_leader_and_a_follower_without_ranges_get_none(tmp_path):
    text = fingers({"b": mimic("a")}).replace('type="revolute"', 'type="continuous"')
    draft, _, model = drafted(write(tmp_path, text, "hand.urdf"))
    assert notes(draft, "range: ") == []
    assert not model.jnt_limited.any()


def test_leaders_are_found_whatever_the_order_and_a_circle_is_none():
    pairs = [("c", "b", -1.0, 0.1), ("b", "a", 2.0, 0.2)]
    assert find_leaders(pairs) == {"b": ("a", 2.0, 0.2), "c": ("a", -2.0, -0.1)}
    assert find_leaders(pairs, ["c"]) == {"b": ("c", -1.0, 0.1), "a": ("c", -0.5, pytest.approx(-0.05))}
    assert find_leaders([*pairs, ("b", "a", 2.0, 0.2)]) == find_leaders(pairs)
    with pytest.raises(ValueError, match="follow each other in a circle"):
        find_leaders([*pairs, ("a", "c", 1.0, 0.0)])


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


def four_legs(base):
    """A URDF of four legs whose trunk is below an empty first link."""
    box = '<collision><geometry><box size="0.4 0.2 0.1"/></geometry></collision>'
    rod = '<collision><origin xyz="0 0 -0.1"/><geometry><cylinder radius="0.02" length="0.2"/></geometry></collision>'
    parts = ['<link name="base_footprint"/>', base, link("trunk", box, mass=6.0)]
    for name, (x, y) in PLACES.items():
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
    assert robot.base_height == pytest.approx(0.37, abs=0.01)
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

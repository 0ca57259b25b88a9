"""Any file as a robot's own model: it is refused in one line, or a robot of finite numbers is drafted from it."""

import math
import re

import mujoco
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_rl.cli.new import fill
from robot_rl.errors import UserError
from robot_rl.robots.draft import draft_robot, make_robot, write_files
from robot_rl.robots.parts import Gains
from robot_rl.robots.source import BASES, COLLISIONS
from robot_rl.robots.writing import robot_words

INERTIAL = '<inertial><mass value="1"/><inertia ixx="0.01" iyy="0.01" izz="0.02" ixy="0" ixz="0" iyz="0"/></inertial>'


def _joint(name, kind, parent, child, more=""):
    return (
        f'<joint name="{name}" type="{kind}"><origin xyz="0 0.1 -0.1" rpy="0 0 0"/><parent link="{parent}"/>'
        f'<child link="{child}"/><axis xyz="0 1 0"/><limit lower="-1" upper="1" effort="5" velocity="2"/>{more}</joint>'
    )


def _link(name, shape='<box size="0.1 0.1 0.1"/>'):
    shapes = "".join(f"<{kind}><geometry>{shape}</geometry></{kind}>" for kind in ("visual", "collision"))
    return f'<link name="{name}">{INERTIAL}{shapes}</link>'


URDF = (
    '<?xml version="1.0"?><robot name="r"><link name="world"/>'
    + _link("base")
    + _link("left_leg", '<cylinder radius="0.02" length="0.2"/>')
    + _link("left_foot", '<sphere radius="0.02"/>')
    + _link("right_leg", '<cylinder radius="0.02" length="0.2"/>')
    + _link("right_foot", '<mesh filename="foot.obj" scale="1 1 1"/>')
    + _joint("root", "floating", "world", "base")
    + _joint("left_hip", "revolute", "base", "left_leg")
    + _joint("left_knee", "continuous", "left_leg", "left_foot")
    + _joint("right_hip", "revolute", "base", "right_leg", '<mimic joint="left_hip" multiplier="-1" offset="0.1"/>')
    + _joint("right_knee", "prismatic", "right_leg", "right_foot")
    + '<transmission name="t"><joint name="left_hip"/></transmission></robot>'
)
MJCF = """<mujoco model="m"><compiler angle="radian" meshdir="." autolimits="true"/>
<option timestep="0.002" gravity="0 0 -9.81"><flag contact="enable"/></option><size memory="1M"/>
<default><default class="leg"><joint axis="0 1 0" range="-1 1"/><geom size="0.02"/></default></default>
<asset><mesh name="foot" file="foot.obj"/><texture name="sky" type="skybox" builtin="flat" width="8" height="8"/>
<material name="paint" rgba="1 0 0 1"/></asset>
<worldbody><light pos="0 0 3"/><geom name="floor" type="plane" size="1 1 1"/>
<body name="trunk" pos="0 0 0.5" quat="1 0 0 0"><freejoint name="root"/><geom type="box" size="0.1 0.1 0.1" mass="3"/>
<site name="imu" euler="0 0 1"/>
<frame pos="0 0.1 0" euler="0 0 0.1"><body name="left_leg" childclass="leg"><joint name="left_hip"/>
<geom type="capsule" fromto="0 0 0 0 0 -0.2" mass="0.5"/>
<body name="left_foot" pos="0 0 -0.2"><joint name="left_knee"/><geom type="mesh" mesh="foot"/>
<inertial pos="0 0 0" mass="0.1" diaginertia="1e-4 1e-4 1e-4"/></body></body></frame>
<body name="right_leg" pos="0 -0.1 0" childclass="leg"><joint name="right_hip" ref="0.1"/>
<geom type="cylinder" size="0.02 0.1" mass="0.5"/><body name="right_foot" pos="0 0 -0.2">
<joint name="right_knee" type="slide"/><geom type="sphere" mass="0.1" material="paint"/></body></body></body>
</worldbody>
<tendon><fixed name="pull"><joint joint="left_knee" coef="1"/></fixed></tendon>
<equality><joint joint1="right_hip" joint2="left_hip" polycoef="0 -1 0 0 0"/></equality>
<actuator><motor joint="left_hip" ctrlrange="-5 5" gear="2"/><velocity joint="right_knee" kv="2" ctrlrange="-1 1"/>
<position tendon="pull" kp="3" forcerange="-2 2"/></actuator>
<keyframe><key name="home" qpos="0 0 0.5 1 0 0 0 0 0 0.1 0"/></keyframe></mujoco>"""
FOOT = "v 0 0 0\nv 0.05 0 0\nv 0 0.05 0\nv 0 0 0.05\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"

PLACES = re.compile(r'(?<==)"[^"]*"|(?<=<)/?[a-z]+|<[^<>]*/>')
"""The values of attributes, the names of elements, and elements without others."""
WORDS = (
    *("0", "-1", "1e-300", "1e300", "nan", "inf", "1e9", "-0", "0 0 0", "1 0", "1 2 3 4 5 6 7 8", "", " ", "1,5"),
    *(
        "world",
        "base",
        "trunk",
        "left_hip",
        "left_leg",
        "floor",
        "sky",
        "none",
        "true",
        "auto",
        "../foot.obj",
        "/dev/zero",
    ),
    *(
        "fixed",
        "planar",
        "floating",
        "revolute",
        "ball",
        "free",
        "mesh",
        "ellipsoid",
        "plane",
        "hfield",
        "sdf",
        "\u00e4",
    ),
)
TAGS = ("link", "joint", "body", "geom", "freejoint", "include", "mesh", "frame", "inertial", "limit", "mimic", "motor")


@pytest.fixture(scope="module")
def look(tmp_path_factory):
    """A function that drafts a robot from text in a file, writes its files, and checks what was drafted."""
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "foot.obj").write_text(FOOT)

    def read(content, kind, base="auto", collision="meshes"):
        path = folder / f"model.{kind}"
        path.write_bytes(content)
        draft, files = draft_robot("odd", path, base=base, collision=collision, gains=Gains(5.0, 1.0))
        write_files(folder / "new", files)
        robot = make_robot(draft, "odd", folder / "new" / "model.xml")
        compile(fill("drafted_robot.txt", robot_words(draft, "odd", path)), "robot.py", "exec")
        mujoco.MjModel.from_xml_path(str(robot.model))
        assert all("\n" not in line for line in (*draft.notes, *draft.problems))
        assert math.isfinite(robot.base_height)
        return robot

    return read


KINDS = pytest.mark.parametrize(("text", "kind"), [(URDF, "urdf"), (MJCF, "xml")], ids=["urdf", "mjcf"])


@KINDS
@pytest.mark.parametrize("collision", COLLISIONS)
def test_the_whole_file_is_read(text, kind, collision, look):
    assert len(look(text.encode(), kind, collision=collision).joints) == 4


@KINDS
@given(data=st.data())
def test_other_values_and_elements(data, text, kind, look, refuses):
    """A value or the name of an element becomes another one, or an element is removed or there twice."""
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(list(PLACES.finditer(text))))
        found = place[0]
        if found.startswith('"'):
            new = f'"{data.draw(st.one_of(st.sampled_from(WORDS), st.floats(-1e3, 1e3).map(str)))}"'
        elif found.startswith("<"):
            new = data.draw(st.sampled_from(("", found * 2)))
        else:
            new = data.draw(st.sampled_from(TAGS))
        text = text[: place.start()] + new + text[place.end() :]
    options = [data.draw(st.sampled_from(choices)) for choices in (BASES, COLLISIONS)]
    refuses(UserError, look, text.encode(), kind, *options)


@KINDS
@given(data=st.data())
def test_other_bytes(data, text, kind, look, broken, refuses):
    refuses(UserError, look, broken(data.draw, text.encode()), kind)


@given(data=st.data())
def test_another_mesh(data, look, broken, refuses, tmp_path_factory):
    """The mesh of a foot is damaged, or what an .stl should be."""
    folder = tmp_path_factory.mktemp("mesh")
    kind = data.draw(st.sampled_from(("obj", "stl", "msh")))
    (folder / f"foot.{kind}").write_bytes(broken(data.draw, FOOT.encode() if kind == "obj" else b"\0" * 284))
    text = MJCF.replace("foot.obj", str(folder / f"foot.{kind}"))
    refuses(UserError, look, text.encode(), "xml", "auto", data.draw(st.sampled_from(COLLISIONS)))

"""Files of robots that are somebody else's: what is refused before anything reads them, and what ends in our files."""

import ast
import os

import pytest

from robot_rl.cli.new import fill
from robot_rl.errors import UserError
from robot_rl.robots.guard import check_file
from robot_rl.robots.parts import Draft
from robot_rl.robots.source import read_source
from robot_rl.robots.writing import comment, quoted, robot_words
from tests.unit.robots.files import write

EVIL = '""";__import__("os").system("id");"""'
TEXTS = [EVIL, '"', "'", "\\", "\n", "a\nimport os", '\\"', "# -*- coding: utf-7 -*-", "{{name}}", "\u2028", "ä ö"]


def literals(text):
    """Everything that a module does: the text of each statement that is no import, assignment or docstring."""
    allowed = (ast.Import, ast.ImportFrom, ast.Assign)
    statements = [one for one in ast.parse(text).body if not isinstance(one, allowed)]
    return [one for one in statements if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]


@pytest.mark.parametrize("evil", TEXTS)
def test_names_of_a_file_are_texts_in_what_is_written(evil, tmp_path):
    assert ast.literal_eval(quoted(evil)) == evil
    assert ast.parse(f"x = 1\n{comment(evil)}\ny = 2\n").body[1].targets[0].id == "y"
    joint = {"default_pos": 0.0, "effort_limit": 1.0, "velocity_limit": 1.0, "kp": 1.0, "kd": 1.0, "action_scale": 0.5}
    draft = Draft(None, {evil: joint | {"mirror": evil}}, evil, feet=[evil], foot_mirror=[0], imu=evil, notes=[evil])
    text = fill("drafted_robot.txt", robot_words(draft, "dog", tmp_path / "model.urdf"))
    assert literals(text) == []
    assigned = {one.targets[0].id: one.value for one in ast.parse(text).body if isinstance(one, ast.Assign)}
    assert list(ast.literal_eval(assigned["JOINTS"])) == [evil]
    calls = {getattr(one.func, "id", "") for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Call)}
    assert calls <= {"", "Robot", "Joint", "Path", "dict", "zip", "tuple"}


def test_a_task_names_a_hand_as_a_text():
    words = {"hand": quoted(EVIL), "box": "{}", "name": "mine", "robot": "arm"}
    assert any(
        isinstance(one, ast.Assign) and one.targets[0].id == "HAND" and ast.literal_eval(one.value) == EVIL
        for one in ast.parse(fill("reach.txt", words)).body
    )


ARM = """<robot name="arm">
  <link name="base"/>
  <link name="upper">
    <inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
  </link>
  <joint name="{joint}" type="revolute">
    <parent link="base"/><child link="upper"/><axis xyz="0 1 0"/><limit lower="{lower}" upper="1" effort="{effort}"/>
  </joint>
</robot>
"""


def arm(**words):
    return ARM.format(**{"joint": "elbow", "lower": "-1", "effort": "5"} | words)


@pytest.mark.parametrize("name", ["a&quot;b", "a'b", "a\\b", "a&#10;b", "a&#133;b"])
def test_a_name_that_no_file_of_ours_may_have(tmp_path, name):
    with pytest.raises(UserError, match=r"its name has .*; use letters, digits"):
        check_file(write(tmp_path, arm(joint=name), "arm.urdf"))


@pytest.mark.parametrize("lower", ["nan", "-inf", "1e400", "-1e308", "", "one", "1 x", "0 1"])
def test_a_limit_that_is_no_number(tmp_path, lower):
    with pytest.raises(UserError, match=r"<limit> of 'elbow': lower='.*': must be "):
        check_file(write(tmp_path, arm(lower=lower), "arm.urdf"))


def test_sizes_beyond_all_measure_in_a_model_of_mujocos(tmp_path):
    text = "<mujoco><worldbody><body name='a'><joint/><geom type='box' size='1e300 1 1'/></body></worldbody></mujoco>"
    with pytest.raises(UserError, match="size='1e300 1 1': must be finite, and at most 1e"):
        check_file(write(tmp_path, text, "a.xml"))


def test_links_without_end_and_in_a_circle(tmp_path):
    def chain(links, count):
        joints = "".join(
            f'<joint name="j{k}" type="fixed"><parent link="l{k}"/><child link="l{(k + 1) % links}"/></joint>'
            for k in range(count)
        )
        return (
            f'<robot name="a">{"".join(f"<link name={chr(34)}l{k}{chr(34)}/>" for k in range(links))}{joints}</robot>'
        )

    with pytest.raises(UserError, match="more than 250 links below each other"):
        check_file(write(tmp_path, chain(50_000, 49_999), "arm.urdf"))
    with pytest.raises(UserError, match="links in a circle"):
        check_file(write(tmp_path, chain(10, 10), "arm.urdf"))
    deep = "<body>" * 5000 + "</body>" * 5000
    with pytest.raises(UserError, match="more than 250 elements inside each other"):
        check_file(write(tmp_path, f"<mujoco><worldbody>{deep}</worldbody></mujoco>", "a.xml"))


@pytest.mark.parametrize(
    ("element", "line"),
    [
        ('<include file="a.xml"/>', "a.xml includes itself"),
        ('<asset><model name="b" file="a.xml"/></asset>', "a.xml includes itself"),
        ('<include file="pipe"/>', "pipe is a pipe or a device"),
        ('<asset><mesh name="m" file="pipe"/></asset>', "pipe is a pipe or a device"),
        ('<asset><texture name="t" type="2d" file="/dev/zero"/></asset>', "/dev/zero is a pipe or a device"),
        ("<xacro:include xmlns:xacro='x:xacro'/>", "has elements of xacro; write its expansion"),
    ],
)
def test_files_that_would_never_end(tmp_path, element, line):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match=line):
        check_file(write(tmp_path, f"<mujoco>{element}</mujoco>", "a.xml"))
    with pytest.raises(UserError, match="must be a plain file"):
        check_file(tmp_path / "pipe")


def test_a_mesh_is_not_taken_from_another_robots_folder(tmp_path):
    for robot in ("one", "two"):
        (tmp_path / robot / "urdf").mkdir(parents=True)
    (tmp_path / "one" / "meshes").mkdir()
    (tmp_path / "one" / "meshes" / "base_link.stl").write_bytes(b"")
    mesh = '<visual><geometry><mesh filename="{}"/></geometry></visual>'
    for name in ("package://two/meshes/base_link.stl", "base_link.stl", "*.stl", "meshes\\\\base_link.stl"):
        text = arm().replace('<link name="base"/>', f'<link name="base">{mesh.format(name)}</link>')
        for folder in ("two/urdf", "two"):
            with pytest.raises(UserError, match="is missing: .*two"):
                read_source(write(tmp_path / folder, text, "arm.urdf"), "auto", "meshes")


def test_a_joint_may_have_the_name_of_ours(tmp_path):
    text = arm(joint="base_joint")
    assert [joint.name for joint in read_source(write(tmp_path, text, "arm.urdf"), "floating", "boxes").spec.joints][
        1:
    ] == ["base_joint"]


@pytest.mark.parametrize("tag", ["body name='a", "joint name='a", "geom name='a", "site name='a"])
def test_a_line_break_in_a_name_is_refused_whatever_xml_makes_of_it(tmp_path, tag):
    inside = "<joint name='a'/><geom name='a' size='1'/><site name='a'/>"
    text = f"<mujoco><worldbody><body name='a'>{inside}</body></worldbody></mujoco>"
    with pytest.raises(UserError, match=r"has 'a\\nb'; use letters, digits"):
        read_source(write(tmp_path, text.replace(tag, f"{tag}\nb"), "a.xml"), "auto", "meshes")


@pytest.mark.parametrize("name", ["x" * 300 + ".obj", "a/" * 3000 + "x.obj"], ids=["a long name", "a long path"])
def test_a_name_of_a_file_that_is_too_long(tmp_path, name):
    text = f'<mujoco><asset><mesh name="m" file="{name}"/></asset></mujoco>'
    with pytest.raises(UserError, match="a file that it names cannot be there: x.*: file name too long"):
        check_file(write(tmp_path, text, "a.xml"))

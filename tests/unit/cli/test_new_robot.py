"""robot-rl new robot from=: what is written and printed, and files that are refused in one line."""

import pytest

from tests.unit.robots.files import BAR, DOG, joint, link, urdf, write


def test_the_command_in_a_project(run, in_tmp):
    write(in_tmp / "parts", BAR, "bar.obj")
    path = write(in_tmp, DOG)
    assert run("new", "project", "mine")[0] == 0
    code, out, err = run("new", "robot", "dog", f"from={path}", "collision=primitives", "root=mine")
    assert code == 0, err
    for word in ("mine/mine/dog/robot.py", "mirror: 4 pairs", "standing: ", "next: robot-rl check robot=dog"):
        assert word in out
    assert 'dog = "mine.dog.robot:ROBOT"' in (in_tmp / "mine" / "pyproject.toml").read_text()
    facts = (in_tmp / "mine" / "mine" / "dog" / "robot.py").read_text()
    assert facts.count("\n") <= 150
    assert max(map(len, facts.splitlines())) <= 120
    for words, line in (
        (["robot", "cat", "from=nowhere.xml"], "from=nowhere.xml: no such file"),
        (["robot", "cat", f"from={path}", "collision=none"], "collision=none: must be one of meshes"),
        (["robot", "cat", f"from={path}", "base=up"], "base=up: must be one of auto"),
        (["task", "cat", f"from={path}"], "does not affect new task"),
    ):
        code, out, err = run("new", *words, "root=mine")
        assert (code, out) == (2, "")
        assert line in err
        assert not (in_tmp / "mine" / "mine" / "cat").exists()


@pytest.mark.parametrize(
    ("end", "name", "limit", "line"),
    [
        ('<link name="lower"/>', "elbow", "-1", "arm.urdf: link 'lower' moves and has no <inertial>; give it one"),
        (link("lower"), "shoulder", "-1", "arm.urdf: joint 'shoulder' is there twice; names must be unique"),
        (link("lower"), "elbow", "2", "arm.urdf: joint 'elbow': lower=2 is above upper=1"),
        (
            link("lower", '<collision><geometry><mesh filename="a/hand.stl"/></geometry></collision>'),
            "elbow",
            "-1",
            "mesh 'hand' is missing: ",
        ),
    ],
)
def test_bad_input_is_one_line_with_file_and_element_and_nothing_is_written(run, in_tmp, end, name, limit, line):
    assert run("new", "project", "mine")[0] == 0
    limits = f'lower="{limit}" upper="1" effort="5" velocity="2"'
    joints = joint("shoulder", "base", "upper"), joint(name, "upper", "lower", limit=limits)
    path = write(in_tmp, urdf(link("base"), link("upper"), end, *joints), "arm.urdf")
    before = sorted(in_tmp.rglob("*"))
    code, out, err = run("new", "robot", "cat", f"from={path}", "root=mine")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"from={path}" in err
    assert line in err
    assert sorted(in_tmp.rglob("*")) == before

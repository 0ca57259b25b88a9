"""Legs of drafted robots: straight ones are bent and noted, and their task asks for what they reach."""

import re
from dataclasses import replace

import mujoco
import numpy as np
import pytest
from robot_rl_assets.registry import get_robot
from robot_rl_assets.robot import Joint, Robot
from robot_rl_envs.entity.entity import gait_phases
from robot_rl_envs.entity.legs import bend_leg, check_straight, describe_strides, mobility, pose_of, robot_legs, strides
from robot_rl_envs.entity.robot_checks import check_robot
from robot_rl_envs.motions.kinematics import lowest_point

from robot_rl.robots.tasks import velocity_words
from robot_rl.runs.robot_facts import find_all
from tests.unit.robots.files import drafted, joint, link, notes, urdf, write

WIDE = 'lower="-1.5" upper="1.5" effort="20" velocity="5"'


def six_legs():
    """A robot with six legs that are straight down at 0: a coxa about z, and two hinges about x."""
    box, rod = (
        f"<collision>{shape}</collision>"
        for shape in (
            '<geometry><box size="0.4 0.2 0.1"/></geometry>',
            '<origin xyz="0 0 -0.06"/><geometry><cylinder radius="0.02" length="0.12"/></geometry>',
        )
    )
    parts = [link("base", box, mass=6.0, moments=(0.1, 0.1, 0.1))]
    small = {"mass": 0.2, "moments": (0.002, 0.002, 0.002)}
    for side, y in (("l", 0.1), ("r", -0.1)):
        for place, x in (("f", 0.2), ("m", 0.0), ("r", -0.2)):
            one = side + place
            parts += [
                link(f"{one}_coxa", **small),
                link(f"{one}_femur", rod, **small),
                link(f"{one}_tibia", rod, **small),
            ]
            hinges = (("base", "coxa", f"{x} {y} 0", "0 0 1"), ("coxa", "femur", f"0 {y / 2} 0", "1 0 0"))
            for above, below, at, axis in (*hinges, ("femur", "tibia", "0 0 -0.1", "1 0 0")):
                parent = above if above == "base" else f"{one}_{above}"
                made = joint(f"{one}_{below}_joint", parent, f"{one}_{below}", limit=WIDE, at=at)
                parts.append(made.replace('xyz="0 1 0"', f'xyz="{axis}"'))
    return urdf(*parts)


def test_straight_legs_are_bent_with_the_knees_outside(tmp_path):
    draft, robot, _ = drafted(write(tmp_path, six_legs(), "six.urdf"))
    default = {one.name: one.default_pos for one in robot.joints}
    assert notes(draft, "default pose: bent to lf_femur_joint 0.9")
    assert notes(draft, "standing: it holds")
    for name in ("lf", "lm", "lr"):
        assert default[f"{name}_femur_joint"] == -default[f"r{name[1]}_femur_joint"] > 0.5
        assert default[f"{name}_tibia_joint"] < -0.5
    assert find_all(robot) == []
    straight = replace(robot, joints=tuple(replace(one, default_pos=0.0) for one in robot.joints), base_height=0.24)
    (finding,) = check_straight(straight)
    assert not finding.is_problem
    assert finding in find_all(straight)
    assert "straight legs (lf_tibia, lm_tibia" in finding.text


@pytest.mark.parametrize("tilt", [0.0, 0.2, 0.45])
def test_the_foot_touches_before_the_edges_of_a_leaning_leg(tmp_path, tilt):
    """Else neither its contact nor its slip is measured: the end of a tibia is a disk of the foot's radius."""
    _, robot, model = drafted(write(tmp_path, six_legs(), "six.urdf"))
    data = mujoco.MjData(model)
    for one in robot.joints:
        data.joint(one.name).qpos[0] = one.default_pos
    for turn in np.linspace(0.0, 2.0 * np.pi, 6, endpoint=False):
        mujoco.mju_axisAngle2Quat(data.qpos[3:7], np.array([np.cos(turn), np.sin(turn), 0.0]), tilt)
        mujoco.mj_kinematics(model, data)
        for foot in robot.feet:
            geom = model.geom(foot).id
            link = np.flatnonzero((model.geom_bodyid == model.geom_bodyid[geom]) & (model.geom_conaffinity != 0))
            assert lowest_point(model, data, link)[1] == geom


@pytest.mark.parametrize(("height", "kind"), [(0.02, "their own soles"), (0.06, "spheres of 0.02 m were added")])
def test_a_flat_box_that_lies_level_is_the_foot_itself(tmp_path, height, kind):
    """The lowest point of its middle would hardly ever be the first to touch."""
    box = f'<collision><origin xyz="0 0 -0.13"/><geometry><box size="0.08 0.06 {height}"/></geometry></collision>'
    text = re.sub(r'(<link name="\w+_tibia">)', rf"\1{box}", six_legs())
    draft, robot, model = drafted(write(tmp_path, text, "soles.urdf"))
    assert kind in notes(draft, "feet: ")[0]
    assert robot.foot_radius == (0.01 if height == 0.02 else 0.02)
    is_box = model.geom_type[model.geom(robot.feet[0]).id] == mujoco.mjtGeom.mjGEOM_BOX
    assert is_box == (height == 0.02)
    assert check_robot(robot) == ()


def test_a_task_asks_for_what_the_legs_reach(tmp_path):
    _, robot, _ = drafted(write(tmp_path, six_legs(), "six.urdf"))
    words = velocity_words(robot)
    ahead, _, up = 2.0 * strides(robot).min(axis=0)
    # Two strides in each period of 0.5 s, by actions of 1 at a scale of 2.
    assert float(words["fast"]) == pytest.approx(ahead * 2 / 0.25, rel=0.02)
    assert float(words["swing"]) == pytest.approx(0.6 * up, rel=0.03)
    assert float(words["std"]) == pytest.approx(float(words["fast"]) / 3, rel=0.03)
    assert words["gaits"] == "yes"


def test_a_leg_with_a_sole_crouches_with_its_sole_level():
    robot = get_robot("unitree_g1")
    straight = replace(robot, joints=tuple(replace(one, default_pos=0.0) for one in robot.joints))
    leg = robot_legs(straight)[0]
    before = pose_of(straight, leg)
    leg.jacobian(before)
    start, turn = leg.tip.position(leg.data), leg.data.xmat[leg.tip.body].copy()
    after = bend_leg(leg, before)
    assert mobility(leg, before) < 0.1 < mobility(leg, after)
    moved = leg.tip.position(leg.data) - start
    assert np.abs(moved[:2]).max() < 0.005
    assert 0.03 < moved[2] < 0.08
    np.testing.assert_allclose(leg.data.xmat[leg.tip.body], turn, atol=0.01)
    assert (check_straight(robot), len(check_straight(straight))) == ([], 1)


def test_a_foot_elsewhere_than_below_the_base_is_without_a_leg(tmp_path):
    (tmp_path / "model.xml").write_text(
        '<mujoco><worldbody><body name="trunk"><freejoint/><geom size="0.1" mass="3"/></body><body name="other">'
        '<joint name="hip"/><geom name="foot" size="0.02" pos="0 0 -0.3"/><site name="foot_foot"/></body></worldbody>'
        "</mujoco>"
    )
    hip = Joint(name="hip", default_pos=0.0, effort_limit=10.0, velocity_limit=5.0, kp=10.0, kd=0.5)
    facts = {"feet": ("foot",), "foot_radius": 0.02, "foot_mirror": (0,), "base_body": "trunk", "base_height": 0.3}
    robot = Robot(name="odd", model=tmp_path / "model.xml", joints=(hip,), **facts)
    assert robot_legs(robot) == describe_strides(robot) == check_straight(robot) == []


def test_a_base_above_the_ground_is_noted_from_a_centimeter_on():
    go2 = get_robot("unitree_go2")
    kinds = []
    for gap in (0.008, 0.02, 0.06):
        found = check_robot(replace(go2, base_height=go2.base_height + gap))
        kinds.append([one.is_problem for one in found if "too high" in one.text])
    assert kinds == [[], [False], [True]]


@pytest.mark.parametrize(
    ("places", "phases"),
    [
        ([(0, 0.1), (0, -0.1)], [0, 0.5]),
        ([(0.2, 0.1), (0.2, -0.1), (-0.2, 0.1), (-0.2, -0.1)], [0, 0.5, 0.5, 0]),
        ([(0.2, 0.1), (0, 0.1), (-0.2, 0.1), (0.2, -0.1), (0, -0.1), (-0.2, -0.1)], [0, 0.5, 0, 0.5, 0, 0.5]),
    ],
)
def test_feet_alternate_along_and_across(places, phases):
    assert gait_phases(np.array(places, dtype=float)).tolist() == phases

"""Drafted joints follow their targets despite gears and placeholders, feet are at the lowest points of legs."""

import ast
import dataclasses

import mujoco
import numpy as np
import pytest
from robot_rl_envs.entity.trials import try_robot
from robot_rl_envs.motions.kinematics import support

from robot_rl.robots.tasks import reach_words
from tests.unit.robots.files import drafted, joint, link, notes, urdf, write

GEARS = '<dynamics damping="10" friction="1"/>'


def arm(folder, effort):
    """An arm with gears as vendors describe theirs, whose last link is light, and whose links fold onto each other."""
    limit = f'lower="-3" upper="3" effort="{effort}" velocity="3.14"'
    places = {"a": "0 0 0.2", "b": "0 0 0.3", "c": "0 0 -0.3"}
    masses = {"a": (1.5, 0.01), "b": (1.0, 0.005), "c": (0.1, 1.3e-4)}
    links = [link(name, mass=mass, moments=(moment,) * 3) for name, (mass, moment) in masses.items()]
    parents = zip(places, ["base", *places], strict=False)
    joints = [
        joint(f"{name}_joint", parent, name, limit=limit, more=GEARS, at=places[name]) for name, parent in parents
    ]
    return write(folder, urdf(link("base"), *links, *joints), "arm.urdf")


def test_a_joint_follows_despite_gears_and_one_that_does_not_is_a_problem(tmp_path):
    _, robot, _ = drafted(arm(tmp_path, 20))
    assert try_robot(robot) == []
    light = next(one for one in robot.joints if one.name == "c_joint")
    assert light.kd > 0
    weak = dataclasses.replace(light, kp=0.14, kd=0.01)
    joints = tuple(weak if one.name == "c_joint" else one for one in robot.joints)
    (finding,) = try_robot(dataclasses.replace(robot, joints=joints))
    assert finding.is_problem
    assert "joint 'c_joint': does not follow: in 1 s it gets 0 of 0.3 rad with kp=0.14" in finding.text


def test_an_effort_that_no_motor_has_is_a_placeholder(tmp_path):
    draft, robot, model = drafted(arm(tmp_path, 20_000))
    assert max(one.effort_limit for one in robot.joints) < 10 * 9.81 * model.body_mass.sum()
    assert max(one.action_scale for one in robot.joints) <= 0.25
    assert "a_joint (20000)" in notes(draft, "effort limit: more than ")[0]


def test_targets_of_a_folded_arm_are_around_a_pose_that_is_not(tmp_path):
    _, robot, model = drafted(arm(tmp_path, 20))
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    box = ast.literal_eval(reach_words(robot)["box"])
    middle = [0.5 * (box[f"{axis}_lo"] + box[f"{axis}_hi"]) for axis in "xyz"]
    assert np.linalg.norm(data.body("c").xpos - [0, 0, 0.2]) < 0.01
    assert np.linalg.norm(np.array(middle) - [0, 0, 0.2]) > 0.15


@pytest.mark.parametrize("geom", ["sphere", "capsule", "cylinder", "ellipsoid", "box", "mesh"])
def test_the_lowest_point_of_a_shape_touches_the_plane_below_it(geom):
    """MuJoCo's own collision says so, for shapes turned in many ways."""
    mesh = '<mesh name="m" vertex="0 0 0  0.1 0 0  0 0.2 0  0 0 0.3  0.1 0.1 0.1"/>'
    shape = 'type="mesh" mesh="m"' if geom == "mesh" else f'type="{geom}" size="0.03 0.05 0.07"'
    xml = f"""<mujoco><asset>{mesh}</asset><worldbody><geom name="plane" type="plane" size="1 1 1"/>
      <body pos="0.2 -0.1 1"><freejoint/><geom name="shape" {shape} mass="1"/></body></worldbody></mujoco>"""
    model = mujoco.MjModel.from_xml_string(xml)
    data, random, own = mujoco.MjData(model), np.random.default_rng(0), model.geom("shape").id
    for quat in [np.array([1.0, 0, 0, 0]), *random.normal(size=(8, 4))]:
        data.qpos[3:7] = quat / np.linalg.norm(quat)
        mujoco.mj_forward(model, data)
        point = support(model, data, own)
        assert mujoco.mj_geomDistance(model, data, own, 0, 2.0, None) == pytest.approx(point[2], abs=1e-4)
        assert np.linalg.norm(point[:2] - data.geom_xpos[own, :2]) <= model.geom_rbound[own] + 1e-6


@pytest.mark.parametrize(
    ("moved", "line"),
    [
        ((0.0, 0.0, 0.0), ""),
        ((0.0, 0.06, 0.0), "its shape is 2.0 cm beside those of body"),
        ((0.0, 0.0, 0.01), "touches before it when the leg leans"),
    ],
)
def test_a_foot_is_at_the_lowest_point_of_a_tilted_leg(tmp_path, moved, line):
    tube = '<geometry><cylinder radius="0.02" length="0.15"/></geometry>'
    shape = f'<collision><origin xyz="0 0 -0.07" rpy="0 0.6 0"/>{tube}</collision>'
    box = '<collision><geometry><box size="0.4 0.2 0.1"/></geometry></collision>'
    parts = [link("base", shape=box, mass=6.0)]
    for name, place in (("lf", "0.2 0.1 0"), ("rf", "0.2 -0.1 0"), ("lr", "-0.2 0.1 0"), ("rr", "-0.2 -0.1 0")):
        parts += [link(f"{name}_thigh", mass=0.2), link(f"{name}_shank", shape=shape, mass=0.2)]
        parts += [joint(f"{name}_hip", "base", f"{name}_thigh", at=place)]
        parts += [joint(f"{name}_knee", f"{name}_thigh", f"{name}_shank", at="0 0 -0.1")]
    _, robot, _ = drafted(write(tmp_path, urdf(*parts), "legs.urdf"))
    if line:
        spec = mujoco.MjSpec.from_string(robot.model.read_text())
        spec.geom(robot.feet[0]).pos += moved
        robot.model.write_text(spec.to_xml())
        (finding,) = try_robot(robot)
        assert finding.text.startswith(f"foot '{robot.feet[0]}': ")
        assert line in finding.text
        return
    assert try_robot(robot) == []

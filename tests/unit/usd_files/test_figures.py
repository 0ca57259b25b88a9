"""Every figure of a robot's USD file is the one that MuJoCo compiles from its MJCF file."""

import math
import os

import mujoco
import numpy as np
import pytest
from robot_rl_assets.registry import get_robot, list_robots

from robot_rl.cli.main import main

if os.environ.get("ROBOT_RL_REQUIRE_ALL") != "1":
    pytest.importorskip("pxr", reason="the package usd-core is not installed")

from pxr import Usd, UsdGeom, UsdPhysics, UsdShade
from robot_rl_assets.usd import write_ground, write_usd

CLOSE = {"rtol": 2e-7, "atol": 1e-9}  # USD's physics is single precision


@pytest.fixture(scope="module", params=list_robots())
def written(request, tmp_path_factory):
    """A robot, MuJoCo's model and data of it in the reference pose, and the USD stage."""
    robot = get_robot(request.param)
    model = mujoco.MjModel.from_xml_path(str(robot.model))
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    stage = Usd.Stage.Open(str(write_usd(robot, tmp_path_factory.mktemp("usd") / f"{robot.name}.usda")))
    return robot, model, data, stage


def get(prim, name):
    value = prim.GetAttribute(name).Get()
    assert value is not None, f"{prim.GetPath()} has no {name}"
    return np.array(value, dtype=float)


def quat(value):
    return np.array([value.GetReal(), *value.GetImaginary()])


def pose(prim):
    matrix = UsdGeom.Xformable(prim).GetLocalTransformation().RemoveScaleShear()
    return np.array(matrix.ExtractTranslation()), quat(matrix.ExtractRotationQuat())


def same_turn(first, second, tolerance=2e-7):
    assert min(np.abs(first - second).max(), np.abs(first + second).max()) < tolerance


def names(model, kind, count):
    return [mujoco.mj_id2name(model, kind, index) for index in range(count)]


def test_bodies_have_pose_mass_and_inertia(written):
    robot, model, data, stage = written
    found = [prim.GetName() for prim in stage.Traverse() if prim.HasAPI(UsdPhysics.RigidBodyAPI)]
    assert found == names(model, mujoco.mjtObj.mjOBJ_BODY, model.nbody)[1:]
    origin = data.body(robot.base_body).xpos if robot.base_body else np.zeros(3)
    for name in found:
        prim, body = stage.GetPrimAtPath(f"/{robot.name}/{name}"), model.body(name).id
        place, turn = pose(prim)
        np.testing.assert_allclose(place, data.xpos[body] - origin, **CLOSE)
        same_turn(turn, data.xquat[body])
        np.testing.assert_allclose(get(prim, "physics:mass"), model.body_mass[body], **CLOSE)
        np.testing.assert_allclose(get(prim, "physics:centerOfMass"), model.body_ipos[body], **CLOSE)
        np.testing.assert_allclose(get(prim, "physics:diagonalInertia"), model.body_inertia[body], **CLOSE)
        same_turn(quat(prim.GetAttribute("physics:principalAxes").Get()), model.body_iquat[body])


def test_joints_have_axis_limits_and_losses(written):
    robot, model, _, stage = written
    joints = {
        prim.GetName(): prim
        for prim in stage.Traverse()
        if prim.IsA(UsdPhysics.RevoluteJoint) or prim.IsA(UsdPhysics.PrismaticJoint)
    }
    assert set(joints) == {joint.name for joint in robot.joints}
    for name, prim in joints.items():
        joint = model.joint(name)
        index, dof, body = joint.id, int(joint.dofadr[0]), int(joint.bodyid[0])
        unit = math.degrees(1) if prim.IsA(UsdPhysics.RevoluteJoint) else 1.0
        if model.jnt_limited[index]:
            np.testing.assert_allclose(get(prim, "physics:lowerLimit") / unit, model.jnt_range[index, 0], rtol=2e-7)
            np.testing.assert_allclose(get(prim, "physics:upperLimit") / unit, model.jnt_range[index, 1], rtol=2e-7)
        else:
            assert not prim.GetAttribute("physics:lowerLimit").HasAuthoredValue()
        for attribute, value in (
            ("mjc:armature", model.dof_armature[dof]),
            ("newton:armature", model.dof_armature[dof]),
            ("mjc:damping", np.ravel(model.dof_damping[dof])[0]),
            ("mjc:frictionloss", model.dof_frictionloss[dof]),
            ("mjc:solreflimit", model.jnt_solref[index]),
            ("mjc:solimplimit", model.jnt_solimp[index]),
            ("mjc:solreffriction", model.dof_solref[dof]),
            ("mjc:solimpfriction", model.dof_solimp[dof]),
        ):
            np.testing.assert_allclose(get(prim, attribute), value, **CLOSE, err_msg=f"{name} {attribute}")
        # The axis, seen in the body.
        turn = quat(prim.GetAttribute("physics:localRot1").Get())
        axis = np.zeros(3)
        mujoco.mju_rotVecQuat(axis, np.eye(3)["XYZ".index(prim.GetAttribute("physics:axis").Get())], turn)
        np.testing.assert_allclose(axis, model.jnt_axis[index], atol=2e-7)
        np.testing.assert_allclose(get(prim, "physics:localPos1"), model.jnt_pos[index], **CLOSE)
        np.testing.assert_allclose(get(prim, "physics:localPos0"), model.body_pos[body], **CLOSE)


def test_drives_have_the_robots_gains_and_limits(written):
    robot, _, _, stage = written
    for joint in robot.joints:
        prim = stage.GetPrimAtPath(f"/{robot.name}/joints/{joint.name}")
        kind, unit = ("angular", math.degrees(1)) if prim.IsA(UsdPhysics.RevoluteJoint) else ("linear", 1.0)
        if joint.passive:
            assert not prim.HasAPI(UsdPhysics.DriveAPI)
            continue
        drive = {name: get(prim, f"drive:{kind}:physics:{name}") for name in ("stiffness", "damping", "maxForce")}
        np.testing.assert_allclose(drive["stiffness"] * unit, joint.kp, rtol=2e-7)
        np.testing.assert_allclose(drive["damping"] * unit, joint.kd, rtol=2e-7)
        np.testing.assert_allclose(drive["maxForce"], joint.effort_limit, rtol=2e-7)


def size_of(prim):
    """MuJoCo's size of a shape, without trailing zeros."""
    if prim.IsA(UsdGeom.Sphere):
        return [get(prim, "radius").item()]
    if prim.IsA(UsdGeom.Cube):
        return (get(prim, "xformOp:scale") * get(prim, "size") / 2).tolist()
    return [get(prim, "radius").item(), get(prim, "height").item() / 2]


def test_shapes_that_collide_have_size_pose_and_material(written):
    _, model, _, stage = written
    prims = [prim for prim in stage.Traverse() if prim.HasAPI(UsdPhysics.CollisionAPI)]
    colliding = [
        name
        for geom, name in enumerate(names(model, mujoco.mjtObj.mjOBJ_GEOM, model.ngeom))
        if model.geom_contype[geom] or model.geom_conaffinity[geom]
    ]
    assert [prim.GetName() for prim in prims] == colliding
    for prim in prims:
        geom = model.geom(prim.GetName())
        assert prim.GetParent().GetParent().GetName() == model.body(int(geom.bodyid[0])).name
        size = size_of(prim)
        np.testing.assert_allclose(size, geom.size[: len(size)], rtol=1e-12)
        place, turn = pose(prim)
        np.testing.assert_allclose(place, geom.pos, atol=1e-12)
        same_turn(turn, geom.quat, 1e-12)
        for attribute in (
            "contype",
            "conaffinity",
            "condim",
            "priority",
            "margin",
            "gap",
            "solref",
            "solimp",
            "solmix",
        ):
            right = getattr(model, f"geom_{attribute}")[geom.id]
            np.testing.assert_allclose(get(prim, f"mjc:{attribute}"), right, err_msg=f"{prim.GetName()} {attribute}")
        material = UsdShade.MaterialBindingAPI(prim).ComputeBoundMaterial("physics")[0].GetPrim()
        friction = [get(material, name) for name in ("physics:dynamicFriction", "mjc:torsionalfriction")]
        friction.append(get(material, "newton:rollingFriction"))
        np.testing.assert_allclose(friction, geom.friction, **CLOSE)
        assert get(material, "physics:staticFriction") == friction[0]


def test_the_ground_is_a_plane_of_the_requested_friction(tmp_path):
    stage = Usd.Stage.Open(str(write_ground(tmp_path / "ground.usda", friction=0.7)))
    plane = stage.GetPrimAtPath("/ground/plane")
    assert plane.HasAPI(UsdPhysics.CollisionAPI)
    assert (get(plane, "mjc:contype"), get(plane, "mjc:conaffinity")) == (1, 0)
    material = UsdShade.MaterialBindingAPI(plane).ComputeBoundMaterial("physics")[0].GetPrim()
    assert get(material, "physics:dynamicFriction") == pytest.approx(0.7)


def test_a_file_without_looks_has_the_same_physics(tmp_path):
    stage = Usd.Stage.Open(str(write_usd(get_robot("unitree_go2"), tmp_path / "go2.usd", visual=False)))
    shapes = [prim for prim in stage.Traverse() if prim.IsA(UsdGeom.Gprim)]
    assert shapes
    assert all(prim.HasAPI(UsdPhysics.CollisionAPI) for prim in shapes)


def make_robot(tmp_path, body, joints=("swing",)):
    """A robot of one body below the world."""
    from robot_rl_assets.robot import Joint, Robot

    path = tmp_path / "model.xml"
    path.write_text(f"<mujoco><compiler angle='radian'/><worldbody>{body}</worldbody></mujoco>")
    arms = tuple(Joint(name=name, default_pos=0.0, effort_limit=1.0, velocity_limit=1.0) for name in joints)
    return Robot(name="odd", model=path, joints=arms)


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ('<body name="a"><joint name="swing" type="ball"/><geom size="1"/></body>', "body 'a' has a ball joint"),
        ('<body name="a"><joint name="swing"/><joint name="b"/><geom size="1"/></body>', "body 'a' has 2 joints"),
        ('<body name="a"><joint name="swing" ref="0.5"/><geom size="1"/></body>', "joint 'swing' has ref=0.5"),
        ('<body name="a-b"><joint name="swing"/><geom size="1"/></body>', "body 'a-b': a name in USD"),
        ('<body><joint name="swing"/><geom size="1"/></body>', "body 1 of the model is without a name"),
        (
            '<body name="a"><joint name="swing"/><geom type="ellipsoid" size="1 1 2"/></body>',
            "body 'a': a colliding ellipsoid",
        ),
    ],
)
def test_what_usd_cannot_express_is_one_line(tmp_path, body, line):
    with pytest.raises(ValueError, match=line):
        write_usd(make_robot(tmp_path, body), tmp_path / "odd.usda")
    assert not (tmp_path / "odd.usda").exists()


def test_a_slanted_axis_and_a_shifted_anchor(tmp_path):
    joint = '<joint name="swing" axis="1 2 2" pos="0.1 0 0.2"/>'
    body = f'<body name="a" pos="0 0 1" quat="0.8 0.6 0 0">{joint}<geom size="1"/></body>'
    robot = make_robot(tmp_path, body)
    stage = Usd.Stage.Open(str(write_usd(robot, tmp_path / "odd.usda")))
    joint = stage.GetPrimAtPath("/odd/joints/swing")
    axis = np.zeros(3)
    mujoco.mju_rotVecQuat(axis, np.array([0.0, 0.0, 1.0]), quat(joint.GetAttribute("physics:localRot1").Get()))
    np.testing.assert_allclose(axis, np.array([1, 2, 2]) / 3, atol=1e-6)
    # The same point and frame, seen from above: (0, 0, 1) and the anchor turned by the body's pose.
    arm = np.zeros(3)
    mujoco.mju_rotVecQuat(arm, np.array([0.1, 0.0, 0.2]), np.array([0.8, 0.6, 0.0, 0.0]))
    np.testing.assert_allclose(get(joint, "physics:localPos0"), np.array([0, 0, 1]) + arm, atol=1e-6)


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["usd", "unitree_go2"]) == 0
    assert "unitree_go2.usda: 13 bodies, 12 joints, 19 shapes that collide" in capsys.readouterr().out
    assert (tmp_path / "unitree_go2.usda").is_file()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "robot: is missing"),
        (["unitree_go"], "did you mean 'unitree_go2'?"),
        (["cartpole", "out=a.txt"], "'a.txt': a USD file ends in .usda"),
        (["cartpole", "out=nowhere/a.usda"], "out=nowhere/a.usda: there is no folder nowhere"),
    ],
)
def test_bad_words_are_one_line(tmp_path, capsys, monkeypatch, words, line):
    monkeypatch.chdir(tmp_path)
    assert main(["usd", *words]) == 2
    assert line in capsys.readouterr().err
    assert not list(tmp_path.iterdir())

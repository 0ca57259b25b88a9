"""The Go2 has the real robot's figures (Unitree's own model of it), stands, and is symmetric."""

import mujoco
import numpy as np
import pytest
from robot_rl_assets import get_robot

ROBOT = get_robot("unitree_go2")

# mass [kg], principal inertia [kg m^2], center of mass in the body frame [m], w x y z of the principal axes
INERTIALS = {
    "base_link": (
        6.921,
        (0.107027, 0.0980771, 0.0244531),
        (0.021112, 0.0, -0.005366),
        (-0.000543471, 0.713435, -0.00173769, 0.700719),
    ),
    "FL_hip": (
        0.678,
        (0.00088403, 0.000596003, 0.000479967),
        (-0.0054, 0.00194, -0.000105),
        (0.497014, 0.499245, 0.505462, 0.498237),
    ),
    "FR_hip": (
        0.678,
        (0.00088403, 0.000596003, 0.000479967),
        (-0.0054, -0.00194, -0.000105),
        (0.498237, 0.505462, 0.499245, 0.497014),
    ),
    "RL_hip": (
        0.678,
        (0.00088403, 0.000596003, 0.000479967),
        (0.0054, 0.00194, -0.000105),
        (0.505462, 0.498237, 0.497014, 0.499245),
    ),
    "RR_hip": (
        0.678,
        (0.00088403, 0.000596003, 0.000479967),
        (0.0054, -0.00194, -0.000105),
        (0.499245, 0.497014, 0.498237, 0.505462),
    ),
}
THIGH = (1.152, (0.00594973, 0.00584149, 0.000878787))
CALF = (0.241352, (0.0014901, 0.00146356, 5.31397e-05))
for leg in ("FL", "RL"):
    INERTIALS[f"{leg}_thigh"] = (*THIGH, (-0.00374, -0.0223, -0.0327), (0.829533, 0.0847635, -0.0200632, 0.551623))
    INERTIALS[f"{leg}_calf"] = (
        *CALF,
        (0.00629595, -0.000622121, -0.141417),
        (0.710672, 0.00154099, -0.00450087, 0.703508),
    )
for leg in ("FR", "RR"):
    INERTIALS[f"{leg}_thigh"] = (*THIGH, (-0.00374, 0.0223, -0.0327), (0.551623, -0.0200632, 0.0847635, 0.829533))
    INERTIALS[f"{leg}_calf"] = (
        *CALF,
        (0.00629595, 0.000622121, -0.141417),
        (0.703508, -0.00450087, 0.00154099, 0.710672),
    )

# armature [kg m^2], damping [N m s/rad] and friction [N m] of the joints: as identified on real robots
LOSSES = {"hip": (0.0045, 0.08, 0.18), "thigh": (0.0045, 0.07, 0.14), "calf": (0.02, 0.15, 0.58)}

# position of the body in its parent [m], joint axis, joint range [rad], torque limit [N m], speed limit [rad/s]
JOINTS = {
    "FL_hip": ((0.1934, 0.0465, 0.0), (1, 0, 0), (-1.0472, 1.0472), 23.7, 30.1),
    "FR_hip": ((0.1934, -0.0465, 0.0), (1, 0, 0), (-1.0472, 1.0472), 23.7, 30.1),
    "RL_hip": ((-0.1934, 0.0465, 0.0), (1, 0, 0), (-1.0472, 1.0472), 23.7, 30.1),
    "RR_hip": ((-0.1934, -0.0465, 0.0), (1, 0, 0), (-1.0472, 1.0472), 23.7, 30.1),
    "FL_thigh": ((0.0, 0.0955, 0.0), (0, 1, 0), (-1.5708, 3.4907), 23.7, 30.1),
    "FR_thigh": ((0.0, -0.0955, 0.0), (0, 1, 0), (-1.5708, 3.4907), 23.7, 30.1),
    "RL_thigh": ((0.0, 0.0955, 0.0), (0, 1, 0), (-0.5236, 4.5379), 23.7, 30.1),
    "RR_thigh": ((0.0, -0.0955, 0.0), (0, 1, 0), (-0.5236, 4.5379), 23.7, 30.1),
    **{f"{leg}_calf": ((0.0, 0.0, -0.213), (0, 1, 0), (-2.7227, -0.83776), 45.43, 15.7) for leg in ROBOT.feet},
}


@pytest.fixture(scope="module")
def model():
    return mujoco.MjModel.from_xml_path(str(ROBOT.model))


def set_joints(data, positions):
    for joint, position in zip(ROBOT.joints, positions, strict=True):
        data.joint(joint.name).qpos[0] = position


def random_pose(model, rng):
    ranges = np.array([model.joint(name).range for name in ROBOT.joint_names])
    return rng.uniform(ranges[:, 0], ranges[:, 1])


def mirrored(positions):
    index, sign = ROBOT.joint_mirror()
    return np.array(sign) * positions[list(index)]


def test_bodies_and_total_mass(model):
    assert {model.body(i).name for i in range(1, model.nbody)} == set(INERTIALS)
    assert model.body_mass.sum() == pytest.approx(15.206408, abs=1e-6)


@pytest.mark.parametrize("name", INERTIALS)
def test_inertial(model, name):
    mass, inertia, com, quat = INERTIALS[name]
    body = model.body(name)
    assert body.mass[0] == pytest.approx(mass, rel=1e-9)
    np.testing.assert_allclose(body.inertia, inertia, rtol=1e-9)
    np.testing.assert_allclose(body.ipos, com, atol=1e-12)
    np.testing.assert_allclose(body.iquat, quat / np.linalg.norm(quat), atol=1e-6)


@pytest.mark.parametrize("name", JOINTS)
def test_joint(model, name):
    pos, axis, limits, effort, velocity = JOINTS[name]
    joint, body = model.joint(f"{name}_joint"), model.body(name)
    np.testing.assert_allclose(body.pos, pos, atol=1e-12)
    np.testing.assert_allclose(body.quat, [1, 0, 0, 0])
    np.testing.assert_allclose(joint.pos, 0)
    np.testing.assert_allclose(joint.axis, axis)
    np.testing.assert_allclose(joint.range, limits)
    assert (joint.armature[0], joint.damping[0], joint.frictionloss[0]) == LOSSES[name.rpartition("_")[2]]
    facts = next(fact for fact in ROBOT.joints if fact.name == f"{name}_joint")
    assert (facts.effort_limit, facts.velocity_limit) == (effort, velocity)


def test_joint_order_and_home_pose():
    assert ROBOT.joint_names == tuple(
        f"{leg}_{part}_joint" for leg in ("FL", "FR", "RL", "RR") for part in ("hip", "thigh", "calf")
    )
    assert ROBOT.default_pos() == (0.0, 0.9, -1.8) * 4


@pytest.mark.parametrize("foot", ROBOT.feet)
def test_foot(model, foot):
    geom = model.geom(foot)
    assert geom.size[0] == ROBOT.foot_radius == 0.022
    np.testing.assert_allclose(geom.pos, (-0.002, 0, -0.213))
    np.testing.assert_allclose(geom.friction, (0.4, 0.02, 0.01))
    assert (geom.priority[0], geom.condim[0]) == (1, 3)
    assert model.body(geom.bodyid[0]).name == f"{foot}_calf"


def test_imu_pose(model):
    np.testing.assert_allclose(model.site("imu").pos, (-0.02557, 0, 0.04232))


def standing_scene():
    """The Go2 on a floor, each joint held at its default by the gains and torque limits of its facts."""
    spec = mujoco.MjSpec.from_file(str(ROBOT.model))
    spec.option.timestep = 0.005
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.cone, spec.option.impratio = mujoco.mjtCone.mjCONE_ELLIPTIC, 100
    floor = spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 0.1])
    floor.contype, floor.conaffinity = 1, 0
    for joint in ROBOT.joints:
        motor = spec.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        motor.set_to_position(kp=joint.kp, kv=joint.kd)
        motor.forcerange = [-joint.effort_limit, joint.effort_limit]
    model = spec.compile()
    data = mujoco.MjData(model)
    data.qpos[2] = ROBOT.base_height
    set_joints(data, ROBOT.default_pos())
    data.ctrl[:] = ROBOT.default_pos()
    return model, data


def test_stands_upright_at_the_real_robots_height():
    model, data = standing_scene()
    mujoco.mj_step(model, data, 400)
    assert data.qpos[2] == pytest.approx(0.27, abs=0.02)
    assert data.body("base_link").xmat[8] > np.cos(0.06)
    assert np.abs(data.qvel).max() < 0.02
    touching = {model.geom(int(i)).name for i in data.contact.geom.ravel()}
    assert touching == {"", *ROBOT.feet}
    assert np.abs(data.actuator_force).max() < 0.5 * 23.7


def test_lying_on_any_side_no_visual_geom_touches_and_nothing_sinks_in():
    model, data = standing_scene()
    for quat in ([0, 1, 0, 0], [1, 1, 0, 0], [1, -1, 0, 0], [1, 0, 1, 0], [1, 0, -1, 0]):
        mujoco.mj_resetData(model, data)
        data.qpos[2] = 0.4
        data.qpos[3:7] = np.array(quat) / np.linalg.norm(quat)
        set_joints(data, ROBOT.default_pos())
        data.ctrl[:] = ROBOT.default_pos()
        mujoco.mj_step(model, data, 300)
        pairs = data.contact.geom
        assert len(pairs)
        assert (model.geom_bodyid[pairs].min(axis=1) == 0).all()
        assert set(model.geom_group[pairs[model.geom_bodyid[pairs] > 0]]) == {3}
        assert data.contact.dist.min() > -0.01
        assert data.geom("base_collision").xpos[2] > 0.03


def test_mirrored_joints_mirror_the_feet(model):
    rng = np.random.default_rng(1)
    data = mujoco.MjData(model)
    for _ in range(20):
        positions = random_pose(model, rng)
        feet = []
        for pose in (positions, mirrored(positions)):
            data.qpos[:7] = [0, 0, 0, 1, 0, 0, 0]
            set_joints(data, pose)
            mujoco.mj_kinematics(model, data)
            feet.append(np.array([data.site(f"{foot}_foot").xpos for foot in ROBOT.feet]))
        np.testing.assert_allclose(feet[1], feet[0][list(ROBOT.foot_mirror)] * [1, -1, 1], atol=1e-9)


def test_mirrored_legs_have_mirrored_inertia(model):
    """The joint block of the mass matrix keeps its values when sides are exchanged."""
    rng = np.random.default_rng(2)
    data = mujoco.MjData(model)
    index, sign = ROBOT.joint_mirror()
    matrices = []
    positions = random_pose(model, rng)
    for pose in (positions, mirrored(positions)):
        set_joints(data, pose)
        mujoco.mj_forward(model, data)
        full = np.zeros((model.nv, model.nv))
        mujoco.mj_fullM(model, data, full)
        matrices.append(full[6:, 6:])
    expected = np.outer(sign, sign) * matrices[0][np.ix_(index, index)]
    np.testing.assert_allclose(matrices[1], expected, atol=1e-6)


def test_it_looks_the_same_from_left_and_right(model):
    """Every geom has a twin of the same shape and color across the plane y = 0."""
    data = mujoco.MjData(model)
    data.qpos[:7] = [0, 0, 0, 1, 0, 0, 0]
    set_joints(data, ROBOT.default_pos())
    mujoco.mj_kinematics(model, data)
    kinds = np.column_stack([model.geom_type, model.geom_matid, model.geom_group, model.geom_size])
    for i in range(model.ngeom):
        twins = (np.abs(kinds - kinds[i]).max(axis=1) < 1e-6) & (
            np.abs(data.geom_xpos - data.geom_xpos[i] * [1, -1, 1]).max(axis=1) < 1e-6
        )
        assert twins.any(), f"geom {i} of body {model.body(model.geom_bodyid[i]).name} at {data.geom_xpos[i]}"


def test_image_shows_a_grey_and_black_robot(gl):
    """Seen from the side, a good part of the frame is the robot, and both its colors are there."""
    del gl
    spec = mujoco.MjSpec.from_file(str(ROBOT.model))
    spec.worldbody.add_light(pos=[0, 0, 3], dir=[0, 0.5, -1], type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL)
    model = spec.compile()
    data = mujoco.MjData(model)
    set_joints(data, ROBOT.default_pos())
    mujoco.mj_forward(model, data)
    camera = mujoco.MjvCamera()
    camera.azimuth, camera.elevation, camera.distance = 90, -10, 0.9
    camera.lookat[:] = [0, 0, 0.18]
    with mujoco.Renderer(model, 120, 160) as renderer:
        renderer.update_scene(data, camera)
        image = renderer.render().astype(float).mean(axis=2)
        renderer.enable_segmentation_rendering()
        robot = renderer.render()[..., 0] >= 0
    assert 0.1 < robot.mean() < 0.6
    assert (image[robot] > 110).mean() > 0.1
    assert (image[robot] < 50).mean() > 0.1

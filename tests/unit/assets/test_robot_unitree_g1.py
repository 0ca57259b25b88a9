"""The G1 has the real robot's figures (Unitree's own model of it), stands on its soles, and is symmetric.

With ROBOT_RL_REFERENCE naming a folder that has `unitree_g1/g1_29dof.xml`, every joint also answers as that model's.
"""

import os
from pathlib import Path

import mujoco
import numpy as np
import pytest
from robot_rl_assets import get_robot

ROBOT = get_robot("unitree_g1")
FLIP = np.array([1.0, -1.0, 1.0])
REFERENCE = os.environ.get("ROBOT_RL_REFERENCE", "")

# mass [kg], principal inertia [kg m^2], center of mass in the body frame [m], w x y z of the principal axes
TRUNK = {
    "pelvis": (3.813, (0.010549, 0.0093089, 0.0079184), (0, 0, -0.07605), (1, 0, -0.000399148, 0)),
    "waist_yaw_link": (
        0.244,
        (0.000158561, 0.000124229, 9.67669e-05),
        (0.003964, 0, 0.018769),
        (-0.0178291, 0.628464, 0.0282471, 0.777121),
    ),
    "waist_roll_link": (
        0.047,
        (7.515e-06, 6.40206e-06, 3.98394e-06),
        (0, -0.000236, 0.010111),
        (0.99979, 0.020492, 0, 0),
    ),
    "torso_link": (
        9.598,
        (0.12407, 0.111951, 0.0325382),
        (0.00331658, 0.000261533, 0.179856),
        (0.999831, 0.000376204, 0.0179895, -0.00377704),
    ),
}
# the same of the left side
LIMBS = {
    "hip_pitch": (
        1.35,
        (0.00181517, 0.00153422, 0.00116212),
        (0.002741, 0.047791, -0.02606),
        (0.954862, 0.293964, 0.0302556, 0.030122),
    ),
    "hip_roll": (
        1.52,
        (0.00254986, 0.00241169, 0.00148755),
        (0.029812, -0.001045, -0.087934),
        (0.977808, -1.97119e-05, 0.205576, -0.0403793),
    ),
    "hip_yaw": (
        1.702,
        (0.00776166, 0.00717575, 0.00160139),
        (-0.057709, -0.010981, -0.15078),
        (0.600598, 0.15832, 0.223482, 0.751181),
    ),
    "knee": (
        1.932,
        (0.0113804, 0.0112778, 0.00146458),
        (0.005457, 0.003964, -0.12074),
        (0.923418, -0.0327699, 0.0158246, 0.382067),
    ),
    "ankle_pitch": (
        0.074,
        (1.89e-05, 1.40805e-05, 6.9195e-06),
        (-0.007269, 0, 0.011137),
        (0.603053, 0.369225, 0.369225, 0.603053),
    ),
    "ankle_roll": (
        0.608,
        (0.00167218, 0.0016161, 0.000217621),
        (0.026505, 0, -0.016425),
        (-0.000481092, 0.728482, -0.000618967, 0.685065),
    ),
    "shoulder_pitch": (
        0.718,
        (0.000465864, 0.000432842, 0.000406394),
        (0, 0.035892, -0.011628),
        (0.654152, 0.0130458, -0.326267, 0.68225),
    ),
    "shoulder_roll": (
        0.643,
        (0.000691311, 0.000618011, 0.000388977),
        (-0.000227, 0.00727, -0.063243),
        (0.701256, -0.0196223, -0.00710317, 0.712604),
    ),
    "shoulder_yaw": (
        0.734,
        (0.00106187, 0.00103217, 0.000400661),
        (0.010773, -0.002949, -0.072009),
        (0.716879, -0.0964829, -0.0679942, 0.687134),
    ),
    "elbow": (
        0.6,
        (0.000443035, 0.000421612, 0.000259353),
        (0.064956, 0.004454, -0.010062),
        (0.541765, 0.636132, 0.388821, 0.388129),
    ),
    "wrist_roll": (
        0.085445,
        (5.48211e-05, 4.96646e-05, 3.57798e-05),
        (0.0171394, 0.000537591, 4.8864e-07),
        (0.575338, 0.411667, -0.574906, 0.411094),
    ),
    "wrist_pitch": (
        0.48405,
        (0.000430353, 0.000429873, 0.000164648),
        (0.0229999, -0.00111685, -0.00111658),
        (0.249998, 0.661363, 0.293036, 0.643608),
    ),
    "wrist_yaw": (
        0.254576,
        (0.000646113, 0.000559993, 0.000147566),
        (0.0708244, 0.000191745, 0.00161742),
        (0.510571, 0.526295, 0.468078, 0.493188),
    ),
}

# Armature [kg m^2] and speed limit [rad/s] of each kind of motor; ankles, waist roll and pitch have two.
SMALL, PAIR, HIP, KNEE, WRIST = (
    (0.003609725, 37.0),
    (0.00721945, 37.0),
    (0.01017752, 32.0),
    (0.025101925, 20.0),
    (0.00425, 22.0),
)
# position of the body in its parent [m], joint range [rad], torque limit [N m], motor; of the left side
JOINTS = {
    "hip_pitch": ((0, 0.064452, -0.1027), (-2.5307, 2.8798), 88.0, HIP),
    "hip_roll": ((0, 0.052, -0.030465), (-0.5236, 2.9671), 88.0, KNEE),
    "hip_yaw": ((0.025001, 0, -0.12412), (-2.7576, 2.7576), 88.0, HIP),
    "knee": ((-0.078273, 0.0021489, -0.17734), (-0.087267, 2.8798), 139.0, KNEE),
    "ankle_pitch": ((0, -9.4445e-05, -0.30001), (-0.87267, 0.5236), 50.0, PAIR),
    "ankle_roll": ((0, 0, -0.017558), (-0.2618, 0.2618), 50.0, PAIR),
    "waist_yaw": ((0, 0, 0), (-2.618, 2.618), 88.0, HIP),
    "waist_roll": ((-0.0039635, 0, 0.035), (-0.52, 0.52), 50.0, PAIR),
    "waist_pitch": ((0, 0, 0.019), (-0.52, 0.52), 50.0, PAIR),
    "shoulder_pitch": ((0.0039563, 0.10022, 0.23778), (-3.0892, 2.6704), 25.0, SMALL),
    "shoulder_roll": ((0, 0.038, -0.013831), (-1.5882, 2.2515), 25.0, SMALL),
    "shoulder_yaw": ((0, 0.00624, -0.1032), (-2.618, 2.618), 25.0, SMALL),
    "elbow": ((0.015783, 0, -0.080518), (-1.0472, 2.0944), 25.0, SMALL),
    "wrist_roll": ((0.1, 0.00188791, -0.01), (-1.97222, 1.97222), 25.0, SMALL),
    "wrist_pitch": ((0.038, 0, 0), (-1.61443, 1.61443), 5.0, WRIST),
    "wrist_yaw": ((0.046, 0, 0), (-1.61443, 1.61443), 5.0, WRIST),
}
AXES = {"pitch": (0, 1, 0), "knee": (0, 1, 0), "elbow": (0, 1, 0), "roll": (1, 0, 0), "yaw": (0, 0, 1)}
# Bodies that are turned about x or y in their parent [rad]; on the right the turn about x is the other way.
TURNED = {
    "hip_roll": (0, -0.174898),
    "knee": (0, 0.174898),
    "shoulder_pitch": (0.279308, 0),
    "shoulder_roll": (-0.27925, 0),
}


@pytest.fixture(scope="module")
def model():
    return mujoco.MjModel.from_xml_path(str(ROBOT.model))


def part_of(name):
    """The name of a joint without its side, and whether it is on the right."""
    bare = name.removesuffix("_joint")
    return bare.removeprefix("left_").removeprefix("right_"), bare.startswith("right_")


def tensor(body):
    """A body's inertia about its center of mass in the body's frame."""
    turn = np.zeros(9)
    mujoco.mju_quat2Mat(turn, body.iquat)
    turn = turn.reshape(3, 3)
    return turn @ np.diag(body.inertia) @ turn.T


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
    limbs = {f"{side}_{part}_link" for side in ("left", "right") for part in LIMBS}
    assert {model.body(i).name for i in range(1, model.nbody)} == set(TRUNK) | limbs
    # 13.702 of the trunk, 7.186 of a leg and 3.519071 of an arm
    assert model.body_mass.sum() == pytest.approx(35.112142, abs=1e-6)


@pytest.mark.parametrize("name", [*TRUNK, *(f"left_{part}_link" for part in LIMBS)])
def test_inertial(model, name):
    mass, inertia, com, quat = TRUNK[name] if name in TRUNK else LIMBS[name[5:-5]]
    body = model.body(name)
    assert body.mass[0] == pytest.approx(mass, rel=1e-9)
    np.testing.assert_allclose(body.inertia, inertia, rtol=1e-9)
    np.testing.assert_allclose(body.ipos, com, atol=1e-12)
    np.testing.assert_allclose(body.iquat, quat / np.linalg.norm(quat), atol=1e-6)


@pytest.mark.parametrize("part", LIMBS)
def test_the_right_side_has_the_left_s_inertia_in_a_mirror(model, part):
    left, right = model.body(f"left_{part}_link"), model.body(f"right_{part}_link")
    assert right.mass[0] == left.mass[0]
    np.testing.assert_allclose(right.ipos, left.ipos * FLIP, atol=1e-12)
    image = tensor(left) * np.outer(FLIP, FLIP)
    # the two knees of Unitree's model differ in the sign of Ixz, 4.5e-5 kg m^2
    np.testing.assert_allclose(tensor(right), image, atol=1e-2 * image.max())


@pytest.mark.parametrize("joint", ROBOT.joints, ids=lambda joint: joint.name)
def test_joint(model, joint):
    part, on_right = part_of(joint.name)
    pos, (low, high), effort, (armature, velocity) = JOINTS[part]
    own = model.joint(joint.name)
    body = model.body(own.bodyid[0])
    side = FLIP if on_right else np.ones(3)
    np.testing.assert_allclose(body.pos, pos * side, atol=1.1e-5)
    about_x, about_y = TURNED.get(part, (0, 0))
    turn = [about_x * side[1], about_y, 0]
    np.testing.assert_allclose(2 * np.arcsin(body.quat[1:]), turn, atol=3e-4)
    np.testing.assert_allclose(own.pos, 0)
    np.testing.assert_allclose(own.axis, AXES[part.rsplit("_", 1)[-1]])
    swapped = on_right and joint.mirror_sign < 0
    np.testing.assert_allclose(own.range, (-high, -low) if swapped else (low, high))
    assert own.armature[0] == pytest.approx(armature, rel=1e-6)
    assert (own.damping[0], own.frictionloss[0]) == (0.05, 0.0)
    assert (joint.effort_limit, joint.velocity_limit) == (effort, velocity)
    # (2 pi 10)^2 = 3947.84 and 4 * 2 pi 10 = 251.327
    assert joint.kp == pytest.approx(3947.8418 * armature, rel=1e-6)
    assert joint.kd == pytest.approx(251.327412 * armature, rel=1e-6)
    assert joint.action_scale * joint.kp == pytest.approx(0.25 * effort)


def test_joint_order_is_that_of_the_robot_s_messages():
    """Indices of LowCmd.motor_cmd: legs from 0 and 6, waist from 12, arms from 15 and 22."""
    names = ROBOT.joint_names
    assert len(names) == 29
    at = {0: "left_hip_pitch", 3: "left_knee", 5: "left_ankle_roll", 6: "right_hip_pitch", 11: "right_ankle_roll"}
    at |= {12: "waist_yaw", 13: "waist_roll", 14: "waist_pitch", 15: "left_shoulder_pitch", 18: "left_elbow"}
    at |= {21: "left_wrist_yaw", 22: "right_shoulder_pitch", 25: "right_elbow", 28: "right_wrist_yaw"}
    assert {index: names[index] for index in at} == {index: f"{name}_joint" for index, name in at.items()}


def test_the_model_has_the_joints_in_the_robot_s_order(model):
    assert tuple(model.joint(i).name for i in range(1, model.njnt)) == ROBOT.joint_names


def test_default_pose():
    default = dict(zip(ROBOT.joint_names, ROBOT.default_pos(), strict=True))
    for side, sign in (("left", 1.0), ("right", -1.0)):
        assert default[f"{side}_hip_pitch_joint"] == -0.312
        assert default[f"{side}_knee_joint"] == 0.669
        assert default[f"{side}_ankle_pitch_joint"] == -0.363
        assert default[f"{side}_elbow_joint"] == 0.6
        assert default[f"{side}_shoulder_pitch_joint"] == 0.2
        assert default[f"{side}_shoulder_roll_joint"] == 0.2 * sign
    assert sum(value != 0 for value in default.values()) == 12


def test_lengths_of_thigh_shank_and_arm(model):
    """Between the joints with all joints at 0: by Pythagoras from the positions of the bodies."""
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    for side in ("left", "right"):
        at = {part: data.body(f"{side}_{part}_link").xpos for part in LIMBS}
        assert np.linalg.norm(at["knee"] - at["hip_roll"]) == pytest.approx(0.306138, abs=1e-6)
        assert np.linalg.norm(at["ankle_pitch"] - at["knee"]) == pytest.approx(0.30001, abs=1e-6)
        assert np.linalg.norm(at["elbow"] - at["shoulder_roll"]) == pytest.approx(0.184500, abs=1e-6)
        assert np.linalg.norm(at["wrist_yaw"] - at["elbow"]) == pytest.approx(0.184281, abs=1e-6)
    # Unitree's model has the pelvis at 0.793 m with straight legs.
    soles = [data.geom(foot).xpos[2] - ROBOT.foot_radius for foot in ROBOT.feet]
    np.testing.assert_allclose(soles, 0.793 - 0.7919, atol=1e-4)


@pytest.mark.parametrize("foot", ROBOT.feet)
def test_foot(model, foot):
    geom = model.geom(foot)
    assert geom.type[0] == int(mujoco.mjtGeom.mjGEOM_BOX)
    assert geom.size[2] == ROBOT.foot_radius == 0.0125
    # the corners of the sole, where Unitree's model has spheres of 5 mm at a height of -0.03 m
    np.testing.assert_allclose(geom.pos - geom.size, (-0.05, -0.0275, -0.035))
    np.testing.assert_allclose(geom.pos + geom.size, (0.12, 0.0275, -0.01))
    np.testing.assert_allclose(geom.friction, (0.6, 0.02, 0.01))
    assert (geom.priority[0], geom.condim[0]) == (1, 3)
    assert model.body(geom.bodyid[0]).name == f"{foot.removesuffix('_foot')}_ankle_roll_link"


def test_imu_pose(model):
    np.testing.assert_allclose(model.site("imu").pos, 0)


def scene(stiffness=1.0):
    """The G1 on a floor, each joint held at its default by its gains times a factor."""
    spec = mujoco.MjSpec.from_file(str(ROBOT.model))
    spec.option.timestep = 0.005
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    floor = spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 0.1])
    floor.contype, floor.conaffinity = 1, 0
    for joint in ROBOT.joints:
        motor = spec.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        motor.set_to_position(kp=joint.kp * stiffness, kv=joint.kd * stiffness**0.5)
        motor.forcerange = [-joint.effort_limit, joint.effort_limit]
    model = spec.compile()
    data = mujoco.MjData(model)
    data.qpos[2] = ROBOT.base_height
    set_joints(data, ROBOT.default_pos())
    data.ctrl[:] = ROBOT.default_pos()
    return model, data


def test_stands_on_its_soles_where_its_joints_hardly_give_way():
    """With its own gains the ankles give less (57 N m/rad) than tipping takes (236): a policy has to balance it."""
    model, data = scene(stiffness=10.0)
    mujoco.mj_step(model, data, 400)
    assert data.qpos[2] == pytest.approx(ROBOT.base_height, abs=0.005)
    assert data.body("pelvis").xmat[8] > np.cos(0.05)
    touching = {model.geom(int(i)).name for i in data.contact.geom.ravel()}
    assert touching == {"", *ROBOT.feet}
    assert np.abs(data.actuator_force).max() < 25.0


def test_carries_itself_for_half_a_second_with_its_own_gains():
    model, data = scene()
    mujoco.mj_step(model, data, 100)
    assert 0.70 < data.qpos[2] < ROBOT.base_height
    assert data.body("pelvis").xmat[8] > np.cos(0.1)
    assert np.abs(data.actuator_force).max() < 0.3 * 139


def test_lying_on_any_side_no_visual_geom_touches_and_nothing_sinks_in():
    model, data = scene()
    for quat in ([1, 1, 0, 0], [1, -1, 0, 0], [1, 0, 1, 0], [1, 0, -1, 0]):
        mujoco.mj_resetData(model, data)
        data.qpos[2] = 0.4
        data.qpos[3:7] = np.array(quat) / np.linalg.norm(quat)
        set_joints(data, ROBOT.default_pos())
        data.ctrl[:] = ROBOT.default_pos()
        mujoco.mj_step(model, data, 300)
        pairs = data.contact.geom
        assert len(pairs)
        assert set(model.geom_group[pairs[model.geom_bodyid[pairs] > 0]]) == {3}
        assert data.contact.dist.min() > -0.01
        assert data.body("torso_link").xpos[2] > 0.05


def test_mirrored_joints_mirror_feet_and_hands(model):
    rng = np.random.default_rng(1)
    data = mujoco.MjData(model)
    for _ in range(20):
        positions = random_pose(model, rng)
        ends = []
        for pose in (positions, mirrored(positions)):
            data.qpos[:7] = [0, 0, 0, 1, 0, 0, 0]
            set_joints(data, pose)
            mujoco.mj_kinematics(model, data)
            feet = [data.site(f"{foot}_foot").xpos.copy() for foot in ROBOT.feet]
            hands = [data.body(f"{side}_wrist_yaw_link").xpos.copy() for side in ("left", "right")]
            ends.append(np.array(feet + hands))
        # one shoulder of Unitree's model is 0.01 mm further out
        np.testing.assert_allclose(ends[1], ends[0][[1, 0, 3, 2]] * FLIP, atol=1e-4)


def test_it_looks_the_same_from_left_and_right(model):
    """Every geom has a twin of the same shape and color across the plane y = 0."""
    data = mujoco.MjData(model)
    data.qpos[:7] = [0, 0, 0, 1, 0, 0, 0]
    set_joints(data, ROBOT.default_pos())
    mujoco.mj_kinematics(model, data)
    kinds = np.column_stack([model.geom_type, model.geom_matid, model.geom_group, model.geom_size])
    for i in range(model.ngeom):
        twins = (np.abs(kinds - kinds[i]).max(axis=1) < 1e-6) & (
            np.abs(data.geom_xpos - data.geom_xpos[i] * FLIP).max(axis=1) < 1e-4
        )
        assert twins.any(), f"geom {i} of body {model.body(model.geom_bodyid[i]).name} at {data.geom_xpos[i]}"


def test_image_shows_a_grey_and_black_robot(gl):
    """Seen from the front, a part of the frame is the robot, and both its colors are there."""
    del gl
    spec = mujoco.MjSpec.from_file(str(ROBOT.model))
    spec.worldbody.add_light(pos=[0, 0, 3], dir=[-0.5, 0, -1], type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL)
    model = spec.compile()
    data = mujoco.MjData(model)
    data.qpos[2] = ROBOT.base_height
    set_joints(data, ROBOT.default_pos())
    mujoco.mj_forward(model, data)
    camera = mujoco.MjvCamera()
    camera.azimuth, camera.elevation, camera.distance = 180, -5, 1.9
    camera.lookat[:] = [0, 0, 0.65]
    with mujoco.Renderer(model, 160, 120) as renderer:
        renderer.update_scene(data, camera)
        image = renderer.render().astype(float).mean(axis=2)
        renderer.enable_segmentation_rendering()
        robot = renderer.render()[..., 0] >= 0
    assert 0.08 < robot.mean() < 0.5
    assert (image[robot] > 110).mean() > 0.1
    assert (image[robot] < 50).mean() > 0.1


def step_response(spec, joint, armature):
    """Positions (1000,) of a joint [rad] over a second, after a step of its target; every other joint is welded.

    The base is fixed in the air and gravity is on. The gains are the robot's.
    """
    for listed in (spec.sensors, spec.actuators):
        for one in list(listed):
            spec.delete(one)
    for other in list(spec.joints):
        if other.name != joint.name:
            spec.delete(other)
    for geom in list(spec.geoms):
        spec.delete(geom)
    for mesh in list(spec.meshes):
        spec.delete(mesh)
    own = spec.joint(joint.name)
    own.armature, own.damping, own.frictionloss = armature, [0.05, 0, 0], 0.0
    motor = spec.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
    motor.set_to_position(kp=joint.kp, kv=joint.kd)
    motor.forcerange = [-joint.effort_limit, joint.effort_limit]
    spec.option.timestep = 0.001
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    model = spec.compile()
    data = mujoco.MjData(model)
    data.ctrl[0] = 0.2
    positions = np.zeros(1000)
    for k in range(1000):
        mujoco.mj_step(model, data)
        positions[k] = data.qpos[0]
    return positions


@pytest.mark.skipif(not REFERENCE, reason="ROBOT_RL_REFERENCE names no folder of reference models")
def test_every_joint_answers_a_step_as_unitree_s_model_does():
    path = Path(REFERENCE) / "unitree_g1" / "g1_29dof.xml"
    largest = {}
    for joint in ROBOT.joints:
        armature = JOINTS[part_of(joint.name)[0]][3][0]
        own, other = (
            step_response(mujoco.MjSpec.from_file(str(file)), joint, armature) for file in (ROBOT.model, path)
        )
        assert np.abs(own).max() > 0.02, joint.name
        largest[joint.name] = float(np.abs(own - other).max() / 0.2)
    worst = max(largest, key=lambda name: largest[name])
    print(f"largest deviation {100 * largest[worst]:.2e} % of the step, of {worst}")
    assert largest[worst] < 0.02

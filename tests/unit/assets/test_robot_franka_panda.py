"""The Panda has the real robot's figures, moves as the reference model of it does, and lifts a cube."""

import math
import os
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
import pytest
from robot_rl_assets import get_robot

ROBOT = get_robot("franka_panda")
READY = np.array(ROBOT.default_pos())
CUBE = 0.05  # edge [m]

# mass [kg], center of mass in the link's frame [m], inertia about it: xx yy zz xy xz yz [kg m^2]
INERTIALS = {
    "link0": (0.629769, (-0.041018, -0.00014, 0.049974), (3.15e-3, 3.88e-3, 4.285e-3, 8.2904e-7, 1.5e-4, 8.2299e-6)),
    "link1": (4.970684, (0.003875, 0.002081, -0.04762), (0.70337, 0.70661, 9.117e-3, -1.39e-4, 6.772e-3, 1.9169e-2)),
    "link2": (
        0.646926,
        (-0.003141, -0.02872, 0.003495),
        (7.962e-3, 2.811e-2, 2.5995e-2, -3.925e-3, 1.0254e-2, 7.04e-4),
    ),
    "link3": (
        3.228604,
        (0.027518, 0.039252, -0.066502),
        (3.7242e-2, 3.6155e-2, 1.083e-2, -4.761e-3, -1.1396e-2, -1.2805e-2),
    ),
    "link4": (
        3.587895,
        (-0.05317, 0.104419, 0.027454),
        (2.5853e-2, 1.9552e-2, 2.8323e-2, 7.796e-3, -1.332e-3, 8.641e-3),
    ),
    "link5": (
        1.225946,
        (-0.011953, 0.041065, -0.038437),
        (3.5549e-2, 2.9474e-2, 8.627e-3, -2.117e-3, -4.037e-3, 2.29e-4),
    ),
    "link6": (
        1.666555,
        (0.060149, -0.014117, -0.010517),
        (1.964e-3, 4.354e-3, 5.433e-3, 1.09e-4, -1.158e-3, 3.41e-4),
    ),
    "link7": (
        0.735522,
        (0.010517, -0.004252, 0.061597),
        (1.2516e-2, 1.0027e-2, 4.815e-3, -4.28e-4, -1.196e-3, -7.41e-4),
    ),
    "hand": (0.73, (-0.01, 0.0, 0.03), (1e-3, 2.5e-3, 1.7e-3, 0.0, 0.0, 0.0)),
    "left_finger": (0.015, (0.0, 0.0, 0.0), (2.375e-6, 2.375e-6, 7.5e-7, 0.0, 0.0, 0.0)),
    "right_finger": (0.015, (0.0, 0.0, 0.0), (2.375e-6, 2.375e-6, 7.5e-7, 0.0, 0.0, 0.0)),
}

# range [rad or m], torque limit [N m or N], speed limit [rad/s or m/s], kp [N m/rad or N/m]
JOINTS = {
    "joint1": ((-2.8973, 2.8973), 87.0, 2.175, 4500.0),
    "joint2": ((-1.7628, 1.7628), 87.0, 2.175, 4500.0),
    "joint3": ((-2.8973, 2.8973), 87.0, 2.175, 3500.0),
    "joint4": ((-3.0718, -0.0698), 87.0, 2.175, 3500.0),
    "joint5": ((-2.8973, 2.8973), 12.0, 2.61, 2000.0),
    "joint6": ((-0.0175, 3.7525), 12.0, 2.61, 2000.0),
    "joint7": ((-2.8973, 2.8973), 12.0, 2.61, 2000.0),
    "finger_joint1": ((0.0, 0.04), 70.0, 0.05, 10000.0),
    "finger_joint2": ((0.0, 0.04), 0.0, 0.05, 0.0),
}

# Denavit-Hartenberg parameters of Franka's documentation (Craig's convention): a [m], d [m], alpha [quarter turns]
DH = (
    (0.0, 0.333, 0),
    (0.0, 0.0, -1),
    (0.0, 0.316, 1),
    (0.0825, 0.0, 1),
    (-0.0825, 0.384, -1),
    (0.0, 0.0, 1),
    (0.088, 0.0, 1),
)
FLANGE, TCP = 0.107, 0.1034  # flange beyond joint 7, grasp point beyond the flange, along z [m]


@pytest.fixture(scope="module")
def model():
    return mujoco.MjModel.from_xml_path(str(ROBOT.model))


def random_poses(model, count, seed=0):
    return np.random.default_rng(seed).uniform(*model.jnt_range[:9].T, size=(count, 9))


def at(model, qpos):
    data = mujoco.MjData(model)
    data.qpos[:9] = qpos
    mujoco.mj_forward(model, data)
    return data


def test_bodies_and_total_mass(model):
    assert [model.body(i).name for i in range(1, model.nbody)] == list(INERTIALS)
    assert model.body_mass.sum() == pytest.approx(17.451901, abs=1e-6)


@pytest.mark.parametrize("name", INERTIALS)
def test_inertial(model, name):
    mass, center, (xx, yy, zz, xy, xz, yz) = INERTIALS[name]
    body, axes = model.body(name), np.zeros(9)
    mujoco.mju_quat2Mat(axes, body.iquat)
    axes = axes.reshape(3, 3)
    assert body.mass[0] == pytest.approx(mass, rel=1e-9)
    np.testing.assert_allclose(body.ipos, center, atol=1e-12)
    tensor = [[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]
    np.testing.assert_allclose(axes @ np.diag(body.inertia) @ axes.T, tensor, atol=1e-9)


@pytest.mark.parametrize("name", JOINTS)
def test_joint(model, name):
    limits, effort, speed, kp = JOINTS[name]
    joint, facts = model.joint(name), next(fact for fact in ROBOT.joints if fact.name == name)
    np.testing.assert_allclose(joint.range, limits)
    np.testing.assert_allclose(joint.axis, (0, 1, 0) if "finger" in name else (0, 0, 1))
    armature, damping = (4.0, 700.0) if "finger" in name else (0.1, 1.0)
    assert (joint.armature[0], joint.damping[0], joint.frictionloss[0]) == (armature, damping, 0.0)
    kd = kp / 20 if "finger" in name else kp / 10
    assert (facts.effort_limit, facts.velocity_limit, facts.kp, facts.kd) == (effort, speed, kp, kd)


def test_joint_order_and_one_drive_of_the_hand():
    assert ROBOT.joint_names == tuple(JOINTS)
    assert [joint.name for joint in ROBOT.joints if joint.passive] == ["finger_joint2"]
    hand = ROBOT.joints[7]
    assert [hand.default_pos + action * hand.action_scale for action in (-1, 0)] == [0.0, 0.04]


def transform(joints):
    """The pose (4, 4) of joint 7's frame by the DH table, for seven joint positions."""
    pose = np.eye(4)
    for (a, d, turn), q in zip(DH, joints, strict=True):
        c, s, ca, sa = math.cos(q), math.sin(q), math.cos(turn * math.pi / 2), math.sin(turn * math.pi / 2)
        link = [[c, -s, 0, a], [s * ca, c * ca, -sa, -d * sa], [s * sa, c * sa, ca, d * ca], [0, 0, 0, 1]]
        pose = pose @ np.array(link)
    return pose


def test_the_hand_is_where_the_dh_table_says(model):
    """The hand is turned back by 45 degrees about the flange's axis."""
    turned = np.array([[1, 1, 0], [-1, 1, 0], [0, 0, math.sqrt(2)]]) / math.sqrt(2)
    for pose in random_poses(model, 20):
        site, expected = at(model, pose).site("hand_tcp"), transform(pose[:7])
        np.testing.assert_allclose(site.xpos, (expected @ [0, 0, FLANGE + TCP, 1])[:3], atol=1e-9)
        np.testing.assert_allclose(site.xmat.reshape(3, 3), expected[:3, :3] @ turned, atol=1e-9)


def test_ready_the_hand_points_down_and_opens_sideways(model):
    """Upper arm back and forearm level: x = d5 + a7 - (d3 - a4) / sqrt 2, z = d1 + a4 + (d3 + a4) / sqrt 2 - hand."""
    site = at(model, READY).site("hand_tcp")
    expected = (
        0.384 + 0.088 - (0.316 - 0.0825) / math.sqrt(2),
        0.0,
        0.333 + 0.0825 + (0.316 + 0.0825) / math.sqrt(2) - 0.107 - 0.1034,
    )
    np.testing.assert_allclose(expected, (0.30689, 0.0, 0.48688), atol=5e-6)
    np.testing.assert_allclose(site.xpos, expected, atol=1e-9)
    np.testing.assert_allclose(site.xmat.reshape(3, 3), np.diag([1.0, -1.0, -1.0]), atol=1e-9)


def test_reach(model):
    """Outstretched, all offsets in one line, the flange is 0.858 m from the shoulder; the data sheet says 0.855 m."""
    by_hand = math.hypot(0.316, 0.0825) + math.hypot(0.384, 0.0825) + math.hypot(0.088, 0.107)
    assert by_hand == pytest.approx(0.855, abs=0.003)
    elbow = -math.atan2(0.0825, 0.316) - math.atan2(0.0825, 0.384)
    data, farthest = mujoco.MjData(model), 0.0
    for wrist in np.linspace(*model.joint("joint6").range, 400):
        data.qpos[:7] = [0.0, 0.0, 0.0, elbow, 0.0, wrist, 0.0]
        mujoco.mj_kinematics(model, data)
        farthest = max(farthest, float(np.linalg.norm(data.body("hand").xpos - [0, 0, 0.333])))
    assert farthest == pytest.approx(by_hand, abs=1e-5)


def test_grasp_point_and_camera(model):
    """The grasp point lies between the pads, which meet when the hand is closed; the camera looks at what is held."""
    data = at(model, [*READY[:7], 0.0, 0.0])
    pads = [data.geom(name) for name in ("left_pad", "right_pad")]
    np.testing.assert_allclose(np.mean([pad.xpos for pad in pads], axis=0), data.site("hand_tcp").xpos, atol=1e-3)
    assert np.linalg.norm(pads[0].xpos - pads[1].xpos) == pytest.approx(2 * model.geom("left_pad").size[1], abs=1e-9)
    camera = data.site("wrist_camera").xmat.reshape(3, 3)
    np.testing.assert_allclose(camera[:, 0], data.site("hand_tcp").xmat.reshape(3, 3)[:, 2], atol=1e-9)
    np.testing.assert_allclose(camera[:, 2], [1, 0, 0], atol=1e-9)  # up in the image is away from the base


def test_no_part_of_a_finger_is_between_the_pads(model):
    """A cube of any width that the hand takes touches pads only, up to 1.2 cm above the grasp point."""
    spec = held_cube(mass=0.1, gap=0.0)
    spec.body("cube").pos[2] += 0.012
    model = spec.compile()
    data = at(model, [*READY[:7], CUBE / 2 - 1e-4, CUBE / 2 - 1e-4])
    touching = {model.geom(int(geom)).name for geom in data.contact.geom.ravel()}
    assert touching == {"cube", "left_pad", "right_pad"}


def make_scene(timestep=0.005):
    """The Panda without looks on a floor at z = 0, its joints driven by the gains of its facts."""
    spec = mujoco.MjSpec.from_file(str(ROBOT.model))
    for geom in list(spec.geoms):
        if geom.group == 2:
            spec.delete(geom)
    spec.option.timestep, spec.option.integrator = timestep, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    floor = spec.worldbody.add_geom(name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 0.05])
    floor.contype, floor.conaffinity = 1, 0
    for joint in ROBOT.joints:
        if joint.passive:
            continue
        motor = spec.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        motor.set_to_position(kp=joint.kp, kv=joint.kd)
        motor.forcelimited, motor.forcerange = True, [-joint.effort_limit, joint.effort_limit]
    return spec


def add_cube(spec, pos, mass):
    body = spec.worldbody.add_body(name="cube", pos=pos)
    body.add_freejoint()
    cube = body.add_geom(name="cube", type=mujoco.mjtGeom.mjGEOM_BOX, size=[CUBE / 2] * 3, mass=mass)
    cube.contype, cube.conaffinity = 1, 1


def held_cube(mass, gap):
    """A scene with a cube at the grasp point of the ready pose, `gap` off the middle [m], and no gravity."""
    spec = make_scene()
    spec.option.gravity = [0, 0, 0]
    height = 0.333 + 0.0825 + (0.316 + 0.0825) / math.sqrt(2) - FLANGE - TCP
    add_cube(spec, [0.472 - (0.316 - 0.0825) / math.sqrt(2), gap, height], mass)
    return spec


def test_the_arm_carries_itself():
    """Nothing moves and no drive works, in any pose; a body that is not the robot's falls."""
    spec = make_scene()
    spec.geom("floor").pos = [0, 0, -5]  # out of the reach of all poses
    add_cube(spec, [2.0, 0.0, 1.0], 0.1)
    model = spec.compile()
    for pose in random_poses(model, 5, seed=1):
        pose[7:] = 0.02
        data = at(model, pose)
        data.ctrl[:] = pose[:8]
        mujoco.mj_step(model, data, 20)
        np.testing.assert_allclose(data.qpos[:9], pose, atol=1e-9)
        np.testing.assert_allclose(data.actuator_force, 0.0, atol=1e-6)
        assert data.body("cube").xpos[2] < 0.96


def test_a_finger_follows_the_other():
    """Opened and closed at the step of training, they are never more than 0.1 mm apart, nor too fast for any target."""
    model = make_scene().compile()
    data = at(model, READY)
    data.ctrl[:] = READY[:8]
    apart, speeds = [], []
    for target in (0.0, 0.04, 0.01, -10.0, 10.0):
        data.ctrl[7] = target
        for _ in range(300):
            mujoco.mj_step(model, data)
            apart.append(abs(data.qpos[7] - data.qpos[8]))
            speeds.append(np.abs(data.qvel[7:9]).max())
        np.testing.assert_allclose(data.qpos[7:9], np.clip(target, 0, 0.04), atol=5e-4)
    assert max(apart) < 1.5e-4
    assert 0.9 < max(speeds) / ROBOT.joints[7].velocity_limit < 1.05


def pad_force(model, data, pad):
    """The sum of the normal forces at a pad [N]."""
    total, force = 0.0, np.zeros(6)
    for k in range(data.ncon):
        if model.geom(pad).id in data.contact.geom[k]:
            mujoco.mj_contactForce(model, data, k, force)
            total += force[0]
    return total


def test_the_force_of_the_hand():
    """Closed on a cube the drive works at its limit, 70 N, which both fingers share."""
    model = held_cube(mass=0.1, gap=0.001).compile()
    data = at(model, READY)
    data.ctrl[:] = [*READY[:7], 0.0]
    mujoco.mj_step(model, data, 400)
    for pad in ("left_pad", "right_pad"):
        assert pad_force(model, data, pad) == pytest.approx(35.0, rel=0.02)
    assert data.actuator("finger_joint1").force[0] == pytest.approx(-70.0, rel=0.01)


@pytest.mark.parametrize("k", range(7))
def test_an_action_of_one_is_what_a_joint_can_do(k):
    """A step of the target by the action's scale peaks within 10 % of the speed limit, and uses most of it."""
    model = make_scene().compile()
    data, peak = at(model, READY), 0.0
    data.ctrl[:] = READY[:8]
    data.ctrl[k] += ROBOT.joints[k].action_scale
    for _ in range(40):
        mujoco.mj_step(model, data)
        peak = max(peak, abs(data.qvel[k]))
    assert 0.8 < peak / ROBOT.joints[k].velocity_limit < 1.1


def joints_at(model, pos, start):
    """Arm positions (7,) with the grasp point at `pos` and the hand straight down; damped least squares."""
    data, jacobian, down = mujoco.MjData(model), np.zeros((6, model.nv)), np.diag([1.0, -1.0, -1.0])
    data.qpos[:7] = start
    site = model.site("hand_tcp").id
    for _ in range(60):
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_jacSite(model, data, jacobian[:3], jacobian[3:], site)
        turn = 0.5 * np.cross(data.site_xmat[site].reshape(3, 3), down, axis=0).sum(axis=1)
        error = np.concatenate([np.clip(pos - data.site_xpos[site], -0.05, 0.05), turn])
        arm = jacobian[:, :7]
        data.qpos[:7] += arm.T @ np.linalg.solve(arm @ arm.T + 1e-4 * np.eye(6), error)
    assert np.abs(error).max() < 1e-6
    return data.qpos[:7].copy()


@pytest.mark.parametrize("iterations", [4, 10])
def test_lifts_a_cube(iterations):
    """Targets at 50 Hz, worked out ahead: above the cube, down, close, up, hold; it slips by a few millimeters."""
    spec = make_scene()
    add_cube(spec, [0.5, 0.1, CUBE / 2], mass=0.1)
    spec.option.iterations, spec.option.ls_iterations = iterations, 2 * iterations
    model = spec.compile()
    data, arm = at(model, READY), READY[:7]
    high = joints_at(model, np.array([0.5, 0.1, 0.2]), arm)
    low = joints_at(model, np.array([0.5, 0.1, CUBE / 2]), high)
    for target, finger, steps in ((high, 0.04, 50), (low, 0.04, 60), (low, 0.0, 25), (high, 0.0, 60), (high, 0.0, 50)):
        for step in range(steps):
            data.ctrl[:7] = arm + (target - arm) * (step + 1) / steps
            data.ctrl[7] = finger
            mujoco.mj_step(model, data, 4)
        arm = target
    cube = data.body("cube").xpos
    np.testing.assert_allclose(cube[:2], [0.5, 0.1], atol=0.01)
    assert 0.195 < cube[2] < 0.201
    touching = {model.geom(int(geom)).name for geom in data.contact.geom.ravel()}
    assert touching == {"cube", "left_pad", "right_pad"}
    before = float(cube[2])
    mujoco.mj_step(model, data, 400)
    assert data.body("cube").xpos[2] > before - 0.002


def test_an_environment_drives_it():
    """Eight actions; at rest it stays ready, -1 of the last action closes both fingers."""
    import torch
    from robot_rl_envs.make import make_env
    from robot_rl_envs.mdp import observations, rewards
    from robot_rl_envs.task import Observation, ObservationGroup, Reward, Sim, Task

    task = Task(
        name="hold",
        robot=ROBOT,
        sim=Sim(timestep=0.005, decimation=4),
        observations={"actor": ObservationGroup(terms={"joint_pos": Observation(observations.joint_pos_rel)})},
        rewards={"alive": Reward(rewards.alive, weight=1.0)},
    )
    env = make_env(task, num_envs=2, engine="mujoco", num_threads=1)
    assert env.num_actions == 8
    actions = torch.zeros(2, 8)
    for _ in range(25):
        env.step(actions)
    np.testing.assert_allclose(env.state.joint_pos.numpy(), [READY, READY], atol=1e-6)
    actions[1, 7] = -1.0
    for _ in range(100):
        env.step(actions)
    np.testing.assert_allclose(env.state.joint_pos.numpy()[:, 7:], [[0.04, 0.04], [0.0, 0.0]], atol=1e-4)
    np.testing.assert_allclose(env.state.joint_torque.numpy()[0], 0.0, atol=1e-3)


@dataclass
class Reference:
    """A model, and what its controls of a position are: `scale` times it for the hand."""

    model: mujoco.MjModel
    scale: float


def step_response(reference, k, step):
    """Positions (500, 9) over a second after a step of one target."""
    data = at(reference.model, READY)
    target = READY[:8].copy()
    target[k] += step
    data.ctrl[:7], data.ctrl[7] = target[:7], target[7] * reference.scale
    found = []
    for _ in range(500):
        mujoco.mj_step(reference.model, data)
        found.append(data.qpos[:9].copy())
    return np.array(found)


@pytest.fixture(scope="module")
def reference():
    """The reference model without its shapes, its weight compensated as ours is."""
    root = os.environ.get("ROBOT_RL_REFERENCE")
    if not root:
        pytest.skip("ROBOT_RL_REFERENCE is not set: the folder with franka_panda/panda.xml")
    spec = mujoco.MjSpec.from_file(str(Path(root) / "franka_panda" / "panda.xml"))
    for thing in (*spec.geoms, *spec.meshes):
        spec.delete(thing)
    for body in spec.bodies:
        body.gravcomp = 1.0
    spec.option.timestep, spec.option.integrator = 0.002, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    return Reference(spec.compile(), 255 / 0.04)


@pytest.mark.parametrize("name", [joint.name for joint in ROBOT.joints if not joint.passive])
def test_a_joint_responds_as_the_references_does(reference, name):
    """Largest deviation of any joint within 2 % of the step; the others are held where they are.

    The reference's hand has no speed limit: here ours has the gains, armature and damping of that drive.
    """
    k, step = ROBOT.joint_names.index(name), -0.03 if "finger" in name else 0.2
    spec = make_scene(timestep=0.002)
    spec.actuator("finger_joint1").set_to_position(kp=100.0, kv=10.0)
    for finger in ("finger_joint1", "finger_joint2"):
        spec.joint(finger).armature, spec.joint(finger).damping[0] = 0.1, 1.0
    ours, theirs = (step_response(one, k, step) for one in (Reference(spec.compile(), 1.0), reference))
    assert np.abs(theirs[-1, k] - READY[k] - step) < 0.01 * abs(step)
    deviation = np.abs(ours - theirs).max() / abs(step)
    print(f"{name}: largest deviation {deviation:.2e} of the step")
    assert deviation < 0.02


def test_a_reset_puts_both_fingers_to_one_place():
    from robot_rl_envs.make import make_env
    from robot_rl_tasks.registry import get_task

    env = make_env(get_task("panda_reach"), num_envs=50, num_threads=1)
    near, far = env.state.joint_pos[:, 7], env.state.joint_pos[:, 8]
    assert float(near.std()) > 0.005
    assert (near == far).all()
    assert (env.state.joint_vel[:, 7] == env.state.joint_vel[:, 8]).all()

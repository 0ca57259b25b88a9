"""Properties of every registered robot, which scenes, resets and exports rely on."""

import math

import mujoco
import numpy as np
import pytest
from robot_rl_assets import get_robot, list_robots

VISUAL, COLLISION = 2, 3


@pytest.fixture(params=list_robots())
def robot(request):
    return get_robot(request.param)


@pytest.fixture
def model(robot):
    return mujoco.MjModel.from_xml_path(str(robot.model))


def in_default_pose(robot, model):
    data = mujoco.MjData(model)
    if robot.base_body:
        data.qpos[:7] = [0, 0, robot.base_height, 1, 0, 0, 0]
    for joint in robot.joints:
        data.joint(joint.name).qpos[0] = joint.default_pos
    mujoco.mj_forward(model, data)
    return data


def test_model_contains_only_the_robot(robot, model):
    assert (model.nu, model.nsensor, model.nkey, model.nlight) == (0, 0, 0, 0)
    assert not (model.geom_type == int(mujoco.mjtGeom.mjGEOM_PLANE)).any()


def test_every_joint_is_listed_once(robot, model):
    scalar = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
    in_model = {model.joint(i).name for i in range(model.njnt) if model.jnt_type[i] in scalar}
    assert set(robot.joint_names) == in_model
    assert len(robot.joints) == len(in_model)


def test_default_pose_is_within_ordered_limits(robot, model):
    for joint in robot.joints:
        if not model.joint(joint.name).limited[0]:
            continue
        lower, upper = model.joint(joint.name).range
        assert lower <= joint.default_pos <= upper, joint.name


def test_base_floats_or_is_fixed_as_the_robot_specifies(robot, model):
    free = np.flatnonzero(model.jnt_type == int(mujoco.mjtJoint.mjJNT_FREE))
    if robot.base_body is None:
        assert free.size == 0
    else:
        assert [model.body(model.jnt_bodyid[i]).name for i in free] == [robot.base_body]
        assert model.jnt_qposadr[free[0]] == 0


def test_feet_stand_on_the_ground_in_the_default_pose(robot, model):
    data = in_default_pose(robot, model)
    for foot in robot.feet:
        geom = model.geom(foot)
        sole = {int(mujoco.mjtGeom.mjGEOM_SPHERE): geom.size[0], int(mujoco.mjtGeom.mjGEOM_BOX): geom.size[2]}
        assert sole[geom.type[0]] == robot.foot_radius
        np.testing.assert_allclose(data.site(f"{foot}_foot").xpos, data.geom(foot).xpos, atol=1e-12)
        assert 0 <= data.geom(foot).xpos[2] - robot.foot_radius < 2e-3, foot


def test_imu_sits_on_the_floating_base(robot, model):
    assert (robot.imu_site is None) == (robot.base_body is None)
    if robot.imu_site is None:
        return
    site = model.site(robot.imu_site)
    assert model.body(site.bodyid[0]).name == robot.base_body
    np.testing.assert_allclose(site.quat, [1, 0, 0, 0])


def test_geoms_touch_the_ground_and_never_the_robot(robot, model):
    assert not model.geom_contype.any()
    assert set(model.geom_group) <= {VISUAL, COLLISION}
    np.testing.assert_array_equal(model.geom_conaffinity, model.geom_group == COLLISION)


def test_dropping_what_is_only_seen_changes_no_dynamics(robot, model):
    spec = mujoco.MjSpec.from_file(str(robot.model))
    for geom in list(spec.geoms):
        if geom.group == VISUAL:
            spec.delete(geom)
    bare = spec.compile()
    assert bare.ngeom < model.ngeom
    for field in ("body_mass", "body_inertia", "body_ipos", "body_iquat", "dof_M0"):
        np.testing.assert_array_equal(getattr(bare, field), getattr(model, field), err_msg=field)


def test_mirror_is_an_involution(robot):
    index, sign = robot.joint_mirror()
    q = np.random.default_rng(0).normal(size=len(index))
    once = np.array(sign) * q[list(index)]
    np.testing.assert_array_equal(np.array(sign) * once[list(index)], q)
    assert [robot.foot_mirror[i] for i in robot.foot_mirror] == list(range(len(robot.feet)))


def test_default_pose_is_its_own_mirror(robot, model):
    index, sign = robot.joint_mirror()
    default = np.array(robot.default_pos())
    difference = np.array(sign) * default[list(index)] - default
    for joint, delta in zip(robot.joints, difference, strict=True):
        if not model.joint(joint.name).limited[0]:
            delta = math.remainder(delta, 2 * math.pi)
        assert delta == pytest.approx(0, abs=1e-12), joint.name


def test_partners_share_limits_and_gains(robot, model):
    by_name = {joint.name: joint for joint in robot.joints}
    for joint in robot.joints:
        partner = by_name[joint.mirror or joint.name]
        for field in ("effort_limit", "velocity_limit", "kp", "kd", "action_scale"):
            assert getattr(partner, field) == getattr(joint, field)
        limits = sorted(joint.mirror_sign * model.joint(joint.name).range)
        np.testing.assert_allclose(model.joint(partner.name).range, limits)

"""What terms read (base, joints, feet), against MuJoCo's own kinematics in double precision."""

from pathlib import Path

import mujoco
import numpy as np
import pytest
from robot_rl_assets.robot import Joint, Robot
from robot_rl_envs.mdp import observations
from robot_rl_envs.task import Actions, Observation, ObservationGroup

# Two sliders and hinges with offset anchors, two joints on one body, a turned jointless body, reference positions.
ARM = """
<mujoco><compiler angle="radian" autolimits="true"/>
  <worldbody>
    <body name="stand" pos="0.3 -0.2 0.9" quat="0.8 0.2 -0.4 0.4">
      <body name="a" pos="0.1 0.2 0.05" quat="0.9 -0.1 0.3 0.3">
        <inertial pos="0 0 0" mass="1" diaginertia="0.01 0.02 0.03"/>
        <joint name="slide" type="slide" axis="1 2 -1" ref="0.1"/>
        <joint name="swing" type="hinge" axis="0 1 1" pos="0.05 -0.1 0.2" ref="-0.4"/>
        <body name="plate" pos="0 0.1 0.2" quat="0.7 0.7 0 0.1">
          <inertial pos="0 0 0" mass="1" diaginertia="0.01 0.02 0.03"/>
          <geom name="L" type="sphere" size="0.02" pos="0.1 0 -0.05"/><site name="L_foot" pos="0.1 0 -0.05"/>
          <body name="b" pos="0.2 0 0.1">
            <inertial pos="0 0 0" mass="1" diaginertia="0.01 0.02 0.03"/>
            <joint name="bend" type="hinge" axis="1 0 0.5" pos="-0.1 0.02 0.03"/>
            <joint name="reach" type="slide" axis="0 0 1"/>
            <geom name="R" type="sphere" size="0.02" pos="0 0.2 0"/><site name="R_foot" pos="0 0.2 0"/>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


def expected(env, qpos, qvel):
    """MuJoCo's positions and velocities of one state: feet (nf, 3) twice, base linear and angular velocity locally."""
    model, data = env.scene.model, mujoco.MjData(env.scene.model)
    data.qpos[:], data.qvel[:] = qpos, qvel
    mujoco.mj_forward(model, data)
    velocity = np.zeros(6)
    feet = []
    for geom in env.scene.foot_geoms:
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_GEOM, geom, velocity, 0)
        # the geom's frame may be turned; flg_local = 0 gives the world's axes
        feet.append((data.geom_xpos[geom].copy(), velocity[3:].copy()))
    mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, env.scene.base_body_id, velocity, 1)
    gravity = data.xmat[env.scene.base_body_id].reshape(3, 3).T @ [0.0, 0.0, -1.0]
    return [np.array(x) for x in zip(*feet, strict=True)], velocity[3:].copy(), velocity[:3].copy(), gravity


@pytest.fixture
def moved_go2(puppet, go2_task, go2_states):
    doll = puppet(go2_task(), num_envs=16)
    states = go2_states(1, 16)
    doll.step(**states)
    return doll, states


def test_feet_of_a_go2_are_where_mujoco_has_them(moved_go2):
    doll, states = moved_go2
    s = doll.snapshot()
    for i in range(16):
        (pos, vel), _, _, _ = expected(doll.env, states["qpos"][i], states["qvel"][i])
        np.testing.assert_allclose(s.foot_pos_w[i], pos, atol=1e-5)
        np.testing.assert_allclose(s.foot_vel_w[i], vel, atol=1e-5)
        np.testing.assert_allclose(s.foot_height_w[i], pos[:, 2] - 0.022, atol=1e-5)


def test_base_velocities_and_gravity_are_in_the_base_frame(moved_go2):
    doll, states = moved_go2
    s = doll.snapshot()
    for i in range(16):
        _, lin, ang, gravity = expected(doll.env, states["qpos"][i], states["qvel"][i])
        np.testing.assert_allclose(s.base_pos_w[i], states["qpos"][i, :3])
        np.testing.assert_allclose(s.base_quat_wxyz[i], states["qpos"][i, 3:7], atol=1e-6)
        np.testing.assert_allclose(s.base_lin_vel_w[i], states["qvel"][i, :3])
        np.testing.assert_allclose(s.base_lin_vel_b[i], lin, atol=1e-5)
        np.testing.assert_allclose(s.base_ang_vel_b[i], ang, atol=1e-5)
        np.testing.assert_allclose(s.projected_gravity_b[i], gravity, atol=1e-5)


def test_joints_come_in_the_robots_order(moved_go2):
    doll, states = moved_go2
    s, model = doll.snapshot(), doll.env.scene.model
    for j, name in enumerate(doll.env.cfg.robot.joint_names):
        joint = model.joint(name)
        np.testing.assert_array_equal(s.joint_pos[:, j], states["qpos"][:, joint.qposadr[0]])
        np.testing.assert_array_equal(s.joint_vel[:, j], states["qvel"][:, joint.dofadr[0]])
        np.testing.assert_array_equal(s.joint_torque[:, j], states["actuator_force"][:, model.actuator(name).id])


def test_a_chain_of_sliders_and_hinges_with_offsets_is_followed(puppet, cart_task, tmp_path: Path):
    (tmp_path / "arm.xml").write_text(ARM)
    names = ("reach", "swing", "slide", "bend")  # not the model's order
    robot = Robot(
        name="arm",
        model=tmp_path / "arm.xml",
        joints=tuple(Joint(name=n, default_pos=0.0, effort_limit=1.0, velocity_limit=9.0) for n in names),
        feet=("L", "R"),
        foot_radius=0.02,
        foot_mirror=(0, 1),
    )
    terms = {"joint_pos": Observation(observations.joint_pos_rel)}
    task = cart_task(
        robot=robot,
        actions=Actions(kind="effort"),
        terminations={},
        events={},
        observations={"actor": ObservationGroup(terms=terms)},
    )
    doll = puppet(task, num_envs=8)
    rng = np.random.default_rng(2)
    qpos, qvel = rng.normal(size=(2, 8, 4)).astype(np.float32)
    obs = doll.step(qpos=qpos, qvel=qvel)[0]
    s = doll.snapshot()
    for i in range(8):
        (pos, vel), _, _, _ = expected(doll.env, qpos[i], qvel[i])
        np.testing.assert_allclose(s.foot_pos_w[i], pos, atol=1e-5)
        np.testing.assert_allclose(s.foot_vel_w[i], vel, atol=1e-5)
    np.testing.assert_array_equal(obs["actor"].numpy(), qpos[:, [3, 1, 0, 2]])

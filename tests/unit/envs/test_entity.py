"""A named entity of a scene knows its part of the model, at any place in the model's arrays."""

import numpy as np
import pytest
import torch
from robot_rl_assets.registry import get_robot
from robot_rl_assets.robot import Joint, Robot
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import events, observations, rewards
from robot_rl_envs.task import Actions, Event, Observation, ObservationGroup, Reward, Sim, Task

GATE_AND_BOX = """
<mujoco>
  <worldbody>
    <body name="gate" pos="5 0 1">
      <inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
      <joint name="lift" type="slide" axis="0 0 1"/>
      <site name="latch"/>
    </body>
    <body name="box" pos="0 0 2">
      <freejoint/>
      <inertial pos="0 0 0" mass="1" diaginertia="0.1 0.1 0.1"/>
      <body name="lid" pos="0 0 0.2">
        <inertial pos="0 0 0" mass="0.1" diaginertia="0.01 0.01 0.01"/>
        <joint name="hinge" axis="0 1 0"/>
        <site name="knob"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.fixture
def box(tmp_path):
    """A floating box with a lid; its base is not the first joint of its model."""
    path = tmp_path / "box.xml"
    path.write_text(GATE_AND_BOX)
    lid = Joint(name="hinge", default_pos=0.3, effort_limit=1.0, velocity_limit=10.0)
    return Robot(name="box", model=path, joints=(lid,), base_body="box", base_height=2.0)


def names(scene, kind, ids):
    return [getattr(scene.model, kind)(int(k)).name for k in ids]


def test_a_walking_robot_has_feet_and_a_base():
    scene = Scene(get_robot("unitree_go2"), Sim(), Actions())
    robot = scene.entity
    assert robot.base
    assert scene.model.body(robot.base_body_id).name == "base_link"
    assert names(scene, "geom", robot.foot_geoms) == ["FL", "FR", "RL", "RR"]
    assert robot.joint_ctrl.tolist() == list(range(12))
    assert robot.chain["start"].tolist() == [0, 3, 6, 9, 12]


def test_a_bolted_down_robot_has_neither():
    robot = Scene(get_robot("cartpole"), Sim(), Actions(kind="effort")).entity
    assert (robot.base, robot.base_body_id) == (False, 0)
    assert len(robot.foot_geoms) == len(robot.foot_sensor) == robot.sizes["feet"] == 0
    assert robot.chain["start"].tolist() == [0]
    assert robot.joint_ctrl.tolist() == [0, -1]


def test_only_what_is_its_own_belongs_to_it(box):
    scene = Scene(box, Sim(), Actions(kind="effort"))
    robot = scene.entity
    assert (robot.base_qpos, robot.base_dof) == (1, 1)
    assert robot.joint_qpos.tolist() == [8]
    assert scene.default_qpos == pytest.approx([0, 0, 0, 2, 1, 0, 0, 0, 0.3])


def test_a_base_that_is_not_first_is_reset_pushed_and_derived(box):
    terms = {"height": Observation(observations.base_height), "lid": Observation(observations.joint_pos_rel)}
    task = Task(
        name="box",
        robot=box,
        sim=Sim(timestep=0.002, decimation=2),
        actions=Actions(kind="effort"),
        observations={"actor": ObservationGroup(terms=terms, noise=False)},
        rewards={"height": Reward(rewards.base_height, weight=1.0, target=0.0)},
        events={
            "base": Event(events.reset_base, xy=0.5, yaw=1.0, velocity=0.3),
            "push": Event(events.push, mode="interval", interval_s=(0.004, 0.004), xy=1.0, yaw=1.0),
        },
    )
    env = make_env(task, num_envs=3, engine="mujoco", num_threads=1)
    s = env.state
    assert torch.equal(s.qpos[:, 0], torch.zeros(3))
    assert torch.equal(s.base_pos_w, s.qpos[:, 1:4])
    assert s.base_pos_w[:, :2].abs().min() > 0
    assert torch.equal(s.base_lin_vel_w, s.qvel[:, 1:4])
    before = s.qvel.clone()
    env.push((0.5, 0.0, 0.0))
    assert (s.qvel - before)[0].tolist() == pytest.approx([0, 0.5, 0, 0, 0, 0, 0, 0])
    obs, *_ = env.step(torch.zeros(3, 1))
    assert np.allclose(obs["actor"][:, 0], s.qpos[:, 3])
    assert np.allclose(s.base_ang_vel_b, s.qvel[:, 4:7])
    env.close()

"""The actions that reach a joint's limits, its effort or its control, by hand."""

import dataclasses

import numpy as np
import pytest
from robot_rl_assets.registry import get_robot
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.make import make_env
from robot_rl_envs.task import Actions, Sim
from robot_rl_tasks.registry import get_task


def bounds(robot, **actions):
    return Scene(robot, Sim(), Actions(**actions)).action_bounds()


def test_of_positions_the_target_is_at_the_joints_limit():
    robot = get_robot("unitree_go2")
    scene = Scene(robot, Sim(), Actions(clip=1e6))
    low, high = scene.action_bounds().T
    for k, joint in enumerate(robot.joints):
        limits = scene.entity.joint_range[k]
        assert joint.default_pos + joint.action_scale * low[k] == pytest.approx(limits[0])
        assert joint.default_pos + joint.action_scale * high[k] == pytest.approx(limits[1])
    assert np.abs(bounds(robot, clip=2.0)).max() == 2.0


def test_of_efforts_it_is_the_greatest_effort():
    robot = get_robot("cartpole")
    joints = tuple(dataclasses.replace(joint, action_scale=0.5) for joint in robot.joints)
    assert bounds(robot, kind="effort").tolist() == [[-1.0, 1.0]]
    assert bounds(dataclasses.replace(robot, joints=joints), kind="effort").tolist() == [[-2.0, 2.0]]


def test_of_controls_it_is_their_range():
    task = get_task("humanoid_v5")
    env = make_env(task, num_envs=1, num_threads=1)
    low, high = env.action_bounds
    assert (task.actions.scale * low).tolist() == pytest.approx(env.scene.model.actuator_ctrlrange[:, 0].tolist())
    assert (task.actions.scale * high).tolist() == pytest.approx(env.scene.model.actuator_ctrlrange[:, 1].tolist())
    env.close()

"""Targets that ask for no more than a share of the joints' velocity limits."""

import dataclasses

import numpy as np
import pytest
import torch
from robot_rl_assets.registry import get_robot
from robot_rl_deploy.contract import ContractError, TrainingSpec, from_dict, to_dict
from robot_rl_deploy.describe import make_contract
from robot_rl_deploy.parts import ActionSpec
from robot_rl_deploy.policy import limit_targets
from robot_rl_envs.actuation.actuators import ActuatorNet, ExplicitPd, PositionPd
from robot_rl_envs.entity.scene import make_scene
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import observations, rewards
from robot_rl_envs.task import Actions, Observation, ObservationGroup, Reward, Sim, Task

RUN = TrainingSpec(run_id="test", task="moved", git_commit="unknown", iteration=0)
ARM, FINGER = 0.5 * 2.175 * (450.0 + 1.0) / 4500.0, 0.5 * 0.05 * (500.0 + 2 * 700.0) / 10000.0
"""Half of the speed limit, times damping of the gains and of the model, over kp: joint 1 and the hand of the Panda."""


def panda_task(actuator=None, **more):
    return Task(
        name="moved",
        robot=get_robot("franka_panda"),
        sim=Sim(timestep=0.005, decimation=4),
        actions=Actions(kind="position", limit_speed=0.5, actuator=actuator or PositionPd(), **more),
        observations={"actor": ObservationGroup(terms={"joint_pos": Observation(observations.joint_pos_rel)})},
        rewards={"alive": Reward(rewards.alive, weight=1.0)},
    )


@pytest.mark.parametrize(("actuator", "output"), [(PositionPd(), "ctrl"), (ExplicitPd(), "joint_target")])
def test_a_target_stays_near_the_joint(actuator, output):
    """An action of 10 is cut off at the largest error, an action of 0.1 is not; NaN still quarantines its world."""
    env = make_env(panda_task(actuator), num_envs=3, engine="mujoco", num_threads=1)
    start, actions = env.state.joint_pos.clone(), torch.zeros(3, 8)
    actions[0], actions[1], actions[2, 0] = 10.0, 0.1, float("nan")
    env.step(actions)
    moved = getattr(env.state, output).numpy() - start.numpy()[:, :8]
    np.testing.assert_allclose(moved[0, [0, 7]], [ARM, FINGER], atol=1e-6)
    assert env.pop_metrics()["quarantined/action"] == 1
    np.testing.assert_allclose(moved[1], [0.1 * joint.action_scale for joint in env.cfg.robot.joints[:8]], atol=1e-6)
    env.close()


def test_no_action_makes_a_joint_much_faster():
    """Joint 1 turns with half of its limit, and the fingers close with half of theirs, for an action of any size.

    One physics step at the effort limit of 87 N m changes joint 1's speed by a fifth of its limit.
    """
    env = make_env(panda_task(), num_envs=2, engine="mujoco", num_threads=1)
    actions, peak = torch.zeros(2, 8), torch.zeros(2, 9)
    actions[0, 0], actions[1, 7] = 6.0, -10.0
    for _ in range(40):
        env.step(actions)
        peak = torch.maximum(peak, env.state.joint_vel.abs())
    share = peak / torch.tensor([joint.velocity_limit for joint in env.cfg.robot.joints])
    assert 0.4 < share[0, 0] < 0.7
    assert 0.4 < share[1, 7] < 0.55
    env.close()


def test_the_contract_has_the_largest_error_and_the_bundle_keeps_it():
    env = make_env(panda_task(), num_envs=1, engine="mujoco", num_threads=1)
    contract = make_contract(env.describe_policy(), RUN)
    assert contract.actions[0].max_error == pytest.approx(ARM)
    assert contract.actions[7].max_error == pytest.approx(FINGER)
    assert from_dict(to_dict(contract)) == contract
    at = np.linspace(-1.0, 1.0, 8, dtype=np.float32)[None]
    limited = limit_targets(contract, at + np.float32(0.01), at)
    np.testing.assert_allclose(limited[0, :7] - at[0, :7], 0.01, atol=1e-6)
    np.testing.assert_allclose(limited[0, 7] - at[0, 7], FINGER, atol=1e-6)
    env.close()


def test_a_contract_without_it_says_nothing_of_it():
    free = dataclasses.replace(panda_task(), actions=Actions(kind="position"))
    env = make_env(free, num_envs=1, engine="mujoco", num_threads=1)
    contract = make_contract(env.describe_policy(), RUN)
    assert "max_error" not in to_dict(contract)["actions"][0]
    far = np.full((1, 8), 50.0, np.float32)
    np.testing.assert_array_equal(limit_targets(contract, far, np.zeros((1, 8))), far)
    env.close()


def test_a_joint_that_nothing_brakes_is_refused():
    """Neither its gains nor the model."""
    robot = get_robot("unitree_go2")
    joints = (dataclasses.replace(robot.joints[0], kd=0.0), *robot.joints[1:])
    task = dataclasses.replace(panda_task(), robot=dataclasses.replace(robot, joints=joints))
    scene = make_scene(task)
    scene.model.dof_damping[:] = 0.0
    with pytest.raises(ValueError, match="limit_speed=0.5: joint 'FL_hip_joint' is without damping; give it a kd"):
        scene.max_error(scene.robot.joints[0])


def test_an_effort_has_no_largest_error():
    with pytest.raises(ContractError, match="action of 'hip': max_error is 0.1; only a position target has one"):
        ActionSpec(joint="hip", kind="effort", scale=1.0, offset=0.0, clip=None, max_error=0.1)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"limit_speed": 1.5}, r"actions.limit_speed=1.5: must be in \[0, 1\]"),
        ({"limit_speed": 0.5, "kind": "effort"}, "limit_speed=0.5: needs position targets and an actuator with gains"),
        ({"limit_speed": 0.5, "actuator": ActuatorNet(file="a")}, "limit_speed=0.5: needs position targets"),
    ],
)
def test_what_cannot_be_limited_is_refused(settings, line):
    with pytest.raises(ValueError, match=line):
        Actions(**settings)

"""Speeds as targets: a Go2 whose calves were wheels, its other joints held by position, under each actuator."""

import dataclasses

import numpy as np
import pytest
import torch
from robot_rl_assets.registry import get_robot
from robot_rl_envs.actuation.actuators import DcMotor, ExplicitPd, PositionPd
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.mdp import randomize
from robot_rl_envs.task import Actions, Event, Sim
from robot_rl_tasks.registry import get_task

from tests.unit.actuation.conftest import KD, KP, by_speed

CALVES = tuple(f"{leg}_calf_joint" for leg in ("FL", "FR", "RL", "RR"))
ROBOT = by_speed(get_robot("unitree_go2"), *CALVES)
TURNED = np.array([joint.name in CALVES for joint in ROBOT.joints])
EFFORT = np.array([joint.effort_limit for joint in ROBOT.joints])
SPEED = np.array([joint.velocity_limit for joint in ROBOT.joints])


def targets(env, actions):
    scale = np.array([joint.action_scale for joint in ROBOT.joints]) * env.cfg.actions.scale
    return np.where(TURNED, 0.0, np.array(ROBOT.default_pos())) + scale * actions.numpy()


def torque(target, state, curve=0.0):
    value = np.where(TURNED, KD * (target - state.vel), KP * (target - state.pos) - KD * state.vel)
    if curve:
        value = np.clip(value, curve * EFFORT * (-1 - state.vel / SPEED), curve * EFFORT * (1 - state.vel / SPEED))
    return np.clip(value, -EFFORT, EFFORT)


def make(go2, actuator, scale=40.0, **options):
    return go2(actuator, task={"robot": ROBOT, "actions": Actions(actuator=actuator, scale=scale)}, **options)


@pytest.mark.parametrize(
    ("actuator", "curve"),
    [(PositionPd(), 0.0), (DcMotor(), 1.0), (ExplicitPd(), 0.0), (ExplicitPd(saturation_effort=1.3), 1.3)],
)
def test_torque_is_its_formula(actuator, curve, go2, put_states):
    env = make(go2, actuator, num_envs=64, sim={"decimation": 1})
    state = put_states(env)
    actions = torch.from_numpy(np.random.default_rng(1).uniform(-1, 1, (64, 12)).astype(np.float32))
    env.step(actions)
    want = torque(targets(env, actions), state, curve)
    np.testing.assert_allclose(env.state.joint_torque.numpy(), want, atol=4e-4)
    assert (np.abs(want[:, TURNED]) < 10).any()
    env.close()


@pytest.mark.parametrize("actuator", [PositionPd, DcMotor, ExplicitPd])
def test_before_the_first_delayed_target_a_wheel_is_to_stand(actuator, go2):
    env = make(go2, actuator(delay_s=(0.02, 0.02)), sim={"decimation": 1})
    env.step(torch.full((4, 12), 0.5))
    at_rest = torch.zeros(4, 4)
    torch.testing.assert_close(env.state.joint_torque[:, torch.from_numpy(TURNED)], at_rest, atol=0.1, rtol=0.0)
    for _ in range(6):
        env.step(torch.full((4, 12), 0.5))
    assert (env.state.joint_torque[:, torch.from_numpy(TURNED)] > 1.0).all()
    env.close()


def test_gains_are_drawn_for_the_law_of_each_joint(go2, put_states):
    drawn = {"gains": Event(randomize.motor_gains, mode="startup", kp_lo=1.5, kp_hi=1.5, kd_lo=0.5, kd_hi=0.5)}
    actions = Actions(scale=40.0)
    env = go2(PositionPd(), task={"robot": ROBOT, "actions": actions, "events": drawn}, sim={"decimation": 1})
    state = put_states(env)
    at_rest = torch.zeros(4, 12)
    env.step(at_rest)
    target = targets(env, at_rest)
    want = np.where(TURNED, 0.5 * KD * (target - state.vel), 1.5 * KP * (target - state.pos) - 0.5 * KD * state.vel)
    np.testing.assert_allclose(env.state.joint_torque.numpy(), np.clip(want, -EFFORT, EFFORT), atol=4e-4)
    env.close()


def test_the_bundle_is_told_which_targets_are_speeds(go2):
    env = make(go2, PositionPd())
    rows = env.describe_policy()["actions"]
    assert [row.get("kind") for row in rows] == ["velocity" if turned else None for turned in TURNED]
    assert [row["offset"] for row in rows if "kind" in row] == [0.0] * 4
    low, high = Scene(ROBOT, Sim(), Actions(clip=1e6)).action_bounds()[TURNED].T
    scale = np.array([joint.action_scale for joint in ROBOT.joints])[TURNED]
    np.testing.assert_allclose([low * scale, high * scale], [-SPEED[TURNED], SPEED[TURNED]])
    env.close()


def test_the_limit_on_speed_bounds_positions_and_speeds(go2):
    env = go2(PositionPd(), task={"robot": ROBOT, "actions": Actions(scale=40.0, limit_speed=0.5)})
    assert [("max_error" in row) for row in env.describe_policy()["actions"]] == [not turned for turned in TURNED]
    env.step(torch.full((4, 12), 9.0))
    np.testing.assert_allclose(env.state.ctrl.numpy()[:, TURNED], np.tile(0.5 * SPEED[TURNED], (4, 1)), rtol=1e-6)
    assert float(env.state.action[:, ~TURNED].min()) == 9.0
    rows = [row for row in env.describe_policy()["actions"] if "kind" in row]
    assert [row["clip"] * row["scale"] for row in rows] == pytest.approx(list(0.5 * SPEED[TURNED]))
    env.close()


def test_a_command_of_positions_is_none_for_a_wheel():
    task = get_task("g1_track")
    joint = task.robot.joints[0].name
    with pytest.raises(ValueError, match=f"actions.around='command': joint '{joint}' cannot go to a position"):
        dataclasses.replace(task, robot=by_speed(task.robot, joint))


@pytest.mark.parametrize("scale", [0.0, float("nan"), float("inf")])
def test_a_scale_with_which_nothing_moves_is_refused(scale):
    with pytest.raises(ValueError, match=r"actions.scale=.*: must be a finite number and not 0"):
        Actions(scale=scale)

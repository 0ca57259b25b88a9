"""The humanoid's own rewards, by hand: feet that follow the gait clock and stay apart, a body near its default pose."""

import math

import numpy as np
import pytest
import torch
from robot_rl_envs.make import make_env
from robot_rl_envs.task import Reward
from robot_rl_tasks.g1_flat import gait
from robot_rl_tasks.registry import get_task

CLOCK = {"frequency_hz": 1.25, "swing": 0.4}
PERIOD_S = 0.8
FORWARD, STAND = (0.5, 0.0, 0.0), (0.0, 0.0, 0.0)


@pytest.fixture(scope="module")
def env():
    """One world with every term of the task's own."""
    task = get_task("g1_flat")
    task.only_positive_rewards = False
    task.rewards = {
        "walk_contact": Reward(gait.walk_contact, weight=1.0, **CLOCK),
        "walk_height": Reward(gait.walk_height, weight=1.0, **CLOCK, height=0.1),
        "walk_joints": Reward(gait.walk_joints, weight=1.0, **CLOCK, lift=0.4, std=0.5),
        "feet_close": Reward(gait.feet_close, weight=1.0, distance=0.3),
        "hips_turned": Reward(gait.hips_turned, weight=1.0),
        "upper_body": Reward(gait.upper_body, weight=1.0),
    }
    env = make_env(task, num_envs=1, engine="mujoco", num_threads=1)
    yield env
    env.close()


@pytest.fixture
def earn(env):
    """earn(name, ...): one term after a step that ends in the given state, turns of the gait clock after a reset."""

    def run(name, *, command=FORWARD, turns=0.0, touching=(1, 1), pose=None, qpos=None):
        state, names = env.state, env.cfg.robot.joint_names
        place = torch.tensor(env.scene.default_qpos, dtype=torch.float32)
        for joint, value in (pose or {}).items():
            place[7 + names.index(joint)] += value
        for index, value in (qpos or {}).items():
            place[index] = value

        def step(substeps):
            state.qpos.copy_(place[None])
            state.qvel.zero_()
            force = [[1.0, 0.0, 0.0, 50.0 * touch] for touch in touching]
            state.sensordata.copy_(torch.tensor(force).reshape(1, -1))

        env.engine.step = step
        env.reset()
        state.command.copy_(torch.tensor([command]))
        state.command_hold.fill_(1)
        state.step_count.fill_(round(turns * PERIOD_S / env.step_dt) - 1)
        env.pop_metrics()
        env.step(torch.zeros(1, env.num_actions))
        earned = state.reward_sums[0, list(env.cfg.rewards).index(name)].item()
        return earned / env.step_dt, state.foot_height_w[0].clone()

    return run


@pytest.mark.parametrize(
    ("turns", "touching", "value"),
    [
        (0.1, (0, 1), 1.0),  # the left foot swings in the first 0.4 of a turn
        (0.1, (1, 1), 0.0),
        (0.1, (1, 0), -1.0),
        (0.45, (1, 1), 1.0),  # both feet are down between the swings
        (0.45, (0, 0), -1.0),
        (0.6, (1, 0), 1.0),  # the right foot swings half a turn later
        (0.6, (0, 1), -1.0),
        (1.1, (0, 1), 1.0),
    ],
)
def test_feet_touch_by_the_clock(earn, turns, touching, value):
    assert earn("walk_contact", turns=turns, touching=touching)[0] == pytest.approx(value, abs=1e-5)


@pytest.mark.parametrize(("touching", "value"), [((1, 1), 1.0), ((0, 1), 0.0), ((0, 0), -1.0)])
def test_both_feet_are_to_be_down_while_standing(earn, touching, value):
    got = earn("walk_contact", command=STAND, turns=0.1, touching=touching)[0]
    assert got == pytest.approx(value, abs=1e-5)


@pytest.mark.parametrize(
    ("turns", "raised", "value"),
    [
        (0.2, 0.1, 1.0),  # in the middle of the swing, at the top of the arc
        (0.2, 0.05, 0.5),  # half as high
        (0.2, 0.0, 0.0),  # on the ground
        (0.2, 0.14, 1.0),  # higher costs nothing up to half as much again
        (0.2, 0.16, 0.6),  # 1 - 4 * 0.1
        (0.2, 0.3, 0.0),
        (0.7, 0.05, 0.5),  # the same of the right foot
        (0.1, 0.0707107, 1.0),  # after a quarter of the swing: sin(pi / 4)
        (0.0, 0.01, 0.5),  # at its start the arc is a fifth of the height
        (0.45, 0.3, 1.0),  # no foot is in swing
    ],
)
def test_the_swinging_foot_follows_its_arc(earn, turns, raised, value):
    lowered = -0.0010124  # of the soles in the default pose, to be exactly on the ground
    z = get_task("g1_flat").robot.base_height + raised + lowered
    got, height = earn("walk_height", turns=turns, qpos={2: z})
    np.testing.assert_allclose(height, raised, atol=1e-5)
    assert got == pytest.approx(value, abs=1e-3)


def test_no_foot_has_an_arc_to_follow_while_standing(earn):
    assert earn("walk_height", command=STAND, turns=0.2)[0] == pytest.approx(1.0, abs=1e-5)


LIFTED = {"left_hip_pitch_joint": -0.4, "left_knee_joint": 0.8, "left_ankle_pitch_joint": -0.4}


@pytest.mark.parametrize(
    ("command", "turns", "pose", "value"),
    [
        (FORWARD, 0.2, LIFTED, 1.0),  # in the middle of the left foot's swing, where it is highest
        (FORWARD, 0.2, {}, math.exp(-(0.4**2 + 0.8**2 + 0.4**2) / 0.25)),
        (FORWARD, 0.2, LIFTED | {"left_knee_joint": 0.5}, math.exp(-(0.3**2) / 0.25)),
        (FORWARD, 0.2, LIFTED | {"right_knee_joint": 0.5}, 1.0),  # whatever the leg in stance does
        (FORWARD, 0.7, LIFTED, math.exp(-(0.4**2 + 0.8**2 + 0.4**2) / 0.25)),  # the right foot's swing
        (FORWARD, 0.45, LIFTED, 0.0),  # no foot is in swing
        (STAND, 0.2, LIFTED, 1.0),
    ],
)
def test_the_leg_in_swing_bends(earn, command, turns, pose, value):
    assert earn("walk_joints", command=command, turns=turns, pose=pose)[0] == pytest.approx(value, abs=2e-3)


@pytest.mark.parametrize("yaw", [0.0, 1.2])
def test_feet_stay_apart_whichever_way_it_faces(earn, yaw):
    """In the default pose they are 2 * 0.1185065 m apart."""
    turned = {3: math.cos(yaw / 2), 6: math.sin(yaw / 2)}
    assert earn("feet_close", qpos=turned)[0] == pytest.approx(0.3 - 2 * 0.1185065, abs=1e-5)


def test_feet_further_apart_cost_nothing(earn):
    """With each leg 0.2 rad to its side they are 0.24 m further apart."""
    pose = {"left_hip_roll_joint": 0.2, "right_hip_roll_joint": -0.2}
    assert earn("feet_close", pose=pose)[0] == 0.0


def test_hips_count_roll_and_yaw_of_both_legs(earn):
    pose = {"left_hip_roll_joint": 0.1, "right_hip_yaw_joint": -0.2, "left_knee_joint": 0.5, "waist_yaw_joint": 0.5}
    assert earn("hips_turned", pose=pose)[0] == pytest.approx(0.1**2 + 0.2**2, rel=1e-4)


def test_the_upper_body_is_all_but_the_legs(earn):
    pose = {"waist_yaw_joint": 0.1, "right_wrist_yaw_joint": -0.3, "right_ankle_roll_joint": 0.2}
    assert earn("upper_body", pose=pose)[0] == pytest.approx(0.1**2 + 0.3**2, rel=1e-4)

"""The cart-pole's own reward: the energy of its pole."""

import math

import numpy as np
import pytest
import torch
from robot_rl_envs.make import make_env
from robot_rl_tasks.cartpole import SWING_FREQUENCY
from robot_rl_tasks.registry import get_task

from robot_rl.evaluation.meter import describe_metrics

ROD_M, GRAVITY = 0.8, 9.81


def test_the_frequency_is_that_of_the_models_rod():
    assert pytest.approx(math.sqrt(1.5 * GRAVITY / ROD_M), rel=1e-3) == SWING_FREQUENCY


@pytest.mark.parametrize(
    ("angle", "velocity", "value"),
    [
        (math.pi, 0.0, 0.0),  # hanging still
        (0.0, 0.0, 1.0),  # upright and still
        (math.pi, 2 * 4.29, 1.0),  # with what it takes to come to stand upright
        (math.pi / 2, 0.0, 0.5),
        (0.0, 2 * 4.29, 0.0),  # with twice as much
        (0.0, 30.0, 0.0),
    ],
)
def test_energy_leads_from_hanging_still_to_upright(angle, velocity, value):
    task = get_task("cartpole")
    task.rewards = {"energy": task.rewards["energy"]}
    task.rewards["energy"].weight = 1.0
    env = make_env(task, num_envs=1, engine="mujoco", num_threads=1)

    def step(substeps):
        env.state.qpos.copy_(torch.tensor([[0.0, angle]]))
        env.state.qvel.copy_(torch.tensor([[0.0, velocity]]))

    env.engine.step = step
    reward = env.step(torch.zeros(1, 1))[1]
    env.close()
    assert np.allclose(reward.item() / env.step_dt, value, atol=1e-3)


def test_an_evaluation_says_why_episodes_end_with_the_tasks_numbers():
    env = make_env(get_task("cartpole"), num_envs=1, engine="mujoco", num_threads=1)
    meaning = describe_metrics(env)["ended/off_rail"]["meaning"]
    assert meaning == "share of episodes that ended because one joint's |position| exceeds 1.75 rad or m"

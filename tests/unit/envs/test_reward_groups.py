"""Rewards that several critics value: the sum of each group and the sum of all."""

import numpy as np
import pytest
import torch
from robot_rl_envs.mdp import rewards
from robot_rl_envs.task import Reward, TorchTerm


def square(state):
    return state.joint_pos[:, 0].square()


def cost(weight=-2.0, group="effort", fused=True):
    if fused:
        return Reward(rewards.centred, weight=weight, group=group, joint=0)
    return TorchTerm(kind="reward", fn=square, weight=weight, group=group)


@pytest.mark.parametrize("fused", [True, False])
def test_each_group_has_its_sum_and_the_whole_is_floored(puppet, cart_task, fused):
    terms = {
        "alive": Reward(rewards.alive, weight=1.0, group="progress"),
        "x": cost(fused=fused),
        "bonus": Reward(rewards.alive, weight=0.5, group="progress"),
    }
    doll = puppet(cart_task(rewards=terms, only_positive_rewards=True), num_envs=2)
    assert doll.env.reward_groups == ("progress", "effort")
    x = np.array([[0.5, 0.0], [0.9, 0.0]])
    _, reward, _, extras = doll.step(qpos=x, qvel=np.zeros((2, 2)))
    parts = torch.tensor([[1.5, -2.0 * 0.25], [1.5, -2.0 * 0.81]]) * doll.env.step_dt
    torch.testing.assert_close(extras["rewards"], parts)
    torch.testing.assert_close(reward, parts.sum(dim=1).clamp(min=0.0))
    assert reward[1] == 0.0


@pytest.mark.long
@pytest.mark.parametrize("fused", [True, False])
def test_a_quarantined_world_earns_nothing_in_any_group(puppet, cart_task, fused):
    doll = puppet(cart_task(rewards={"alive": Reward(rewards.alive, weight=1.0), "x": cost(fused=fused)}), num_envs=2)
    bad = np.array([[0.5, 0.0], [np.nan, 0.0]])
    _, _, done, extras = doll.step(qpos=bad, qvel=np.zeros((2, 2)))
    assert extras["valid"].tolist() == [True, False]
    assert done.tolist() == [False, True]
    assert extras["rewards"][1].tolist() == [0.0, 0.0]
    assert extras["rewards"].isfinite().all()


def test_one_group_costs_nothing(puppet, cart_task):
    doll = puppet(cart_task(rewards={"alive": Reward(rewards.alive, weight=1.0)}))
    assert doll.env.reward_groups == ()
    assert "rewards" not in doll.step(qpos=np.zeros((2, 2)))[3]
    assert not hasattr(doll.state, "reward_parts")

"""Terms as plain torch functions over the batch give what fused terms give."""

import numpy as np
import pytest
import torch
from robot_rl_envs.mdp import observations, rewards, terminations
from robot_rl_envs.task import Observation, ObservationGroup, Reward, Termination, TorchTerm


def square(state):
    return state.joint_pos[:, 0].square()


def beyond(state):
    return state.joint_pos[:, 0].abs() > 1.0


def both(state):
    return torch.stack([state.joint_pos[:, 0], state.joint_vel[:, 1]], dim=1)


@pytest.fixture
def pair(puppet, cart_task):
    """The same task with fused terms and with torch terms."""
    fused = cart_task(
        rewards={
            "alive": Reward(rewards.alive, weight=1.0),
            "x": Reward(rewards.centred, weight=3.0, joint=0),
        },
        terminations={"off": Termination(terminations.joint_beyond, joint=0, limit=1.0)},
        observations={
            "actor": ObservationGroup(
                terms={
                    "pos": Observation(observations.one_joint_pos, joint=0),
                    "speed": Observation(observations.joint_vel),
                }
            )
        },
    )
    terms = {"both": TorchTerm(kind="observation", fn=both, size=2), "speed": Observation(observations.joint_vel)}
    plain = cart_task(
        rewards={"alive": Reward(rewards.alive, weight=1.0), "x": TorchTerm(kind="reward", fn=square, weight=3.0)},
        terminations={"off": TorchTerm(kind="termination", fn=beyond)},
        observations={"actor": ObservationGroup(terms=terms)},
    )
    return puppet(fused, num_envs=3), puppet(plain, num_envs=3)


def script(doll, step):
    """World 1 leaves the rail in step 3, world 2 in step 5; world 0 runs out of time in step 10."""
    x = np.array([0.5, 0.6, 0.7]) + 0.01 * step
    if step in (3, 5):
        x[1 if step == 3 else 2] = 1.5
    return doll.step(qpos=np.stack([x, x], axis=1), qvel=np.stack([x, -x], axis=1))


def test_rewards_ends_and_figures_are_those_of_fused_terms(pair):
    for doll in pair:
        doll.env.pop_metrics()
    for step in range(1, 13):
        (_, r1, d1, e1), (_, r2, d2, e2) = (script(doll, step) for doll in pair)
        torch.testing.assert_close(r2, r1)
        assert torch.equal(d2, d1)
        assert torch.equal(e2["time_outs"], e1["time_outs"])
        bits = [doll.state.termination_bits.tolist() for doll in pair]
        assert bits[0] == bits[1] == [0, int(step == 3), int(step == 5)]
    fused, plain = (doll.env.pop_metrics() for doll in pair)
    assert fused["episodes"] == 3
    assert plain == pytest.approx(fused, rel=1e-5)


def test_the_final_observation_is_that_of_the_state_the_episode_ended_in(pair):
    doll = pair[1]
    for step in (1, 2, 3):
        obs, _, dones, extras = script(doll, step)
    assert dones.tolist() == [False, True, False]
    np.testing.assert_allclose(extras["final_obs"]["actor"][1], [1.5, -1.5, 1.5, -1.5], rtol=1e-6)
    np.testing.assert_allclose(obs["actor"][1], [0.25, 0.0, 0.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(obs["actor"][0], [0.53, -0.53, 0.53, -0.53], rtol=1e-6)


def test_a_torch_failure_in_the_last_step_is_no_time_out(puppet, cart_task):
    doll = puppet(cart_task(terminations={"off": TorchTerm(kind="termination", fn=beyond)}))
    doll.env.episode_length_buf = torch.tensor([9, 9])
    _, _, dones, extras = doll.step(qpos=[[1.5, 0.0], [0.5, 0.0]], qvel=[0.0, 0.0])
    assert dones.tolist() == [True, True]
    assert extras["time_outs"].tolist() == [False, True]


def test_a_torch_time_out_is_a_time_out(puppet, cart_task):
    doll = puppet(cart_task(terminations={"off": TorchTerm(kind="termination", fn=beyond, time_out=True)}))
    _, _, dones, extras = doll.step(qpos=[[1.5, 0.0], [0.5, 0.0]], qvel=[0.0, 0.0])
    assert dones.tolist() == extras["time_outs"].tolist() == [True, False]


def test_the_floor_of_the_reward_is_under_torch_terms_too(puppet, cart_task):
    task = cart_task(
        rewards={
            "alive": Reward(rewards.alive, weight=1.0),
            "x": TorchTerm(kind="reward", fn=square, weight=-8.0),
        },
        only_positive_rewards=True,
    )
    _, reward, _, _ = puppet(task).step(qpos=[[0.25, 0.0], [0.5, 0.0]], qvel=[0.0, 0.0])
    assert reward.tolist() == pytest.approx([0.05, 0.0])


def test_a_quarantined_world_earns_nothing_from_torch_terms(pair):
    doll = pair[1]
    doll.env.pop_metrics()
    qpos = np.array([[0.5, 0.0], [np.nan, 0.0], [0.5, 0.0]])
    obs, reward, dones, extras = doll.step(qpos=qpos, qvel=[0.0, 0.0])
    assert reward.tolist() == pytest.approx([0.175, 0.0, 0.175])
    assert dones.tolist() == [False, True, False]
    assert extras["valid"].tolist() == [True, False, True]
    assert torch.isfinite(obs["actor"]).all()
    assert torch.isfinite(extras["final_obs"]["actor"]).all()
    metrics = doll.env.pop_metrics()
    assert metrics["quarantined"] == 1
    assert all(np.isfinite(value) for value in metrics.values()), metrics


def test_a_torch_reward_that_is_not_finite_quarantines_its_world(puppet, cart_task):
    def inverse(state):
        return 1.0 / state.joint_pos[:, 0]

    doll = puppet(cart_task(rewards={"inverse": TorchTerm(kind="reward", fn=inverse)}))
    _, reward, dones, extras = doll.step(qpos=[[0.5, 0.0], [0.0, 0.0]], qvel=[0.0, 0.0])
    assert reward.tolist() == pytest.approx([0.2, 0.0])
    assert dones.tolist() == [False, True]
    assert extras["valid"].tolist() == [True, False]
    assert doll.env.pop_metrics()["quarantined"] == 1


def test_wrong_kinds_and_sizes_are_refused():
    with pytest.raises(ValueError, match="TorchTerm.kind='event'"):
        TorchTerm(kind="event", fn=square)
    with pytest.raises(ValueError, match="TorchTerm.size=0"):
        TorchTerm(kind="observation", fn=both, size=0)

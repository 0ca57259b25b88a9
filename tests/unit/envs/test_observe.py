"""From a term's value to the observation: noise, clip, scale, history, and the observation an episode ended with."""

import numpy as np
import pytest
import torch
from robot_rl_envs.mdp import observations
from robot_rl_envs.task import Observation, ObservationGroup

NOISE, SCALE, CLIP = 0.5, 2.0, 3.0


def group(noise=True):
    terms = {
        "noisy": Observation(observations.joint_vel, noise=NOISE, scale=SCALE, clip=CLIP),
        "past": Observation(observations.joint_pos_rel, history=3),
        "last": Observation(observations.last_action),
    }
    return ObservationGroup(terms=terms, noise=noise)


PAST = slice(2, 8)


@pytest.fixture
def doll(puppet, cart_task):
    task = cart_task(observations={"actor": group(), "quiet": group(noise=False)})
    return puppet(task, num_envs=4096)


def test_noise_is_uniform_within_its_bound_and_without_mean(doll):
    noisy = []
    for _ in range(4):
        obs = doll.step(qpos=[0.1, 3.0], qvel=[0.5, -1.0])[0]
        noisy.append(obs["actor"][:, :2].numpy() / SCALE - [0.5, -1.0])
    noise = np.concatenate(noisy)
    assert np.abs(noise).max() <= NOISE + 1e-6
    assert np.abs(noise).max() > 0.99 * NOISE
    # standard error of the mean of 16384 uniform draws: 0.5 / sqrt(3) / 128 = 0.0023; of their spread, about as much
    np.testing.assert_allclose(noise.mean(axis=0), 0.0, atol=0.009)
    np.testing.assert_allclose(noise.std(axis=0), NOISE / np.sqrt(3), atol=0.009)
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.04, "two elements of one term share their noise"
    assert abs(np.corrcoef(noisy[0][:, 0], noisy[1][:, 0])[0, 1]) < 0.06, "two steps share their noise"
    assert abs(np.corrcoef(noisy[0][:-1, 0], noisy[0][1:, 0])[0, 1]) < 0.06, "neighboring worlds share their noise"


def test_no_noise_where_the_group_or_the_figure_disables_it(doll):
    obs = doll.step(qpos=[0.1, 3.0], qvel=[0.5, -1.0])[0]
    np.testing.assert_allclose(obs["quiet"][:, :2], np.tile([1.0, -2.0], (4096, 1)), rtol=1e-6)
    doll.env.set_param("observations.actor.noisy.noise", 0.0)
    obs = doll.step(qpos=[0.1, 3.0], qvel=[0.5, -1.0])[0]
    torch.testing.assert_close(obs["actor"], obs["quiet"])


def test_the_value_is_clipped_with_its_noise_and_scaled_after(doll):
    obs = doll.step(qpos=[0.1, 3.0], qvel=[9.0, -9.0])[0]
    for name in ("actor", "quiet"):
        np.testing.assert_allclose(obs[name][:, :2], np.tile([SCALE * CLIP, -SCALE * CLIP], (4096, 1)))
    obs = doll.step(qpos=[0.1, 3.0], qvel=[CLIP, 0.0])[0]
    assert obs["actor"][:, 0].max() == SCALE * CLIP


def test_history_is_oldest_first_filled_at_the_reset_and_moves_by_one_a_step(doll):
    first = doll.env.get_observations()["quiet"][:, PAST]
    np.testing.assert_allclose(first, np.tile([0.25, 0.0], (4096, 3)), atol=1e-6)
    position = lambda k: [0.1 * k, np.pi + k]  # noqa: E731
    for k in range(1, 4):
        obs = doll.step(qpos=position(k), qvel=[0.0, 0.0])[0]
        want = [[0.1 * j, j] if j > 0 else [0.25, 0.0] for j in range(k - 2, k + 1)]
        np.testing.assert_allclose(obs["quiet"][0, PAST], np.ravel(want), atol=1e-6)


def test_the_final_observation_is_that_of_the_state_the_episode_ended_in(doll):
    """World 0 leaves the rail: its final history ends beyond it, the next one is filled with the reset's value."""
    for k in (1, 2):
        doll.step(qpos=[0.1 * k, np.pi], qvel=[0.0, 0.0])
    qpos = np.tile([0.3, np.pi], (4096, 1))
    qpos[0, 0] = 1.5
    actions = torch.full((4096, 1), 0.7)
    obs, _, dones, extras = doll.step(actions, qpos=qpos, qvel=[0.5, 0.0])
    assert dones.nonzero().flatten().tolist() == [0]
    final = extras["final_obs"]["quiet"][0]
    np.testing.assert_allclose(final, [1.0, 0.0, 0.1, 0.0, 0.2, 0.0, 1.5, 0.0, 0.7], atol=1e-6)
    np.testing.assert_allclose(obs["quiet"][0], [0.0, 0.0, *[0.25, 0.0] * 3, 0.0], atol=1e-6)
    np.testing.assert_allclose(obs["quiet"][1], [1.0, 0.0, 0.1, 0.0, 0.2, 0.0, 0.3, 0.0, 0.7], atol=1e-6)


def test_observations_stay_readable_for_one_more_step(doll):
    """A learner may still read the last step's tensors while the next ones arrive."""
    one = doll.step(qpos=[0.1, 3.0], qvel=[1.0, 0.0])
    kept = one[0]["quiet"].clone(), one[1].clone(), one[2].clone()
    two = doll.step(qpos=[0.2, 3.1], qvel=[2.0, 0.0])
    torch.testing.assert_close(one[0]["quiet"], kept[0])
    torch.testing.assert_close(one[1], kept[1])
    assert torch.equal(one[2], kept[2])
    assert not torch.equal(two[0]["quiet"], kept[0])
    torch.testing.assert_close(doll.env.get_observations()["quiet"], two[0]["quiet"])


def test_get_observations_draws_nothing(doll):
    torch.testing.assert_close(doll.env.get_observations()["actor"], doll.env.get_observations()["actor"])


def test_robot_state_is_free_of_noise(doll):
    doll.step(qpos=[0.1, 3.0], qvel=[0.5, -1.0])
    raw = doll.env.robot_state()
    np.testing.assert_allclose(raw["joint_vel"], np.tile([0.5, -1.0], (4096, 1)))
    np.testing.assert_allclose(raw["joint_pos"], np.tile([0.1, 3.0], (4096, 1)), rtol=1e-6)

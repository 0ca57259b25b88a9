"""A critic that works in deviations of the returns: how large rewards are makes no difference."""

import pytest
import torch

from robot_rl.learn.algorithms.ppo.config import PPOCfg
from robot_rl.learn.algorithms.ppo.ppo import PPO
from robot_rl.learn.dims import EnvSpec
from robot_rl.learn.networks.actor_critic import Actor, Critic
from robot_rl.learn.networks.normalizer import EPSILON
from robot_rl.learn.rollout import make_rollout
from robot_rl.settings import NetworkCfg

STEPS, WORLDS = 16, 32


def make(normalize_values=True, num_values=1, **ppo):
    generator = torch.Generator().manual_seed(0)
    cfg = NetworkCfg(hidden=(16,))
    actor = Actor(3, 2, cfg, generator=generator)
    critic = Critic(4, cfg, num_values=num_values, normalize_values=normalize_values, generator=generator)
    settings = {"schedule": "fixed", "minibatches": 2, "epochs": 2} | ppo
    return PPO(actor, critic, PPOCfg(**settings), generator=torch.Generator().manual_seed(1))


def make_rollout_of(actor, scale=1.0, num_values=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    rollout = make_rollout(STEPS, WORLDS, EnvSpec(actor=3, critic=4, action=2, num_values=num_values), "cpu")
    for tensor in (rollout.actor_obs, rollout.critic_obs, rollout.final_obs, rollout.noise, rollout.reward):
        tensor.normal_(generator=generator)
    rollout.reward.add_(0.5).mul_(scale)
    rollout.done.copy_(torch.rand(rollout.done.shape, generator=generator) < 0.1)
    with torch.no_grad():
        for t in range(STEPS):
            action, out = actor.act(rollout.actor_obs[t], rollout.noise[t])
            rollout.action[t].copy_(action)
            rollout.out[t].copy_(out)
    rollout.record_policy(actor.distribution, actor.distribution.snapshot())
    return rollout


def learned(scale, **settings):
    """Actor weights after two updates; statistics of the returns are there from the first on."""
    algorithm = make(**settings)
    first = make_rollout_of(algorithm.actor, scale)
    algorithm.update_normalizers(first, first.reward.flatten())
    for seed in (1, 2):
        algorithm.update(make_rollout_of(algorithm.actor, scale, seed=seed))
    return torch.cat([weight.detach().flatten() for weight in algorithm.actor.parameters()])


def test_the_policy_learns_the_same_from_rewards_a_hundred_times_as_large():
    small, large = learned(10.0), learned(1000.0)
    assert float((small - large).abs().max()) < 1e-3


def explained(**settings):
    """Share of the rewards' variance that a critic explains after thirty updates that are 1000 of an observation."""
    algorithm = make(**settings)
    rollout = make_rollout_of(algorithm.actor)
    rollout.reward.copy_(1000.0 * rollout.critic_obs[:-1, :, 0])
    rollout.done.fill_(True)
    for _ in range(30):
        algorithm.update(rollout)
    with torch.no_grad():
        value = algorithm.critic.value(rollout.critic_obs[:-1].flatten(0, 1))
    return float(1.0 - (rollout.reward.flatten() - value).var() / rollout.reward.var())


def test_a_critic_keeps_up_with_large_rewards():
    assert explained() > 0.6
    assert explained(normalize_values=False) < 0.1


@pytest.mark.parametrize("clip", [True, False])
def test_the_value_loss_is_in_deviations_of_the_returns(clip):
    algorithm = make(clip_value_loss=clip)
    rollout = make_rollout_of(algorithm.actor, 1000.0)
    algorithm.update_normalizers(rollout, rollout.reward.flatten())
    batch = algorithm.make_batch(rollout)
    deviation = rollout.reward.std(correction=0) + EPSILON
    expected = ((batch.returns - batch.value) / deviation).square().mean()
    torch.testing.assert_close(algorithm.value_loss(batch), expected)
    assert float(deviation) > 500.0


def test_values_are_returned_in_units_of_the_reward():
    algorithm = make()
    critic = algorithm.critic
    critic.value_normalizer.update(torch.randn(1000, 1) * 300.0 + 2000.0)
    obs = torch.randn(8, 4)
    with torch.no_grad():
        raw = critic.outputs(critic.encode(obs))[:, 0]
        expected = raw * (critic.value_normalizer.var.sqrt() + EPSILON) + critic.value_normalizer.mean
        torch.testing.assert_close(critic.value(obs), expected)
        torch.testing.assert_close(critic.values(critic.encode(obs)), expected)
    assert 1900.0 < float(critic.value(obs).detach().mean()) < 2100.0


def test_quarantined_samples_and_mirror_images_do_not_count_in_the_returns():
    algorithm = make()
    rollout = make_rollout_of(algorithm.actor)
    returns = torch.arange(STEPS * WORLDS, dtype=torch.float32)
    rollout.has_invalid = True
    rollout.valid.flatten()[256:] = False
    algorithm.update_normalizers(rollout, torch.cat((returns, torch.full_like(returns, 1e9))))
    normalizer = algorithm.critic.value_normalizer
    assert int(normalizer.count) == 256
    assert float(normalizer.mean) == pytest.approx(127.5)


def test_each_of_several_critics_has_statistics_of_its_own():
    algorithm = make(num_values=2)
    rollout = make_rollout_of(algorithm.actor, num_values=2)
    rollout.reward[..., 1].mul_(1e4)
    algorithm.update(rollout)
    var = algorithm.critic.value_normalizer.var
    assert float(var[1] / var[0]) > 1e6


def test_the_statistics_are_part_of_the_critics_state():
    algorithm, other = make(), make()
    algorithm.update(make_rollout_of(algorithm.actor, 50.0))
    other.critic.load_state_dict(algorithm.critic.state_dict())
    obs = torch.randn(8, 4)
    assert torch.equal(other.critic.value(obs), algorithm.critic.value(obs))

"""Several critics: one value for each group of rewards, and no group drowned by another's scale."""

from dataclasses import replace

import pytest
import torch

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.ppo.config import PPOCfg
from robot_rl.learn.algorithms.ppo.ppo import PPO
from robot_rl.learn.dims import EnvSpec, make_env_spec
from robot_rl.learn.networks.actor_critic import Actor, Critic
from robot_rl.learn.rollout import make_rollout
from robot_rl.learn.trainer import Trainer
from robot_rl.settings import NetworkCfg


def with_groups(env, loudness):
    """The point task with its reward in two groups: the distance, and noise of a given size."""
    env.reward_groups = ("distance", "noise")
    plain = env.step

    def step(actions):
        obs, reward, done, extras = plain(actions)
        noise = loudness * torch.randn(env.num_envs, generator=env.generator)
        extras["rewards"] = torch.stack((reward, noise), dim=1)
        return obs, reward + noise, done, extras

    env.step = step
    return env


def filled(dims):
    generator = torch.Generator().manual_seed(0)
    rollout = make_rollout(6, 4, dims, "cpu")
    for tensor in (rollout.actor_obs, rollout.critic_obs, rollout.final_obs, rollout.reward):
        tensor.normal_(generator=generator)
    rollout.done.copy_(torch.rand(6, 4, generator=generator) < 0.3)
    rollout.time_out.copy_(rollout.done & (torch.rand(6, 4, generator=generator) < 0.5))
    rollout.has_final_obs = True
    return rollout


def test_each_critic_gets_the_advantages_that_it_would_get_alone():
    generator = torch.Generator().manual_seed(1)
    cfg = NetworkCfg(hidden=(8,))
    actor, pair = Actor(3, 2, cfg, generator=generator), Critic(3, cfg, num_values=2, generator=generator)
    algorithm = PPO(actor, pair, PPOCfg())
    rollout = filled(EnvSpec(actor=3, critic=3, action=2, num_values=2))
    with torch.no_grad():
        values = pair.value(rollout.critic_obs.flatten(0, 1)).view(7, 4, 2)
        both = algorithm.targets.advantages(rollout, values)[0]
        for k in range(2):
            single = Critic(3, cfg)
            single.value = lambda obs, state=None, k=k: pair.value(obs)[:, k]
            alone = PPO(actor, single, PPOCfg())
            own = replace(rollout, reward=rollout.reward[..., k])
            torch.testing.assert_close(both[..., k], alone.targets.advantages(own, values[..., k])[0])


@pytest.mark.long
def test_a_loud_group_does_not_drown_a_quiet_one(make_point_env, small_cfg):
    """With one critic the noise decides; with two the distance falls."""

    def distance(several):
        env = with_groups(make_point_env(seed=3), loudness=100.0)
        cfg = replace(small_cfg, several_critics=several, max_iterations=25)
        runner = Trainer(env, cfg, seed=1)
        assert runner.critic.num_values == (2 if several else 1)
        runner.train()
        obs = env.get_observations()["actor"]
        with torch.no_grad():
            for _ in range(8):
                obs = obs + 0.5 * runner.actor.mean(obs).clamp(-1.0, 1.0)
        return float(obs.abs().mean())

    assert distance(several=True) < 0.3 < distance(several=False)


def test_reward_weights_scale_the_groups_advantages():
    algorithm = PPO(Actor(2, 1, NetworkCfg(hidden=(4,))), Critic(2, NetworkCfg(hidden=(4,)), num_values=2), PPOCfg())
    algorithm.targets.reward_weights = torch.tensor([1.0, 0.0])
    advantage = torch.stack((torch.arange(5.0), torch.tensor([9.0, -3.0, 4.0, 0.0, 1.0])), dim=1)
    mixed = algorithm.targets.combine(advantage, None)
    torch.testing.assert_close(mixed, (torch.arange(5.0) - 2.0) / torch.arange(5.0).std())


def test_a_quarantined_sample_counts_for_no_critic():
    generator = torch.Generator().manual_seed(1)
    cfg = NetworkCfg(hidden=(8,))
    actor, critic = Actor(3, 2, cfg, generator=generator), Critic(3, cfg, num_values=2, generator=generator)
    algorithm = PPO(actor, critic, PPOCfg())
    batches = []
    for garbage in (0.0, 1e6):
        rollout = filled(EnvSpec(actor=3, critic=3, action=2, num_values=2))
        rollout.has_invalid = True
        rollout.valid[2, 1] = False
        rollout.reward[2, 1] = garbage
        batches.append(algorithm.make_batch(rollout))
    assert torch.equal(batches[0].advantage, batches[1].advantage)
    assert batches[0].weight[2 * 4 + 1] == 0.0


@pytest.mark.parametrize(
    ("groups", "weights", "message"),
    [
        ((), (), "several_critics: the environment has 0 groups of rewards, must be 2 or more"),
        (("a", "b"), (1.0, 2.0, 3.0), "reward_weights: 3 of them, must be 2"),
    ],
)
def test_bad_input_is_named(make_point_env, small_cfg, groups, weights, message):
    env = make_point_env()
    env.reward_groups = groups
    with pytest.raises(UserError, match=message):
        make_env_spec(env, replace(small_cfg, several_critics=True, reward_weights=weights))


def test_a_critic_learns_the_same_whatever_the_others_see():
    learned = []
    for loudness in (1.0, 1000.0):
        generator = torch.Generator().manual_seed(1)
        cfg = NetworkCfg(hidden=(8,))
        actor, critic = Actor(3, 2, cfg, generator=generator), Critic(3, cfg, num_values=2, generator=generator)
        algorithm = PPO(actor, critic, PPOCfg(minibatches=2), generator=torch.Generator().manual_seed(2))
        rollout = filled(EnvSpec(actor=3, critic=3, action=2, num_values=2))
        rollout.reward[..., 1] *= loudness
        algorithm.update(rollout)
        learned.append([p.detach().clone() for p in critic.body.bodies[0].parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*learned, strict=True))

"""Left-right symmetry: of the networks to the bit, of the added samples in their own probabilities."""

import pytest
import torch

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.ppo.augment import AugmentSymmetry
from robot_rl.learn.algorithms.ppo.config import PPOCfg
from robot_rl.learn.algorithms.ppo.ppo import PPO
from robot_rl.learn.dims import EnvSpec
from robot_rl.learn.networks.actor_critic import Actor, Critic
from robot_rl.learn.networks.symmetry import MirrorBasis, SymmetricMlp, check_mirror, reflect
from robot_rl.learn.rollout import make_rollout
from robot_rl.settings import NetworkCfg

ACTOR = (torch.tensor([1, 0, 2, 3, 5, 4]), torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0, -1.0]))
CRITIC = (torch.tensor([0, 2, 1]), torch.tensor([-1.0, 1.0, 1.0]))
ACTION = (torch.tensor([1, 0, 2]), torch.tensor([-1.0, -1.0, -1.0]))
CFG = NetworkCfg(hidden=(32, 16), output_gain=1.0)


def make_rollout_of(actor, steps=4, worlds=8):
    generator = torch.Generator().manual_seed(1)
    rollout = make_rollout(steps, worlds, EnvSpec(actor=6, critic=3, action=3), "cpu")
    for tensor in (rollout.actor_obs, rollout.critic_obs, rollout.noise, rollout.reward):
        tensor.normal_(generator=generator)
    with torch.no_grad():
        action, mean = actor.act(rollout.actor_obs.flatten(0, 1), rollout.noise.flatten(0, 1))
    rollout.action.copy_(action.view_as(rollout.action))
    rollout.out.copy_(mean.view_as(rollout.out))
    rollout.record_policy(actor.distribution, actor.distribution.snapshot())
    return rollout


def test_the_basis_goes_there_and_back():
    basis = MirrorBasis(ACTOR)
    x = torch.randn(5, 6)
    torch.testing.assert_close((x @ basis.split.T) @ basis.join.T, x)
    image = reflect(x, ACTOR) @ basis.split.T
    signs = torch.ones(6)
    signs[basis.num_even :] = -1.0
    assert torch.equal(image, (x @ basis.split.T) * signs)
    assert (basis.num_even, basis.num_odd) == (3, 3)


@pytest.mark.parametrize("activation", ["elu", "relu", "tanh", "silu"])
def test_policy_and_value_are_symmetric_to_the_bit(activation):
    cfg = NetworkCfg(hidden=(32, 16), activation=activation, output_gain=1.0)
    actor, critic = Actor(6, 3, cfg, mirror=(ACTOR, ACTION)), Critic(3, cfg, mirror=CRITIC)
    for _ in range(2):  # Statistics of observations that are not symmetric.
        actor.normalizer.update(torch.randn(60, 6) + 1.0)
        critic.normalizer.update(torch.randn(60, 3) + 1.0)
    obs, state = torch.randn(40, 6), torch.randn(40, 3)
    with torch.no_grad():
        actor.distribution.log_std.normal_()
        mean = actor.mean(obs)
        assert torch.equal(actor.mean(reflect(obs, ACTOR)), reflect(mean, ACTION))
        assert torch.equal(critic.value(reflect(state, CRITIC)), critic.value(state))
        assert torch.equal(actor.distribution.current()[ACTION[0]], actor.distribution.current())
    assert float(mean.std()) > 0.05


def test_symmetric_network_is_as_wide_open_as_a_plain_one():
    """Its outputs have the spread of a plain network's, so that learning rates carry over."""
    mirror = (torch.arange(40).view(-1, 2).flip(1).reshape(-1), torch.ones(40))
    generator = torch.Generator().manual_seed(0)
    network = SymmetricMlp(mirror, mirror, NetworkCfg(hidden=(64, 64), activation="relu", output_gain=1.0), generator)
    x = torch.randn(2000, 40, generator=generator)
    with torch.no_grad():
        assert 0.75 < float(network(network.encode(x)).std()) < 1.25


def test_every_parameter_of_a_symmetric_network_learns():
    network = SymmetricMlp(ACTOR, ACTION, CFG)
    network(network.encode(torch.randn(50, 6))).square().sum().backward()
    assert all(float(p.grad.abs().max()) > 0.0 for p in network.parameters())


def test_odd_widths_are_refused():
    with pytest.raises(UserError, match="hidden: 15 is odd"):
        SymmetricMlp(ACTOR, ACTION, NetworkCfg(hidden=(16, 15)))


@pytest.mark.parametrize(
    ("perm", "sign", "message"),
    [
        ([1, 2, 0], [1.0, 1.0, 1.0], "entry 0 does not return"),
        ([1, 0, 2], [1.0, -1.0, 1.0], "entry 0 does not return"),
        ([0, 1, 2], [1.0, 0.5, 1.0], "entry 1 does not return"),
        ([0, 1, 7], [1.0, 1.0, 1.0], "permutation holds 7"),
        ([0, 1], [1.0, 1.0], r"permutation \(2,\) and sign \(2,\), must be \(3,\)"),
    ],
)
def test_a_mirror_that_does_not_undo_itself_is_refused(perm, sign, message):
    with pytest.raises(UserError, match=message):
        check_mirror("actor", (torch.tensor(perm), torch.tensor(sign)), 3)


def test_mirrored_samples_have_their_own_probabilities_and_values():
    actor, critic = Actor(6, 3, CFG), Critic(3, CFG)
    rollout = make_rollout_of(actor)
    ppo = PPO(actor, critic, PPOCfg(), symmetry=AugmentSymmetry(ACTOR, CRITIC, ACTION))
    batch = ppo.make_batch(rollout)
    assert batch.value.shape == (64,)
    with torch.no_grad():
        mean = actor.mean(reflect(rollout.actor_obs.flatten(0, 1), ACTOR))
        action = reflect(rollout.action.flatten(0, 1), ACTION)
        own = actor.distribution.log_prob(action, (mean, actor.distribution.current()))
        torch.testing.assert_close(batch.log_prob[32:], own)
        torch.testing.assert_close(
            batch.value[32:], critic.value(reflect(rollout.critic_obs[:-1], CRITIC).flatten(0, 1))
        )
        # The ratio of every sample is 1 before the first step; with the original's probability it would not be.
        params = actor.body(batch.actor_in), actor.distribution.current()
        ratio = (actor.distribution.log_prob(batch.action, params) - batch.log_prob).exp()
    torch.testing.assert_close(ratio, torch.ones(64), atol=1e-5, rtol=0.0)
    assert float((own - batch.log_prob[:32]).abs().max()) > 0.1
    assert torch.equal(batch.advantage[32:], batch.advantage[:32])
    assert torch.equal(batch.returns[32:], batch.returns[:32])


def test_images_that_the_policy_would_not_draw_weigh_little():
    actor, critic = Actor(6, 3, CFG), Critic(3, CFG)
    rollout = make_rollout_of(actor)
    batch = PPO(actor, critic, PPOCfg(), symmetry=AugmentSymmetry(ACTOR, CRITIC, ACTION)).make_batch(rollout)
    expected = torch.cat((torch.ones(32), (batch.log_prob[32:] - batch.log_prob[:32]).exp().clamp(max=1.0)))
    torch.testing.assert_close(batch.weight, expected / expected.mean())

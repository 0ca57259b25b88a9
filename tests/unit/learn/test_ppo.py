"""The algorithm by hand-computed values."""

import math

import pytest
import torch

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.ppo.config import PPOCfg
from robot_rl.learn.algorithms.ppo.ppo import PPO, probability_ratio
from robot_rl.learn.dims import EnvSpec
from robot_rl.learn.networks.actor_critic import Actor, Critic
from robot_rl.learn.networks.distributions import Gaussian
from robot_rl.learn.optim import FlatAdam
from robot_rl.learn.rollout import Batch, make_rollout
from robot_rl.settings import NetworkCfg


def identity(network):
    """Make a network of hidden=(2,), relu, pass its only input through: relu(x) - relu(-x) = x."""
    with torch.no_grad():
        network.body.layers[0].weight.copy_(torch.tensor([[1.0], [-1.0]]))
        network.body.layers[1].weight.copy_(torch.tensor([[1.0, -1.0]]))
    return network


def make_identities(**ppo):
    cfg = NetworkCfg(hidden=(2,), activation="relu", init_std=1.0)
    actor, critic = identity(Actor(1, 1, cfg, normalize=False)), identity(Critic(1, cfg, normalize=False))
    settings = {"schedule": "fixed", "entropy_coef": 0.01, "value_coef": 0.5, "clip": 0.2} | ppo
    return PPO(actor, critic, PPOCfg(**settings), generator=torch.Generator().manual_seed(0))


def make_random(steps=8, worlds=16, **ppo):
    """PPO over networks with normalizers that have seen something, and a rollout of its policy."""
    generator = torch.Generator().manual_seed(0)
    cfg = NetworkCfg(hidden=(32, 32), output_gain=1.0)
    actor, critic = Actor(5, 2, cfg, generator=generator), Critic(7, cfg, generator=generator)
    algorithm = PPO(actor, critic, PPOCfg(**ppo), generator=generator)
    rollout = make_rollout(steps, worlds, EnvSpec(actor=5, critic=7, action=2), "cpu")
    rollout_of(actor, rollout, generator)
    algorithm.update_normalizers(rollout, rollout.reward.flatten())
    return algorithm, rollout_of(actor, rollout, generator)


def rollout_of(actor, rollout, generator):
    for tensor in (rollout.actor_obs, rollout.critic_obs, rollout.final_obs, rollout.noise, rollout.reward):
        tensor.normal_(generator=generator)
    rollout.actor_obs.mul_(3.0).add_(2.0)
    rollout.done.copy_(torch.rand(rollout.done.shape, generator=generator) < 0.1)
    rollout.time_out.copy_(rollout.done & (torch.rand(rollout.done.shape, generator=generator) < 0.5))
    rollout.has_final_obs = True
    with torch.no_grad():
        for t in range(rollout.reward.shape[0]):  # Step by step, as a rollout is collected.
            action, mean = actor.act(rollout.actor_obs[t], rollout.noise[t])
            rollout.action[t].copy_(action)
            rollout.out[t].copy_(mean)
    rollout.record_policy(actor.distribution, actor.distribution.snapshot())
    return rollout


def batch_of(mean, action, old_mean, advantage, value, old_value, returns):
    column = [torch.tensor(part)[:, None] for part in (mean, value, action, old_mean)]
    old_log_prob = Gaussian(1, NetworkCfg()).log_prob(column[2], (column[3], torch.zeros(1)))
    rest = (torch.tensor(old_value), torch.tensor(advantage), torch.tensor(returns))
    return Batch(column[0], column[1], column[2], column[3], old_log_prob, *rest)


def test_loss_by_hand():
    algorithm = make_identities()
    # Ratios exp(-(a - m)^2 / 2 + (a - m_old)^2 / 2): sample 0: exp(0.125), sample 1: exp(0.5) is clipped at 1.2,
    # sample 2: exp(0.5) with a negative advantage is not, sample 3: exp(-0.5) with a negative one is clipped at 0.8.
    batch = batch_of(
        mean=[0.5, 1.0, 1.0, 0.0],
        action=[0.5, 1.0, 1.0, 1.0],
        old_mean=[0.0, 0.0, 0.0, 1.0],
        advantage=[1.0, 2.0, -1.0, -3.0],
        value=[1.0, 2.0, 0.0, 0.5],
        old_value=[1.1, 1.0, 0.0, 0.5],
        returns=[1.5, 1.0, 1.0, 0.0],
    )
    loss, statistics = algorithm.loss(batch, torch.zeros(1))
    surrogate = -(math.exp(0.125) + 2.0 * 1.2 - math.exp(0.5) - 3.0 * 0.8) / 4.0
    # Clipped values: 1.0, 1.2, 0.0, 0.5; the greater error counts: 0.25, max(1, 0.04), 1, 0.25.
    value = (0.25 + 1.0 + 1.0 + 0.25) / 4.0
    entropy = 0.5 * math.log(2.0 * math.pi * math.e)
    divergence = (0.125 + 0.5 + 0.5 + 0.5) / 4.0
    assert statistics.tolist() == pytest.approx([value, surrogate, entropy, divergence, 0.75], rel=1e-5)
    assert loss.item() == pytest.approx(surrogate + 0.5 * value - 0.01 * entropy, rel=1e-5)


def test_plain_value_loss_by_hand():
    algorithm = make_identities(clip_value_loss=False)
    batch = batch_of([0.0], [0.0], [0.0], advantage=[0.0], value=[2.0], old_value=[5.0], returns=[0.5])
    assert float(algorithm.loss(batch, torch.zeros(1))[1][0]) == pytest.approx(2.25)
    algorithm = make_identities(clip_value_loss=True)  # The old value is far off: (5 - 0.2 - 0.5)^2 counts.
    assert float(algorithm.loss(batch, torch.zeros(1))[1][0]) == pytest.approx(4.3**2)


def test_samples_without_weight_change_nothing():
    algorithm = make_identities()
    arguments = {"advantage": [1.0, 5.0], "value": [1.0, 9.0], "old_value": [1.0, 0.0], "returns": [0.5, 0.0]}
    both = batch_of([0.5, 0.1], [0.5, 3.0], [0.0, 0.0], **arguments)
    both.weight = torch.tensor([2.0, 0.0])
    alone = batch_of([0.5], [0.5], [0.0], **{name: values[:1] for name, values in arguments.items()})
    expected, _ = algorithm.loss(alone, torch.zeros(1))
    assert algorithm.loss(both, torch.zeros(1))[0].item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize(
    ("shift", "rate", "expected"),
    [
        (0.4, 1e-3, 1e-3 / 1.5),  # Divergence 0.08 is more than twice 0.01.
        (0.09, 1e-3, 1.5e-3),  # 0.004 is less than half.
        (0.14, 1e-3, 1e-3),  # 0.0098 is about right.
        (0.0, 1e-3, 1e-3),  # The policy is still the one that acted: nothing is known.
        (0.4, 1.2e-5, 1e-5),
        (0.05, 9e-3, 1e-2),
    ],
)
def test_adaptive_step_size(shift, rate, expected):
    algorithm = make_identities(schedule="adaptive", learning_rate=rate)
    batch = batch_of([shift], [0.0], [0.0], advantage=[0.0], value=[0.0], old_value=[0.0], returns=[0.0])
    algorithm.loss(batch, torch.zeros(1))
    algorithm.improve()
    assert float(algorithm.optimizer.learning_rate) == pytest.approx(expected, rel=1e-5)


def test_linear_schedule_falls_to_zero():
    algorithm, rollout = make_random(schedule="linear", learning_rate=1e-3)
    algorithm.update(rollout, progress=0.75)
    assert float(algorithm.optimizer.learning_rate) == pytest.approx(2.5e-4)


@pytest.mark.parametrize(("bootstrap", "expected"), [("final", 1.0 + 0.9 * 7.0), ("state", 1.0 + 0.9 * 2.0)])
def test_a_timeout_bootstraps_from_the_final_observation(bootstrap, expected):
    """World 0 is cut short in a state of value 7 after one of value 2; world 1 ends there for good."""
    algorithm = make_identities(gamma=0.9, lam=0.8, bootstrap=bootstrap)
    rollout = make_rollout(1, 2, EnvSpec(actor=1, critic=1, action=1), "cpu")
    rollout.critic_obs.copy_(torch.tensor([[[2.0], [2.0]], [[50.0], [50.0]]]))
    rollout.final_obs.copy_(torch.tensor([[[7.0], [7.0]]]))
    rollout.reward.fill_(1.0)
    rollout.done.fill_(True)
    rollout.time_out.copy_(torch.tensor([[True, False]]))
    rollout.has_final_obs = True
    assert algorithm.make_batch(rollout).returns.tolist() == pytest.approx([expected, 1.0])


def test_a_task_of_known_value():
    """Reward 1 for ever, cut short every five steps: the value is 1 / (1 - gamma) only if a time-out is no end."""
    algorithm = make_identities(gamma=0.9, lam=1.0)
    rollout = make_rollout(20, 1, EnvSpec(actor=1, critic=1, action=1), "cpu")
    rollout.reward.fill_(1.0)
    rollout.done[4::5] = rollout.time_out[4::5] = True
    rollout.critic_obs.fill_(10.0)
    rollout.final_obs.fill_(10.0)
    rollout.has_final_obs = True
    torch.testing.assert_close(algorithm.make_batch(rollout).returns, torch.full((20,), 10.0))
    rollout.time_out.zero_()  # As ends: sum of 0.9^k over the steps left.
    expected = torch.tensor([sum(0.9**k for k in range(5 - t % 5)) for t in range(15)])
    torch.testing.assert_close(algorithm.make_batch(rollout).returns[:15], expected)


def test_first_minibatch_has_ratio_one():
    algorithm, rollout = make_random()
    ratios = []
    plain = algorithm.loss

    def watched(batch, old_log_std):
        with torch.no_grad():
            distribution = algorithm.actor.distribution
            params = algorithm.actor.body(batch.actor_in), distribution.current()
            ratios.append((distribution.log_prob(batch.action, params) - batch.log_prob).exp())
        return plain(batch, old_log_std)

    algorithm.loss = watched
    algorithm.update(rollout)
    torch.testing.assert_close(ratios[0], torch.ones_like(ratios[0]), rtol=0.0, atol=5e-6)
    assert float((ratios[1] - 1.0).abs().max()) > 1e-3


def test_a_normalizer_that_moves_before_the_update_would_show():
    algorithm, rollout = make_random()
    algorithm.update_normalizers(rollout, rollout.reward.flatten())
    batch = algorithm.make_batch(rollout)
    with torch.no_grad():
        distribution = algorithm.actor.distribution
        log_prob = distribution.log_prob(batch.action, (algorithm.actor.body(batch.actor_in), distribution.current()))
    assert float((log_prob - batch.log_prob).exp().sub(1.0).abs().max()) > 1e-3


def test_minibatches_are_drawn_again_in_each_epoch(monkeypatch):
    algorithm, rollout = make_random(epochs=3, minibatches=4)
    drawn = []
    rows = Batch.rows
    monkeypatch.setattr(Batch, "rows", lambda batch, index: (drawn.append(index.clone()), rows(batch, index))[1])
    algorithm.update(rollout)
    epochs = [torch.cat(drawn[4 * epoch : 4 * epoch + 4]) for epoch in range(3)]
    assert all(torch.equal(epoch.sort().values, torch.arange(128)) for epoch in epochs)
    assert not torch.equal(epochs[0], epochs[1])
    assert not torch.equal(epochs[1], epochs[2])


def test_normalizers_see_the_rollout_after_the_update():
    algorithm, rollout = make_random()
    before = int(algorithm.actor.normalizer.count)
    algorithm.update(rollout)
    assert int(algorithm.actor.normalizer.count) == before + 128
    assert int(algorithm.critic.normalizer.count) == before + 128


def test_advantages_are_normalized_over_the_rollout():
    algorithm, rollout = make_random()
    advantage = algorithm.make_batch(rollout).advantage
    assert float(advantage.mean()) == pytest.approx(0.0, abs=1e-6)
    assert float(advantage.std()) == pytest.approx(1.0, abs=1e-5)


def test_quarantined_samples_are_out_of_every_statistic():
    """Whatever a quarantined world left behind, NaN included, the update is the same."""
    updated = []
    for rubbish in (1e6, math.nan):
        algorithm, rollout = make_random()
        rollout.valid[2:5, 3] = False
        rollout.has_invalid = True
        for tensor in (rollout.actor_obs, rollout.critic_obs, rollout.reward, rollout.action):
            tensor[2:5, 3] = rubbish
        rollout.zero_invalid()
        batch = algorithm.make_batch(rollout)
        good = rollout.valid.reshape(-1)
        assert float(batch.advantage[good].mean()) == pytest.approx(0.0, abs=1e-6)
        assert float(batch.advantage[good].std()) == pytest.approx(1.0, abs=1e-5)
        assert batch.advantage[~good].tolist() == [0.0] * 3
        assert batch.weight[~good].tolist() == [0.0] * 3
        algorithm.update(rollout)
        updated.append([p.detach().clone() for p in (*algorithm.actor.parameters(), algorithm.actor.normalizer.mean)])
    assert all(torch.equal(a, b) and bool(a.isfinite().all()) for a, b in zip(*updated, strict=True))


def test_the_sample_before_a_quarantined_one_goes_on_with_its_own_value():
    algorithm = make_identities(gamma=0.9, lam=0.8)
    rollout = make_rollout(3, 1, EnvSpec(actor=1, critic=1, action=1), "cpu")
    rollout.critic_obs.copy_(torch.tensor([2.0, 0.0, 5.0, 5.0])[:, None, None])  # What is blanked stands for nothing.
    rollout.reward.fill_(1.0)
    rollout.valid[1] = False
    rollout.has_invalid = True
    assert algorithm.make_batch(rollout).returns[0].item() == pytest.approx(1.0 + 0.9 * 2.0)


def test_more_minibatches_than_samples():
    algorithm, rollout = make_random(steps=1, worlds=2, minibatches=3)
    with pytest.raises(UserError, match=r"ppo\.minibatches: 3 is more than the 2 samples"):
        algorithm.update(rollout)


def test_update_raises_the_surrogate_and_lowers_the_value_loss():
    algorithm, rollout = make_random(schedule="fixed", learning_rate=3e-3, epochs=20, clip_value_loss=False)
    old = algorithm.actor.distribution.current().detach().clone()
    batch = algorithm.make_batch(rollout)
    before = algorithm.loss(batch, old)[1].tolist()
    algorithm.fit(batch, old)
    after = algorithm.loss(batch, old)[1].tolist()
    assert after[0] < 0.9 * before[0]
    assert after[1] < before[1] - 0.05


def test_flat_adam_is_adam_with_each_network_clipped():
    torch.manual_seed(0)
    flat = [torch.nn.Linear(4, 3), torch.nn.Linear(3, 2)]
    plain = [torch.nn.Linear(4, 3), torch.nn.Linear(3, 2)]
    for a, b in zip(flat, plain, strict=True):
        b.load_state_dict(a.state_dict())
    ours = FlatAdam(flat, 1e-2, 0.5)
    theirs = torch.optim.Adam([p for network in plain for p in network.parameters()], lr=1e-2)
    for step in range(4):
        x = torch.randn(8, 4)
        for networks in (flat, plain):
            loss = (networks[1](networks[0](x)) * (1.0 + step)).square().sum()
            (ours if networks is flat else theirs).zero_grad()
            loss.backward()
        for network in plain:
            torch.nn.utils.clip_grad_norm_(network.parameters(), 0.5)
        ours.step()
        theirs.step()
    for a, b in zip(flat, plain, strict=True):
        torch.testing.assert_close(a.weight, b.weight, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(a.bias, b.bias, rtol=1e-5, atol=1e-6)


def test_the_ratio_is_bounded_and_the_same_bits_below():
    """The loss of a mirrored sample with weight 0 and an infinite ratio is 0, and so is its gradient."""
    new = torch.tensor([-3.0, 0.25, 39.0, 105.8], requires_grad=True)
    old = torch.zeros(4)
    ratio = probability_ratio(new, old)
    plain = torch.exp(new - old)
    assert torch.equal(ratio[:3], plain[:3])
    assert float(ratio.detach()[3]) == pytest.approx(math.exp(40.0), rel=1e-5)
    weight = torch.tensor([1.0, 1.0, 1e-20, 0.0])
    for sign in (1.0, -1.0):
        gradients = []
        for value in (ratio, plain):
            clipped = value.clamp(0.8, 1.2)
            loss = -(torch.minimum(sign * value, sign * clipped) * weight).mean()
            gradients.append(torch.autograd.grad(loss, new, retain_graph=True)[0])
        assert torch.equal(gradients[0][:3], gradients[1][:3])
        assert gradients[0].isfinite().all()
        assert not gradients[1].isfinite().all()

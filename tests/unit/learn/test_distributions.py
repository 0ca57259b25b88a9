"""Distributions of actions against torch.distributions, and each of them in the learner."""

import math
from dataclasses import replace

import pytest
import torch
from torch.distributions import AffineTransform, Normal, TanhTransform, TransformedDistribution, kl_divergence

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.ppo.config import PPOCfg
from robot_rl.learn.algorithms.ppo.ppo import PPO, make_networks
from robot_rl.learn.dims import EnvSpec
from robot_rl.learn.networks.actor_critic import Actor, Critic
from robot_rl.learn.networks.distributions import Categorical, make_distribution
from robot_rl.learn.networks.symmetry import reflect
from robot_rl.learn.rollout import make_rollout
from robot_rl.learn.trainer import Trainer
from robot_rl.settings import NetworkCfg
from tests.covering import chosen

KINDS = {
    "gaussian": {},
    "state_std": {"state_std": True},
    "squashed": {"distribution": "squashed", "bound": 1.5},
    "squashed_state_std": {"distribution": "squashed", "bound": 1.5, "state_std": True},
}
ALL = [*KINDS, "categorical"]
CHOICES = (3, 2)


def make_cfg(kind, **fields):
    return NetworkCfg(**({"hidden": (16, 16), "output_gain": 1.0, "init_std": 0.7} | KINDS.get(kind, {}) | fields))


def make(kind):
    return make_distribution(2, make_cfg(kind), choices=CHOICES if kind == "categorical" else ())


def draw(kind, count=6, seed=0):
    """A distribution and its parameters at random outputs, and random raw actions."""
    generator, distribution = torch.Generator().manual_seed(seed), make(kind)
    params = distribution.params(torch.randn(count, distribution.out_dim, generator=generator))
    noise = torch.empty(count, 2)
    distribution.draw_noise(noise, generator)
    return distribution, params, distribution.sample(params, noise)


def reference(distribution, params):
    """The same in torch: of raw actions, or of the environment's where it is squashed."""
    if isinstance(distribution, Categorical):
        return [torch.distributions.Categorical(logits=part) for part in params]
    normal = Normal(params[0], params[1].exp().expand_as(params[0]))
    bound = getattr(distribution, "bound", None)
    return normal if bound is None else TransformedDistribution(normal, [TanhTransform(), AffineTransform(0.0, bound)])


@pytest.mark.parametrize("kind", ALL)
def test_log_probabilities_are_torchs(kind):
    distribution, params, raw = draw(kind)
    theirs = reference(distribution, params)
    if kind == "categorical":
        expected = sum(part.log_prob(raw[:, k]) for k, part in enumerate(theirs))
    else:
        expected = theirs.log_prob(distribution.to_env(raw)).sum(-1)
    torch.testing.assert_close(distribution.log_prob(raw, params), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["gaussian", "state_std", "categorical"])
def test_entropies_are_torchs(kind):
    distribution, params, _ = draw(kind)
    theirs = reference(distribution, params)
    expected = sum(part.entropy() for part in theirs) if kind == "categorical" else theirs.entropy().sum(-1)
    torch.testing.assert_close(distribution.entropy(params).expand(6), expected)


@pytest.mark.parametrize(("std", "tolerance"), [(0.3, 0.004), (1.0, 0.01), (2.0, 0.1)])
def test_entropy_of_the_squashed_is_minus_the_mean_log_probability(std, tolerance):
    distribution = make_distribution(1, make_cfg("squashed", init_std=std))
    params = distribution.params(torch.tensor([[0.0], [0.7], [-1.5], [3.0]]))
    raw = params[0] + std * torch.randn(400_000, 1, 1, generator=torch.Generator().manual_seed(0))
    found = -distribution.log_prob(raw, params).mean(0)
    torch.testing.assert_close(distribution.entropy(params), found, rtol=0.0, atol=tolerance + 3e-3)


@pytest.mark.parametrize("kind", ALL)
def test_divergences(kind):
    distribution, old, _ = draw(kind, seed=1)
    _, new, _ = draw(kind, seed=2)
    if kind == "categorical":
        pairs = zip(reference(distribution, old), reference(distribution, new), strict=True)
        expected = sum(kl_divergence(p, q) for p, q in pairs)
    else:
        before, after = (Normal(mean, std.exp().expand_as(mean)) for mean, std in (old, new))
        expected = kl_divergence(before, after).sum(-1)
    torch.testing.assert_close(distribution.kl(old, new), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(distribution.kl(old, old), torch.zeros(6), rtol=0.0, atol=1e-6)


def test_the_divergence_of_squashed_actions_is_that_of_raw_ones():
    distribution, old, _ = draw("squashed_state_std", seed=1)
    _, new, _ = draw("squashed_state_std", seed=2)
    raw = old[0] + old[1].exp() * torch.randn(200_000, 6, 2, generator=torch.Generator().manual_seed(0))
    found = (distribution.log_prob(raw, old) - distribution.log_prob(raw, new)).mean(0)
    torch.testing.assert_close(distribution.kl(old, new), found, rtol=0.02, atol=0.01)


def test_choices_are_drawn_as_often_as_they_should_be():
    distribution = make("categorical")
    params = distribution.params(torch.tensor([[0.0, 1.0, -2.0, 0.3, -0.3]]).expand(100_000, 5))
    noise = torch.empty(100_000, 2)
    distribution.draw_noise(noise, torch.Generator().manual_seed(0))
    drawn = distribution.sample(params, noise)
    for k, part in enumerate(params):
        share = torch.stack([(drawn[:, k] == choice).float().mean() for choice in range(CHOICES[k])])
        torch.testing.assert_close(share, part[0].exp(), rtol=0.0, atol=0.006)
    ends = distribution.sample(tuple(part[:2] for part in params), torch.tensor([[0.0, 0.0], [1.0 - 2**-24] * 2]))
    assert ends.tolist() == [[0.0, 0.0], [2.0, 1.0]]


def test_a_choice_that_is_as_good_as_ruled_out_stays_finite():
    distribution = make("categorical")
    params = distribution.params(torch.tensor([[500.0, 0.0, 0.0, 0.0, 0.0]], requires_grad=True))
    values = (distribution.log_prob(torch.tensor([[2.0, 0.0]]), params), distribution.entropy(params))
    assert all(bool(value.isfinite().all()) for value in values)


def test_extreme_squashed_actions_stay_finite():
    distribution = make("squashed_state_std")
    out = torch.tensor([[60.0, -60.0, 3.0, -3.0]], requires_grad=True)
    params = distribution.params(out)
    raw = distribution.sample(params, torch.tensor([[4.0, -4.0]]))
    total = distribution.log_prob(raw.detach(), params).sum() + distribution.entropy(params).sum()
    total.backward()
    assert math.isfinite(float(total.detach()))
    assert bool(out.grad.isfinite().all())
    assert distribution.to_env(raw).tolist() == [[1.5, -1.5]]


def test_the_deviation_of_the_state_begins_where_it_should_and_stays_in_its_range():
    distribution = make_distribution(2, make_cfg("state_std", min_std=0.1, max_std=2.0))
    params = distribution.params(torch.tensor([[5.0, 6.0, 0.0, 0.0], [5.0, 6.0, -9.0, 9.0]]))
    assert params[0].tolist() == [[5.0, 6.0]] * 2
    torch.testing.assert_close(params[1].exp(), torch.tensor([[0.7, 0.7], [0.1, 2.0]]))
    torch.testing.assert_close(distribution.spread(torch.zeros(3, 4)), torch.tensor(0.7))


@pytest.mark.parametrize("kind", ["state_std", "squashed_state_std", "squashed"])
def test_mirrored_networks_mirror_the_whole_distribution(kind):
    mirror_in = (torch.tensor([1, 0, 2, 3, 5, 4]), torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0, -1.0]))
    mirror_out = (torch.tensor([1, 0, 2]), torch.tensor([-1.0, -1.0, -1.0]))
    cfg = make_cfg(kind)
    actor = Actor(6, 3, cfg, mirror=(mirror_in, mirror_out), generator=torch.Generator().manual_seed(0))
    obs, raw = torch.randn(9, 6), torch.randn(9, 3)
    with torch.no_grad():
        here, there = actor.params(obs), actor.params(reflect(obs, mirror_in))
        torch.testing.assert_close(there[0], reflect(here[0], mirror_out))
        torch.testing.assert_close(there[1].expand(9, 3), here[1].expand(9, 3)[:, mirror_out[0]])
        distribution = actor.distribution
        torch.testing.assert_close(
            distribution.log_prob(reflect(raw, mirror_out), there), distribution.log_prob(raw, here)
        )
        torch.testing.assert_close(actor.mean(reflect(obs, mirror_in)), reflect(actor.mean(obs), mirror_out))
    assert kind == "squashed" or float((here[1][:, 0] - here[1][:, 1]).abs().max()) > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_exported_is_the_mode(kind):
    actor = Actor(5, 2, make_cfg(kind), generator=torch.Generator().manual_seed(0))
    actor.normalizer.update(torch.randn(50, 5) * 4.0 + 1.0)
    obs = torch.randn(20, 5) * 4.0
    with torch.no_grad():
        mode = actor.mean(obs)
        torch.testing.assert_close(actor.export_module()(obs), mode, rtol=1e-5, atol=1e-5)
        silent, _ = actor.act(obs, torch.zeros(20, 2))
        torch.testing.assert_close(actor.distribution.to_env(silent), mode)
    assert mode.shape == (20, 2)
    if "squashed" in kind:
        assert 1.0 < float(mode.abs().max()) < 1.5


def test_what_has_no_meaning_for_choices_is_refused():
    actor = Actor(5, 2, make_cfg("categorical"), choices=CHOICES)
    with pytest.raises(UserError, match="export: the policy makes choices"):
        actor.export_module()
    for fields, line in (
        ({"distribution": "squashed"}, "actor.distribution: 'squashed' is for actions that are numbers"),
        ({"state_std": True}, "actor.state_std: True is for actions that are numbers"),
    ):
        with pytest.raises(UserError, match=line):
            Actor(5, 2, make_cfg("categorical", **fields), choices=CHOICES)


@pytest.mark.parametrize("kind", ALL)
def test_the_first_minibatch_has_ratio_one_and_no_divergence(kind):
    generator = torch.Generator().manual_seed(0)
    actor = Actor(5, 2, make_cfg(kind), choices=CHOICES if kind == "categorical" else (), generator=generator)
    ppo = PPO(actor, Critic(4, make_cfg("gaussian"), generator=generator), PPOCfg(), generator=generator)
    rollout = make_rollout(8, 16, EnvSpec(actor=5, critic=4, action=2), "cpu", out_dim=actor.distribution.out_dim)
    for tensor in (rollout.actor_obs, rollout.critic_obs, rollout.reward):
        tensor.normal_(generator=generator)
    actor.distribution.draw_noise(rollout.noise, generator)
    with torch.no_grad():
        for t in range(8):
            rollout.action[t], rollout.out[t] = actor.act(rollout.actor_obs[t], rollout.noise[t])
    rollout.record_policy(actor.distribution, actor.distribution.snapshot())
    batch, frozen = ppo.make_batch(rollout), rollout.frozen
    params = actor.distribution.params(actor.outputs(batch.actor_in))
    ratio = (actor.distribution.log_prob(batch.action, params) - batch.log_prob).exp()
    torch.testing.assert_close(ratio, torch.ones(128), rtol=0.0, atol=1e-5)
    old = actor.distribution.params(batch.out, frozen)
    assert float(actor.distribution.kl(old, params).detach().abs().max()) < 1e-5
    before = [p.detach().clone() for p in actor.parameters()]
    ppo.update(rollout)
    assert any(not torch.equal(a, b) for a, b in zip(before, actor.parameters(), strict=True))
    after = actor.distribution.params(actor.outputs(batch.actor_in))
    assert float(actor.distribution.kl(old, after).detach().mean()) > 1e-5


def make_choosing(point_env):
    """The point task with two choices that add up: a velocity of -1, 0 or 1, and whether to go at all."""

    class ChoosingEnv(point_env):
        action_choices = CHOICES

        def __init__(self, **options):
            super().__init__(**options)
            self.num_actions = 2
            self.seen = []

        def step(self, actions):
            self.seen.append(actions.clone())
            return super().step((actions[:, :1] - 1.0) * actions[:, 1:])

    return ChoosingEnv


@pytest.mark.parametrize("kind", chosen(ALL[1:], ALL[1]))
def test_each_of_them_learns(make_point_env, small_cfg, kind):
    """From about -7; the best is near -0.5."""
    rows = []
    env = make_choosing(make_point_env)() if kind == "categorical" else make_point_env()
    actor = replace(small_cfg.actor, **KINDS.get(kind, {}))
    last = Trainer(env, replace(small_cfg, actor=actor), observer=rows.append).train(40)
    assert rows[0]["episode/return"] < -4.0
    assert last["episode/return"] > -1.5
    assert ("policy/std" in last) == (kind != "categorical")
    if kind == "categorical":
        seen = torch.cat(env.seen)
        assert [sorted(seen[:, k].unique().tolist()) for k in range(2)] == [[0.0, 1.0, 2.0], [0.0, 1.0]]
    else:
        assert 0.01 < last["policy/std"] < 0.6


def test_choices_are_not_mirrored(make_point_env, small_cfg):
    dims = EnvSpec(actor=1, critic=2, action=2, choices=CHOICES)
    for symmetry in ("network", "augment"):
        with pytest.raises(UserError, match=f"symmetry: '{symmetry}' is for actions that are numbers"):
            make_networks(replace(small_cfg, symmetry=symmetry), dims, make_point_env().mirror)


def test_bounded_actions_reach_a_real_environment_bounded(small_cfg, monkeypatch):
    from robot_rl_envs.make import make_env
    from robot_rl_tasks.registry import get_task

    env = make_env(get_task("cartpole"), num_envs=8, engine="mujoco", num_threads=1)
    actions, step = [], env.step
    monkeypatch.setattr(env, "step", lambda action: (actions.append(action.clone()), step(action))[1])
    actor = replace(small_cfg.actor, distribution="squashed", bound=0.4, init_std=3.0)
    Trainer(env, replace(small_cfg, actor=actor)).train(2)
    env.close()
    largest = torch.cat(actions).abs()
    assert len(actions) == 16
    assert float(largest.max()) <= 0.4
    assert float((largest > 0.39).float().mean()) > 0.2

"""A rollout carries the policy that acted: a learner with newer weights takes its ratios from there."""

import copy
from dataclasses import replace

import pytest
import torch

from robot_rl.learn.trainer import Trainer


@pytest.fixture
def stale(make_point_env, small_cfg):
    """A runner that has learned on, the policy that acted, and its rollout."""
    runner = Trainer(make_point_env(), replace(small_cfg, symmetry="none"))
    runner.train(2)
    acted = copy.deepcopy(runner.actor)
    rollout = copy.deepcopy(runner.collect())
    for _ in range(3):  # Weights, deviation and normalizer move.
        runner.algorithm.update(runner.collector.rollout, 0.0)
    return runner, acted, rollout


def test_log_probabilities_and_parameters_are_those_of_the_policy_that_acted(stale):
    runner, acted, rollout = stale
    batch = runner.algorithm.make_batch(rollout)
    with torch.no_grad():
        params = acted.params(rollout.actor_obs.flatten(0, 1))
        expected = acted.distribution.log_prob(batch.action, params)
        torch.testing.assert_close(batch.log_prob, expected, rtol=0.0, atol=1e-5)
        now = runner.actor.params(rollout.actor_obs.flatten(0, 1))
        old = runner.actor.distribution.params(batch.out, rollout.frozen)
        assert float(runner.actor.distribution.kl(old, params).abs().max()) < 1e-6
        # The learner's own deviation would give other ones.
        assert float((runner.actor.distribution.log_prob(batch.action, now) - expected).abs().max()) > 1e-3
        assert not torch.equal(runner.actor.distribution.snapshot(), rollout.frozen)
    mean, scale = rollout.normalizer
    assert torch.equal(mean, acted.normalizer.mean)
    assert torch.equal(scale, acted.normalizer.scale)
    assert not torch.equal(mean, runner.actor.normalizer.mean)


def test_the_divergence_is_measured_from_the_policy_that_acted(stale):
    runner, acted, rollout = stale
    batch = runner.algorithm.make_batch(rollout)
    divergence = runner.algorithm.loss(batch, rollout.frozen)[1][3]
    with torch.no_grad():
        obs = rollout.actor_obs.flatten(0, 1)
        expected = runner.actor.distribution.kl(acted.params(obs), runner.actor.params(obs)).mean()
    assert float(divergence) == pytest.approx(float(expected), rel=1e-3)
    assert float(divergence) > 1e-4


def test_steps_carry_the_version(stale):
    runner, _, rollout = stale
    assert set(rollout.version.flatten().tolist()) == {2}
    runner.iteration = 7
    assert set(runner.collect().version.flatten().tolist()) == {7}

"""The decoupled objective, V-trace and their gates, against plain loops and limits."""

import copy
from dataclasses import replace

import pytest
import torch

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.ppo.config import CorrectionCfg
from robot_rl.learn.algorithms.ppo.gae import advantages, policy_advantages
from robot_rl.learn.rollout import make_rollout
from robot_rl.learn.trainer import Trainer


@pytest.fixture
def make_stale(make_point_env, small_cfg):
    """make_stale(updates, **correction): a runner that has learned on, and a rollout of the policy before."""

    def make(updates=3, **correction):
        ppo = replace(small_cfg.ppo, correction=CorrectionCfg(**correction))
        cfg = replace(small_cfg, symmetry="none", ppo=ppo)
        runner = Trainer(make_point_env(), cfg)
        runner.train(2)
        rollout = copy.deepcopy(runner.collect())
        for _ in range(updates):
            runner.algorithm.update(runner.collector.rollout, 0.0)
        rollout.learner_version = torch.tensor(2 + updates)
        return runner, rollout

    return make


def surrogate(runner, rollout):
    algorithm = runner.algorithm
    policy = algorithm.proximal_policy(rollout)
    batch = algorithm.make_batch(rollout, policy)
    algorithm.optimizer.zero_grad()
    loss, statistics = algorithm.loss(batch, policy.frozen)
    loss.backward()
    return batch, statistics, algorithm.optimizer.grads.clone(), policy


def test_the_ratio_starts_at_one_and_samples_are_weighted(make_stale):
    runner, rollout = make_stale()
    batch, statistics, _, _ = surrogate(runner, rollout)
    with torch.no_grad():
        params = runner.actor.params(rollout.actor_obs.flatten(0, 1))
        now = runner.actor.distribution.log_prob(rollout.action.flatten(0, 1), params)
    torch.testing.assert_close(batch.log_prob, now, rtol=0.0, atol=1e-5)
    weight = (now - rollout.log_prob.flatten()).exp().clamp(max=2.0)
    torch.testing.assert_close(batch.importance, weight, rtol=1e-4, atol=1e-5)
    expected = -(weight * batch.advantage).mean()
    assert float(statistics[1]) == pytest.approx(float(expected), rel=1e-3, abs=1e-6)
    assert float(statistics[3]) == pytest.approx(0.0, abs=1e-6)  # the divergence
    assert float(statistics[4]) == 0.0  # nothing is clipped yet


def test_without_the_correction_the_ratio_is_to_the_policy_that_acted(make_stale):
    runner, rollout = make_stale(objective="none")
    batch, statistics, _, policy = surrogate(runner, rollout)
    assert batch.importance is None
    assert torch.equal(batch.log_prob, rollout.log_prob.flatten())
    assert float(statistics[4]) == pytest.approx(float(policy.statistics["staleness/plain_clipped"]), abs=1e-6)


def test_of_the_same_policy_both_are_the_same(make_stale):
    gradients = []
    for objective in ("decoupled", "none"):
        runner, rollout = make_stale(0, objective=objective)
        gradients.append(surrogate(runner, rollout)[2])
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("limit", [{"min_effective": 1.0}, {"max_divergence": 1e-12}])
def test_beyond_a_gate_samples_with_large_weights_are_left_out(make_stale, limit):
    runner, rollout = make_stale(20, weight_max=1.05, **limit)
    batch, _, _, policy = surrogate(runner, rollout)
    far = (batch.log_prob - rollout.log_prob.flatten()).abs() > torch.tensor(1.05).log()
    assert 0 < int(far.sum()) < len(far)
    assert float(policy.statistics["staleness/gated"]) == 1.0
    assert torch.equal(batch.importance == 0.0, far)
    assert float(policy.statistics["staleness/left_out"]) == pytest.approx(float(far.float().mean()), rel=1e-5)


def test_statistics_leave_quarantined_samples_out(make_stale):
    runner, rollout = make_stale()
    whole = runner.algorithm.proximal_policy(rollout).statistics
    rollout.valid[:, ::2] = False
    rollout.has_invalid = True
    rollout.log_prob[:, ::2] = 5.0
    found = runner.algorithm.proximal_policy(rollout).statistics
    assert float(found["staleness/effective"]) == pytest.approx(float(whole["staleness/effective"]), rel=0.3)
    assert float(found["staleness/divergence"]) < 10 * float(whole["staleness/divergence"]) + 1e-3


def test_traced_advantages_are_a_plain_loop():
    generator = torch.Generator().manual_seed(3)
    steps, worlds, gamma, lam = 9, 5, 0.9, 0.8
    rewards = torch.randn(steps, worlds, generator=generator)
    values = torch.randn(steps + 1, worlds, generator=generator)
    dones = torch.rand(steps, worlds, generator=generator) < 0.2
    trace = torch.rand(steps, worlds, generator=generator)
    found = advantages(rewards, values, dones, gamma, lam, trace=trace)
    policy = policy_advantages(rewards, values, dones, gamma, lam, traced=found)
    after = torch.zeros(worlds)
    for t in reversed(range(steps)):
        alive = 1.0 - dones[t].float()
        own = rewards[t] + gamma * alive * values[t + 1] - values[t] + gamma * lam * alive * after
        after = trace[t] * own
        torch.testing.assert_close(found[t], after)
        torch.testing.assert_close(policy[t], own)


def test_v_trace_of_the_same_policy_is_gae(make_stale):
    runner, rollout = make_stale(0, advantages="vtrace")
    traced = runner.algorithm.make_batch(rollout, runner.algorithm.proximal_policy(rollout))
    plain = runner.algorithm.make_batch(rollout)
    torch.testing.assert_close(traced.returns, plain.returns, rtol=1e-4, atol=1e-4)
    runner, rollout = make_stale(20, advantages="vtrace")
    traced = runner.algorithm.make_batch(rollout, runner.algorithm.proximal_policy(rollout))
    assert not torch.allclose(traced.returns, runner.algorithm.make_batch(rollout).returns, atol=1e-3)


@pytest.mark.parametrize("sequence", [0, 2, 3, 6])
def test_samples_return_to_steps_and_worlds(sequence):
    from robot_rl.learn.dims import EnvSpec

    dims = EnvSpec(actor=2, critic=2, action=1)
    rollout = make_rollout(6, 4, dims, "cpu")
    rollout.sequence = sequence
    x = torch.arange(24.0).view(6, 4)
    assert torch.equal(rollout.unflat(rollout.flat(x)), x)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("objective", "plain"),
        ("weight_max", 0.5),
        ("advantages", "td"),
        ("min_effective", 2.0),
        ("max_divergence", 0.0),
    ],
)
def test_a_correction_that_cannot_be_is_refused(field, value):
    with pytest.raises(UserError, match=field):
        CorrectionCfg(**{field: value})

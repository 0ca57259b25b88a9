"""A converter replaces the arithmetic of layers everywhere: rollout, update, evaluation and export see the same."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from robot_rl.errors import UserError
from robot_rl.learn.policy import make_policy
from robot_rl.learn.trainer import Trainer

CALLS = []


class Coarse(nn.Module):
    """Weights rounded to sixteenths, with the gradient of what was not rounded."""

    def forward(self, x, weight, bias):
        CALLS.append(x.shape[0])
        rounded = weight + ((weight * 16.0).round() / 16.0 - weight).detach()
        return nn.functional.linear(x, rounded, bias)


def coarse(name, shape):
    assert name.startswith(("actor.body.", "critic.body."))
    assert len(shape) == 2
    return Coarse()


@pytest.fixture(params=["none", "network"])
def runner(request, make_point_env, small_cfg, tmp_path):
    cfg = replace(small_cfg, symmetry=request.param, converter=f"{__name__}:coarse")
    return Trainer(make_point_env(), cfg, run_dir=tmp_path)


def test_it_learns_through_the_converter(runner):
    CALLS.clear()
    before = [p.detach().clone() for p in runner.actor.body.parameters()]
    runner.train(2)
    assert {64, 64 * runner.cfg.num_steps // runner.cfg.ppo.minibatches} <= set(CALLS)  # Rollout and update.
    assert any(not torch.equal(a, b) for a, b in zip(before, runner.actor.body.parameters(), strict=True))


def test_the_first_minibatch_has_ratio_one(runner):
    batch = runner.algorithm.make_batch(runner.collect())
    loss, statistics = runner.algorithm.loss(batch, runner.collector.rollout.frozen)
    assert abs(float(statistics[3])) < 1e-6
    assert bool(loss.isfinite())


def test_what_is_deployed_was_trained(runner, make_point_env):
    runner.train(2)
    obs = torch.randn(32, runner.actor.obs_dim)
    with torch.no_grad():
        acted = runner.actor.mean(obs)
        torch.testing.assert_close(runner.actor.export_module()(obs), acted, rtol=0.0, atol=1e-6)
        runner.actor.body.arithmetic, converted = None, runner.actor.body.arithmetic
        exact = runner.actor.mean(obs)
        runner.actor.body.arithmetic = converted
        assert float((exact - acted).abs().max()) > 1e-4  # It matters.
    world = make_point_env().get_observations()
    policy = make_policy(runner.run_dir)
    gathered = policy.actor.layout.gather(world, torch.empty(64, runner.actor.obs_dim))
    torch.testing.assert_close(policy(world), runner.actor.mean(gathered))


def test_the_weights_that_are_rounded_are_the_deployed_ones(runner):
    for module in runner.actor.export_module().modules():
        assert not isinstance(module, nn.Linear)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", r"^converter=nothing: must be written module:name"),
        ("no_such_module:x", r"^converter=no_such_module:x: cannot import no_such_module"),
        ("os:system", r"^converter=os:system: must return a torch.nn.Module .* cannot be called with 2 arguments"),
        ("builtins:max", r"^converter=builtins:max: must return a torch.nn.Module"),
    ],
)
def test_a_converter_that_is_not_there(make_point_env, small_cfg, name, message):
    with pytest.raises(UserError, match=message):
        Trainer(make_point_env(), replace(small_cfg, converter=name))

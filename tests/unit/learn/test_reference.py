"""A penalty toward a frozen policy: a weight of 0 is no penalty, a huge one keeps the policy where it is."""

from dataclasses import replace

import pytest
import torch

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.learn.auxiliaries.config import ReferenceCfg
from robot_rl.learn.networks.distributions import Gaussian, StateGaussian, kl_each
from robot_rl.learn.trainer import Trainer
from robot_rl.settings import NetworkCfg
from robot_rl.settings.networks import MemoryCfg


@pytest.fixture
def start(make_point_env, small_cfg, tmp_path):
    """The checkpoint of a short run, to stay near."""
    runner = Trainer(make_point_env(), small_cfg, run_dir=tmp_path / "start")
    runner.train(2)
    return runner.checkpoint


def near(cfg: PPOLearnerCfg, start, **settings):
    return replace(cfg, reference=ReferenceCfg(**({"run": str(start)} | settings)))


def untimed(row):
    return {key: value for key, value in row.items() if not key.startswith(("perf/", "time_s", "reference/"))}


def train(env, cfg, start, iterations=3):
    rows = []
    runner = Trainer(env, cfg, observer=rows.append)
    runner.load(start, weights_only=True)
    runner.train(iterations)
    return runner, rows


def test_no_weight_is_plain_ppo_to_the_bit(make_point_env, small_cfg, start):
    plain, rows = train(make_point_env(), small_cfg, start)
    other, others = train(make_point_env(), near(small_cfg, start, weight=0.0), start)
    assert [untimed(row) for row in rows] == [untimed(row) for row in others]
    assert all(torch.equal(a, b) for a, b in zip(plain.actor.parameters(), other.actor.parameters(), strict=True))
    assert others[-1]["reference/kl"] > 1e-3  # The distance is reported all the same.


def test_a_huge_weight_keeps_the_policy(make_point_env, small_cfg, start):
    moved = {}
    for weight in (0.0, 0.1, 1e3):
        _, rows = train(make_point_env(), near(small_cfg, start, weight=weight), start, 8)
        assert rows[0]["reference/weight"] == pytest.approx(weight)
        moved[weight] = rows[-1]["reference/kl"]
    assert moved[1e3] < 0.02 * moved[0.0]
    assert moved[1e3] < moved[0.1] < moved[0.0]


def test_the_penalty_is_the_exact_divergence(make_point_env, small_cfg, start):
    runner = Trainer(make_point_env(), near(small_cfg, start, weight=0.7))
    runner.collect()
    batch = runner.algorithm.make_batch(runner.collector.rollout)
    (reference,) = runner.algorithm.auxiliaries
    params = runner.actor.distribution.params(runner.actor.outputs(batch.actor_in))
    with torch.no_grad():  # Evaluated again, in the order of the batch.
        mean, log_std = reference.frozen.actor.params(runner.collector.rollout.actor_obs.flatten(0, 1))
    theirs = torch.distributions.Normal(mean, log_std.exp())
    ours = torch.distributions.Normal(params[0], params[1].exp())
    expected = torch.distributions.kl_divergence(theirs, ours).sum(-1).mean()
    torch.testing.assert_close(reference.loss(batch, params), 0.7 * expected)
    reference.loss(batch, params).backward()
    assert all(p.grad is None for p in reference.frozen.actor.parameters())
    torch.testing.assert_close(reference.update(runner.collector.rollout, 0.0)["reference/kl"], expected.detach())


def test_divergence_of_gaussians_with_deviations_of_their_own():
    generator = torch.Generator().manual_seed(0)
    old_mean, mean, old_log_std, log_std = torch.randn(4, 7, 3, generator=generator).unbind()
    theirs, ours = (torch.distributions.Normal(m, s.exp()) for m, s in ((old_mean, old_log_std), (mean, log_std)))
    expected = torch.distributions.kl_divergence(theirs, ours).sum(-1)
    torch.testing.assert_close(kl_each(old_mean, old_log_std, mean, log_std), expected)
    kind = StateGaussian(3, NetworkCfg())
    torch.testing.assert_close(kind.kl((old_mean, old_log_std), (mean, log_std)), expected)
    shared = Gaussian(3, NetworkCfg()).kl((old_mean, old_log_std[0]), (mean, log_std[0]))
    torch.testing.assert_close(kl_each(old_mean, old_log_std[0], mean, log_std[0]), shared)


@pytest.mark.parametrize("actor", [{"state_std": True}, {"distribution": "squashed", "bound": 2.0}])
def test_other_distributions_have_their_divergence(make_point_env, small_cfg, actor, tmp_path):
    cfg = replace(small_cfg, actor=replace(small_cfg.actor, **actor))
    first = Trainer(make_point_env(), cfg, run_dir=tmp_path)
    first.train(1)
    runner = Trainer(make_point_env(), near(cfg, tmp_path))
    runner.load(first.checkpoint, weights_only=True)
    runner.collect()
    batch = runner.algorithm.make_batch(runner.collector.rollout)
    params = runner.actor.distribution.params(runner.actor.outputs(batch.actor_in))
    assert (
        abs(float(runner.algorithm.auxiliaries[0].loss(batch, params).detach())) < 1e-6
    )  # The policy is the reference yet.
    runner.train(2)


def test_the_weight_falls_and_a_resumed_run_goes_on_with_it(make_point_env, small_cfg, start, tmp_path):
    cfg = near(replace(small_cfg, max_iterations=8), start, weight=2.0, decay=0.5)
    rows = []
    whole = Trainer(make_point_env(), cfg, run_dir=tmp_path / "near", observer=rows.append)
    whole.train()
    assert [row["reference/weight"] for row in rows] == pytest.approx([2.0, 2.0, 1.5, 1.0, 0.5, 0.0, 0.0, 0.0])
    resumed = []
    runner = Trainer(make_point_env(), cfg, observer=resumed.append)
    runner.load(tmp_path / "near" / "checkpoints" / "000004")
    runner.train(5)
    assert [row["reference/weight"] for row in resumed] == pytest.approx([0.5])


def test_it_sees_other_groups_than_the_policy(make_point_env, small_cfg, tmp_path):
    both = replace(small_cfg, actor_groups=("actor", "critic"))
    first = Trainer(make_point_env(), both, run_dir=tmp_path)
    first.train(1)
    runner = Trainer(make_point_env(), near(small_cfg, first.checkpoint))
    (reference,) = runner.algorithm.auxiliaries
    assert reference.groups == ("actor", "critic")
    runner.collect()
    rollout = runner.collector.rollout
    with torch.no_grad():
        obs = torch.cat((rollout.actor_obs, rollout.critic_obs[:-1]), dim=-1)
        mean = first.actor.mean(obs.flatten(0, 1))
    found = reference.samples(rollout)["reference"].flatten(0, 1)[:, :1]
    torch.testing.assert_close(found, mean, rtol=1e-5, atol=1e-6)


def test_mirrored_samples_have_mirrored_references(make_point_env, small_cfg, start):
    runner = Trainer(make_point_env(), near(replace(small_cfg, symmetry="augment"), start))
    runner.collect()
    batch = runner.algorithm.make_batch(runner.collector.rollout)
    mean = batch.more["reference"][:, 0]
    count = mean.shape[0] // 2
    assert torch.equal(mean[:count], -mean[count:])
    assert torch.equal(batch.more["reference"][:count, 1], batch.more["reference"][count:, 1])


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_a_reference_with_a_memory_remembers_over_rollouts(make_point_env, small_cfg, tmp_path, kind):
    """While the policy is the reference the divergence is zero: what both remember is the same, ends included."""
    actor = replace(small_cfg.actor, memory=MemoryCfg(kind=kind, hidden=8))
    cfg = replace(small_cfg, actor=actor, num_steps=6)  # Episodes of 10 steps: some span two rollouts, some end in one.
    first = Trainer(make_point_env(), cfg, run_dir=tmp_path)
    first.train(2)
    runner = Trainer(make_point_env(), near(cfg, first.checkpoint))
    runner.load(first.checkpoint, weights_only=True)
    (reference,) = runner.algorithm.auxiliaries
    for _ in range(4):
        runner.collect()
        batch = runner.algorithm.make_batch(runner.collector.rollout)
        out = runner.collector.rollout.flat(runner.collector.rollout.out)
        torch.testing.assert_close(batch.more["reference"][:, :1], out, rtol=1e-5, atol=1e-6)
    reference.memory.zero_()
    runner.collect()
    stale = runner.algorithm.make_batch(runner.collector.rollout).more["reference"][:, :1]
    assert not torch.allclose(stale, runner.collector.rollout.flat(runner.collector.rollout.out), atol=1e-4)


def test_another_reference_is_refused_on_resume(make_point_env, small_cfg, start, tmp_path):
    runner = Trainer(make_point_env(), near(small_cfg, start), run_dir=tmp_path / "near")
    runner.train(1)
    with pytest.raises(
        UserError, match=r"^reference\.run: '.*' is not the policy that the run began with, .*000002 "
    ) as e:
        Trainer(make_point_env(), near(small_cfg, runner.checkpoint)).load(runner.checkpoint)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("reference", "actor", "message"),
    [
        ({"run": "nowhere"}, {}, r"^reference\.run: 'nowhere' is neither a run's directory nor a checkpoint$"),
        (
            {"groups": ("critic",)},
            {},
            r"^reference\.groups: \['critic'\] have shape \(2,\), must be \(1,\) for the policy",
        ),
        ({"groups": ("actr",)}, {}, r"^reference\.groups: the environment has no group 'actr', did you mean 'actor'"),
        (
            {},
            {"distribution": "squashed"},
            r"^reference\.run: .* has actor\.distribution=gaussian of bound 1, must be squashed of bound 1$",
        ),
    ],
)
def test_a_reference_that_does_not_fit(make_point_env, small_cfg, start, reference, actor, message):
    cfg = near(replace(small_cfg, actor=replace(small_cfg.actor, **actor)), start, **reference)
    with pytest.raises(UserError, match=message) as error:
        Trainer(make_point_env(), cfg)
    assert "\n" not in str(error.value)

"""A student learns what its teacher does, and goes on from there."""

import math
from dataclasses import replace

import pytest
import torch

from robot_rl.learn.algorithms.distill.config import TeacherCfg
from robot_rl.learn.algorithms.distill.distill import Distill
from robot_rl.learn.algorithms.ppo.config import PPOCfg
from robot_rl.learn.auxiliaries.frozen import FrozenPolicy
from robot_rl.learn.checkpoints.checkpoint import load_checkpoint
from robot_rl.learn.networks.actor_critic import Actor
from robot_rl.learn.networks.layout import ObservationLayout
from robot_rl.learn.policy import TrainedPolicy, make_policy
from robot_rl.learn.trainer import Trainer
from robot_rl.settings import NetworkCfg
from robot_rl.settings.networks import MemoryCfg

from .conftest import GAIN, FallEnv, make_teacher_run, student_cfg, teacher_cfg, without_teacher


@torch.no_grad()
def returns(act, group, steps=60, **env):
    """Mean reward a step of a policy without noise, in fresh worlds."""
    world = FallEnv(num_envs=256, seed=77, **env)
    total = 0.0
    for _ in range(steps):
        total += float(world.step(act(world.get_observations()[group]))[1].mean())
    return total / steps


def untimed(row):
    return {key: value for key, value in row.items() if not key.startswith(("perf/", "time_s"))}


def test_a_student_comes_near_its_teacher(teacher_run):
    """What it sees is nearly enough; without learning the point falls, at about -1.5 a step."""
    rows = []
    runner = Trainer(FallEnv(noise=0.02), student_cfg(teacher_run), observer=rows.append)
    assert type(runner.algorithm) is Distill
    before = returns(runner.actor.mean, "seen", noise=0.02)
    runner.train()
    best = returns(lambda obs: obs @ GAIN.T, "state", noise=0.02)
    after = returns(runner.actor.mean, "seen", noise=0.02)
    assert before < -0.5
    assert after > best - 0.02
    assert rows[-1]["teacher/error"] < 0.6 * rows[0]["teacher/error"]
    assert rows[-1]["loss/imitation"] < 0.5 * rows[0]["loss/imitation"]
    assert [rows[k]["teacher/share"] for k in (0, 13, 39)] == pytest.approx([0.5, 0.0, 0.0], abs=1e-6)
    assert 0.3 < rows[0]["teacher/acted"] < 0.7
    assert rows[39]["teacher/acted"] == 0.0
    assert 0.15 < rows[7]["teacher/share"] < 0.35


@pytest.mark.long
def test_imitating_in_its_own_states_beats_cloning_in_the_teachers(teacher_run):
    """In the teacher's states the last action determines nearly all of the next, in its own it leads a clone astray."""
    losses, found = [], []
    for clones in (False, True):
        runner = Trainer(FallEnv(noise=0.1), student_cfg(teacher_run))
        if clones:
            (teacher,) = runner.algorithm.auxiliaries
            teacher._share = lambda progress: 1.0
            teacher.set_share(1.0)
        losses.append(runner.train()["loss/imitation"])
        found.append(returns(runner.actor.mean, "seen", noise=0.1))
    assert losses[1] < 0.5 * losses[0]  # By its own measure the clone is the better one.
    assert found[0] > -0.12
    assert found[1] < 3.0 * found[0]


def test_worlds_follow_the_teacher_or_the_student(teacher_run):
    runner = Trainer(FallEnv(), student_cfg(teacher_run, teacher=TeacherCfg(run=str(teacher_run), mix=0.5)))
    (teacher,) = runner.algorithm.auxiliaries
    obs, action = runner.env.get_observations(), torch.full((64, 1), 7.0)
    hook, rollout = teacher.hook, runner.collector.rollout
    hook.share = 0.5
    hook.begin()
    taken = hook.act(obs, 0, action, rollout)
    follows = taken[:, 0] != 7.0
    assert 20 < int(follows.sum()) < 44
    torch.testing.assert_close(taken[follows], obs["state"][follows] @ GAIN.T)
    assert torch.equal(hook.act(obs, 1, action, rollout), taken)  # The same worlds until the rollout ends.
    hook.begin()
    assert not torch.equal(hook.act(obs, 0, action, rollout), taken)
    hook.share = 0.0
    hook.begin()
    assert torch.equal(hook.act(obs, 0, action, rollout), action)


def test_the_teacher_takes_over_where_the_student_errs(teacher_run):
    cfg = student_cfg(teacher_run, teacher=TeacherCfg(run=str(teacher_run), mix=0.0, takeover=0.5))
    runner = Trainer(FallEnv(), cfg)
    (teacher,) = runner.algorithm.auxiliaries
    obs, hook = runner.env.get_observations(), teacher.hook
    right = obs["state"] @ GAIN.T
    action = right + torch.where(torch.arange(64) < 16, 0.6, 0.4)[:, None]
    hook.begin()
    taken = hook.act(obs, 0, action, runner.collector.rollout)
    torch.testing.assert_close(taken[:16], right[:16])
    assert torch.equal(taken[16:], action[16:])
    assert float(runner.collector.rollout.recorded["teacher_acted"].sum()) == 16.0


def test_the_loss_is_the_divergence(teacher_run):
    runner = Trainer(FallEnv(), student_cfg(teacher_run, actor={"init_std": 0.7}))
    runner.collect()
    algorithm = runner.algorithm
    batch = algorithm.make_batch(runner.collector.rollout)
    with torch.no_grad():
        params = runner.actor.distribution.params(runner.actor.outputs(batch.actor_in))
    labels = batch.more["teacher"]
    torch.testing.assert_close(labels[:, 1], torch.full((1024,), math.log(0.3)))
    ours = torch.distributions.Normal(params[0][:, 0], 0.7)
    theirs = torch.distributions.Normal(labels[:, 0], 0.3)
    expected = torch.distributions.kl_divergence(theirs, ours).mean()
    (teacher,) = runner.algorithm.auxiliaries
    torch.testing.assert_close(teacher.loss(batch, params), expected)
    total, statistics = algorithm.loss(batch, None)
    torch.testing.assert_close(total, expected + algorithm.cfg.value_coef * statistics[0])
    shown = teacher.update(runner.collector.rollout, 0.0)
    assert float(shown["loss/imitation"]) == pytest.approx(float(expected), rel=1e-5)
    error = (params[0] - labels[:, :1]).square().mean().sqrt()
    assert float(shown["teacher/error"]) == pytest.approx(float(error), rel=1e-5)


def test_between_kinds_of_distribution_the_error_counts_in_units_of_the_teachers_deviation(teacher_run):
    actor = {"distribution": "squashed", "bound": 4.0, "output_gain": 1.0}
    runner = Trainer(FallEnv(), student_cfg(teacher_run, actor=actor))
    runner.collect()
    batch = runner.algorithm.make_batch(runner.collector.rollout)
    params = runner.actor.distribution.params(runner.actor.outputs(batch.actor_in))
    expected = 0.5 * ((4.0 * torch.tanh(params[0]) - batch.more["teacher"][:, :1]) / 0.3).square().mean()
    torch.testing.assert_close(runner.algorithm.auxiliaries[0].loss(batch, params), expected, rtol=1e-4, atol=1e-4)
    rows = []
    Trainer(FallEnv(), student_cfg(teacher_run, actor=actor), observer=rows.append).train(10)
    assert rows[-1]["loss/imitation"] < 0.7 * rows[0]["loss/imitation"]


def test_a_squashed_teachers_deviation_is_that_of_its_actions(tmp_path):
    run = make_teacher_run(tmp_path, FallEnv(), teacher_cfg(distribution="squashed", bound=2.0))
    runner = Trainer(FallEnv(), student_cfg(run))
    frozen = runner.algorithm.auxiliaries[0].frozen
    label = torch.tensor([[0.4, math.log(0.3)]])
    deviation = (math.tanh(0.7) - math.tanh(0.1)) * 2.0 / 2.0
    found = frozen.error(label, (torch.tensor([[0.5]]), torch.zeros(1)), runner.actor.distribution)
    assert float(found) == pytest.approx(0.5 * ((0.5 - 2.0 * math.tanh(0.4)) / deviation) ** 2, rel=1e-5)


def test_the_teacher_stays_as_it_is(tmp_path):
    """Neither a gradient nor a normalizer that goes on counting reaches it."""
    run = make_teacher_run(tmp_path, FallEnv(), replace(teacher_cfg(), normalize_obs=True))
    runner = Trainer(FallEnv(), student_cfg(run))
    frozen = runner.algorithm.auxiliaries[0].frozen
    before = {name: tensor.clone() for name, tensor in frozen.actor.state_dict().items()}
    assert "normalizer.count" in before
    runner.train(3)
    assert all(torch.equal(tensor, before[name]) for name, tensor in frozen.actor.state_dict().items())
    assert all(p.grad is None and not p.requires_grad for p in frozen.actor.parameters())
    learned = sum(p.numel() for network in (runner.actor, runner.critic) for p in network.parameters())
    assert runner.algorithm.optimizer.params.numel() == learned
    assert not any(
        name.startswith("auxiliary.teacher.") and tensor.ndim == 2 for name, tensor in runner.state().items()
    )


def test_the_critic_learns_the_students_returns(teacher_run):
    rows = []
    runner = Trainer(FallEnv(), student_cfg(teacher_run), observer=rows.append)
    before = [p.clone() for p in runner.critic.parameters()]
    runner.train(2)
    assert not all(torch.equal(a, b) for a, b in zip(before, runner.critic.parameters(), strict=True))
    ppo = {"value_coef": 0.0}
    runner = Trainer(FallEnv(), student_cfg(teacher_run, ppo=ppo))
    before = [p.clone() for p in runner.critic.parameters()]
    runner.train(2)
    assert all(torch.equal(a, b) for a, b in zip(before, runner.critic.parameters(), strict=True))


def test_quarantined_samples_are_not_learned_from(teacher_run):
    def train(rubbish):
        env = FallEnv()
        step, count = env.step, [0]

        def spoil(actions):
            count[0] += 1
            if count[0] == 6:
                actions[3] = 0.0
            obs, reward, done, extras = step(actions)
            extras["valid"] = torch.ones(64, dtype=torch.bool)
            if count[0] in (5, 6):
                extras["valid"][3] = False
                reward[3] = rubbish
                obs = obs.clone()
                if count[0] == 5:  # What the sixth action is drawn at.
                    obs["state"][3] = rubbish
                    obs["seen"][3] = rubbish
            return obs, reward, done, extras

        env.step = spoil
        cfg = student_cfg(teacher_run, teacher=TeacherCfg(run=str(teacher_run), mix=0.0))
        runner = Trainer(env, cfg)
        runner.train(1)
        return list(runner.actor.parameters())

    first, other = train(0.5), train(math.nan)
    assert all(bool(p.isfinite().all()) for p in other)
    assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_mirrored_samples_have_mirrored_labels(teacher_run):
    env = FallEnv()
    flip = (torch.arange(2), -torch.ones(2))
    env.mirror = {"seen": flip, "critic": flip, "action": (torch.arange(1), -torch.ones(1))}
    runner = Trainer(env, student_cfg(teacher_run, symmetry="augment"))
    runner.collect()
    mean, log_std = runner.algorithm.make_batch(runner.collector.rollout).more["teacher"].unbind(-1)
    assert torch.equal(mean[:1024], -mean[1024:])
    assert torch.equal(log_std[:1024], log_std[1024:])
    assert float(mean.abs().max()) > 0.1
    runner.train(2)


def test_a_resumed_student_goes_on_to_the_bit(teacher_run, tmp_path):
    cfg = student_cfg(teacher_run, teacher=TeacherCfg(run=str(teacher_run), mix_until=1.0))
    env = FallEnv()
    whole = Trainer(env, cfg, run_dir=tmp_path / "student")
    whole.train(2)
    other = FallEnv()
    for name in ("x", "v", "last", "episode_length_buf", "obs"):
        setattr(other, name, getattr(env, name).clone())
    other.generator.set_state(env.generator.get_state())
    resumed = Trainer(other, cfg, seed=5)
    resumed.load(whole.checkpoint)
    resumed.collector._obs = whole.collector._obs
    resumed._tracker = whole._tracker
    expected, found = untimed(whole.train(4)), untimed(resumed.train(4))
    assert {key: found[key] for key in found if "episode" not in key} == {
        key: expected[key] for key in expected if "episode" not in key
    }
    assert 0.0 < found["teacher/share"] < 0.5
    assert all(torch.equal(a, b) for a, b in zip(whole.actor.parameters(), resumed.actor.parameters(), strict=True))


def test_same_seed_same_bits(teacher_run):
    rows = [untimed(Trainer(FallEnv(), student_cfg(teacher_run), seed=seed).train(3)) for seed in (3, 3, 4)]
    assert rows[0] == rows[1]
    assert rows[0] != rows[2]


def test_the_checkpoint_names_the_teacher(teacher_run, tmp_path):
    runner = Trainer(FallEnv(), student_cfg(teacher_run), run_dir=tmp_path / "student")
    runner.train(1)
    teacher = load_checkpoint(runner.checkpoint)[1]["auxiliaries"]["teacher"]
    assert teacher["checkpoint"] == str(teacher_run / "checkpoints" / "000000")
    assert len(teacher["sha256"]) == 64
    policy = make_policy(tmp_path / "student")
    assert policy(FallEnv().get_observations()).shape == (64, 1)


def test_reinforcement_learning_goes_on_from_a_student(teacher_run, tmp_path):
    """Only the weights are loaded: the new run has no teacher, and begins where the student was."""
    student = Trainer(FallEnv(), student_cfg(teacher_run, max_iterations=15), run_dir=tmp_path / "student")
    student.train()
    cfg = without_teacher(student.cfg, ppo=PPOCfg(learning_rate=1e-4, schedule="fixed"))
    rows = []
    runner = Trainer(FallEnv(), cfg, observer=rows.append)
    runner.load(student.checkpoint, weights_only=True)
    assert torch.equal(runner.actor.mean(torch.ones(1, 2)), student.actor.mean(torch.ones(1, 2)))
    assert runner.iteration == 0
    runner.train(1)
    fresh = []
    Trainer(FallEnv(), cfg, observer=fresh.append).train(1)
    assert rows[0]["loss/value"] < 0.5 * fresh[0]["loss/value"]  # The critic was taught, too.


def test_choices_are_taught_by_their_divergence():
    """Log-probabilities are the label; the distance is the share of choices that differ."""
    cfg = NetworkCfg(hidden=(8,), output_gain=1.0)
    one, other = (Actor(3, 2, cfg, choices=(3, 2), generator=torch.Generator().manual_seed(k)) for k in (0, 1))
    frozen = FrozenPolicy(TrainedPolicy(one, {}, None), ObservationLayout({"state": (3,)}), "teacher")
    obs = torch.randn(50, 3, generator=torch.Generator().manual_seed(2))
    label, params = frozen.label(obs), other.params(obs)
    assert label.shape == (50, 5)
    parts = zip(frozen.params(label), params, strict=True)
    pairs = [[torch.distributions.Categorical(logits=part) for part in pair] for pair in parts]
    expected = sum(torch.distributions.kl_divergence(*pair) for pair in pairs)
    torch.testing.assert_close(frozen.kl(label, params), expected)
    differ = (one.mean(obs) != other.mean(obs)).float().mean(-1)
    assert torch.equal(frozen.distance(label, params, other.distribution), differ)
    assert 0.0 < float(differ.mean()) < 1.0
    assert isinstance(frozen.is_alike(other.distribution), bool)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_a_teacher_with_a_memory_forgets_at_the_end_of_episodes(tmp_path, kind):
    """Evaluated step by step it has the same labels as for the whole rollout at once."""
    memory = MemoryCfg(kind=kind, hidden=8)
    cfg = replace(teacher_cfg(activation="elu", output_gain=1.0, memory=memory), num_steps=8)
    Trainer(FallEnv(), cfg, run_dir=tmp_path).train(1)
    runner = Trainer(FallEnv(episode=20), student_cfg(tmp_path, actor_groups=("state",)))
    (teacher,) = runner.algorithm.auxiliaries
    state = teacher.frozen.initial_state(64, "cpu")
    for _ in range(3):
        runner.collect()
        rollout = runner.collector.rollout
        labels = teacher.frozen.labels(rollout.actor_obs, state, rollout.starts())
        torch.testing.assert_close(teacher.samples(rollout)["teacher"], labels, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(teacher.hook.memory, state, rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_a_student_that_remembers_sees_through_noise(teacher_run):
    """Position and velocity are in what it saw before: it errs less than a student without a memory."""
    errors = []
    for actor in ({}, {"memory": MemoryCfg(kind="gru", hidden=16)}):
        runner = Trainer(FallEnv(), student_cfg(teacher_run, actor=actor, max_iterations=40))
        errors.append(runner.train()["teacher/error"])
    assert errors[1] < 0.7 * errors[0]

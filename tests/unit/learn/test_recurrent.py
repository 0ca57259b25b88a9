"""Actors and critics with a memory: whole sequences in minibatches, and what is carried from step to step."""

import math
from dataclasses import replace

import pytest
import torch

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.ppo.config import PPOCfg, PPOLearnerCfg
from robot_rl.learn.algorithms.ppo.graphed import GraphedStep
from robot_rl.learn.policy import TrainedPolicy, make_policy
from robot_rl.learn.rollout import Batch
from robot_rl.learn.trainer import Trainer
from robot_rl.settings import MemoryCfg, apply_overrides

KINDS = pytest.mark.parametrize("kind", ["gru", "lstm"])


def remembering(cfg, kind="gru", critic=None, sequence=0, layers=1, hidden=16):
    memory = MemoryCfg(kind=kind, hidden=hidden, sequence=sequence, layers=layers)
    other = replace(memory, kind=kind if critic is None else critic)
    return replace(cfg, actor=replace(cfg.actor, memory=memory), critic=replace(cfg.critic, memory=other))


def collected(env, cfg, rollouts=2):
    """A runner after so many rollouts, the last of them not yet learned from."""
    runner = Trainer(env, cfg)
    runner.train(rollouts - 1)
    runner.collect()
    return runner


@pytest.mark.parametrize("sequence", [0, 4, 2])
@pytest.mark.parametrize(("kind", "critic", "layers"), [("gru", "gru", 1), ("lstm", "none", 2), ("none", "lstm", 1)])
def test_first_minibatch_has_ratio_one(make_point_env, small_cfg, sequence, kind, critic, layers):
    """Episodes of 5 steps end everywhere in rollouts of 8; what was remembered at a sequence's start is known."""
    cfg = replace(small_cfg, ppo=PPOCfg(schedule="fixed", learning_rate=3e-3))
    runner = collected(make_point_env(episode=5), remembering(cfg, kind, critic, sequence, layers))
    algorithm, seen = runner.algorithm, []
    plain = algorithm.loss

    def watched(batch, frozen):
        with torch.no_grad():
            params = algorithm.actor.distribution.params(algorithm.actor.outputs(batch.actor_in, batch.actor_past))
            ratio = (algorithm.actor.distribution.log_prob(batch.action, params) - batch.log_prob).exp()
            seen.append((ratio, algorithm.critic.values(batch.critic_in, batch.critic_past) - batch.value))
        return plain(batch, frozen)

    algorithm.loss = watched
    assert runner.collector.rollout.done[:-1].any()
    algorithm.update(runner.collector.rollout)
    ratio, error = seen[0]
    assert ratio.shape == (8 * 64 // 4,)
    torch.testing.assert_close(ratio, torch.ones_like(ratio), rtol=0.0, atol=1e-5)
    torch.testing.assert_close(error, torch.zeros_like(error), rtol=0.0, atol=1e-5)
    assert float((seen[1][0] - 1.0).abs().max()) > 1e-3
    assert float(seen[1][1].abs().max()) > 1e-3


def test_a_memory_that_is_not_emptied_would_show(make_point_env, small_cfg):
    runner = collected(make_point_env(episode=5), remembering(small_cfg))
    batch = runner.algorithm.make_batch(runner.collector.rollout)
    actor = runner.actor
    with torch.no_grad():
        for start in (torch.zeros_like(batch.start), torch.ones_like(batch.start)):
            params = actor.distribution.params(actor.outputs(batch.actor_in, (batch.actor_state, start)))
            ratio = (actor.distribution.log_prob(batch.action, params) - batch.log_prob).exp()
            assert float((ratio - 1.0).abs().max()) > 1e-3


@pytest.mark.parametrize("sequence", [0, 4])
def test_minibatches_are_whole_sequences(make_point_env, small_cfg, sequence, monkeypatch):
    """Every field of a sample comes from the same step of the same world, and the steps are in order."""
    cfg = remembering(replace(small_cfg, normalize_obs=False), sequence=sequence)
    runner = collected(make_point_env(num_envs=8), cfg)
    rollout, drawn, rows = runner.collector.rollout, [], Batch.rows
    parts = []
    monkeypatch.setattr(
        Batch, "rows", lambda batch, index: (drawn.append(index), parts.append(rows(batch, index)), parts[-1])[2]
    )
    runner.algorithm.update(rollout)
    steps = sequence or 8
    count = 8 // steps * 8
    for epoch in range(5):
        assert torch.equal(torch.cat(drawn[4 * epoch : 4 * epoch + 4]).sort().values, torch.arange(count))
    for index, part in zip(drawn, parts, strict=True):
        for k, unit in enumerate(index.tolist()):
            chunk, world = divmod(unit, 8)
            own = slice(chunk * steps, (chunk + 1) * steps)
            assert torch.equal(part.actor_in.view(steps, -1, 1)[:, k], rollout.actor_obs[own, world])
            assert torch.equal(part.critic_in.view(steps, -1, 2)[:, k], rollout.critic_obs[own, world])
            assert torch.equal(part.action.view(steps, -1, 1)[:, k], rollout.action[own, world])
            assert torch.equal(part.start[:, k], rollout.starts()[own, world])
            assert torch.equal(part.actor_state[k], rollout.actor_state[chunk, world])


@KINDS
def test_a_mirrored_world_gets_mirrored_actions(make_point_env, small_cfg, kind):
    """After training, over sequences with ends; the values are the same."""
    runner = collected(make_point_env(episode=5), remembering(replace(small_cfg, symmetry="network"), kind, sequence=4))
    batch = runner.algorithm.make_batch(runner.collector.rollout)
    actor, critic, fresh = runner.actor, runner.critic, torch.zeros_like(batch.actor_state)
    mirror = make_point_env().mirror
    with torch.no_grad():
        out = actor.outputs(batch.actor_in, (fresh, batch.start))
        torch.testing.assert_close(actor.outputs(-batch.actor_in, (fresh, batch.start)), -out)
        assert float(out.abs().max()) > 1e-2
        values = critic.values(batch.critic_in, (fresh, batch.start))
        image = batch.critic_in[:, mirror["critic"][0]] * mirror["critic"][1]
        torch.testing.assert_close(critic.values(image, (fresh, batch.start)), values)


@KINDS
def test_the_critic_goes_on_where_it_was(make_point_env, small_cfg, kind):
    """Values of two rollouts, one with the state of the other, are those of going step by step through both."""
    cfg = remembering(small_cfg, kind, sequence=4)
    env = make_point_env(num_envs=6, episode=5)
    runner = Trainer(
        env, replace(cfg, ppo=replace(cfg.ppo, learning_rate=1e-30, schedule="fixed"), normalize_obs=False)
    )
    state, found, expected = torch.zeros(6, runner.critic.state_size), [], []
    for _ in range(2):
        runner.collect()
        rollout = runner.collector.rollout
        batch = runner.algorithm.make_batch(rollout)
        found.append(batch.value.view(4, 2, 6).transpose(0, 1).flatten(0, 1))
        with torch.no_grad():
            for t in range(8):
                if t % 4 == 0:
                    torch.testing.assert_close(
                        batch.critic_state.view(2, 6, -1)[t // 4].masked_fill(
                            batch.start.view(4, 2, 6)[0, t // 4, :, None], 0.0
                        ),
                        state,
                    )
                out, state = runner.critic.step(runner.critic.encode(rollout.critic_obs[t]), state)
                expected.append(out.squeeze(-1))
                state = torch.where(rollout.done[t, :, None], 0.0, state)
    torch.testing.assert_close(torch.cat(found), torch.stack(expected))


def test_a_timeout_is_valued_with_what_the_episode_left(make_point_env, small_cfg):
    cfg = remembering(replace(small_cfg, stagger_episodes=False, ppo=PPOCfg(bootstrap="final")), sequence=4)
    runner = Trainer(make_point_env(num_envs=4, episode=6), cfg)
    runner.collect()
    rollout = runner.collector.rollout
    returns = runner.algorithm.make_batch(rollout).returns.view(4, 2, 4)[1, 1]
    assert rollout.time_out[5].all()
    state = torch.zeros(4, runner.critic.state_size)
    with torch.no_grad():
        for t in range(6):
            _, state = runner.critic.step(runner.critic.encode(rollout.critic_obs[t]), state)
        final = runner.critic.value(rollout.final_obs[5], state)
        fresh = runner.critic.value(rollout.final_obs[5], torch.zeros_like(state))
    torch.testing.assert_close(returns, rollout.reward[5] + 0.99 * final)
    assert float((final - fresh).abs().max()) > 1e-3


@pytest.mark.parametrize("sequence", [0, 2])
def test_several_critics_remember(make_point_env, small_cfg, sequence):
    """Each has its own value of what they remember together, at a time-out, too."""
    env = make_point_env(episode=5)
    env.reward_groups, step = ("near", "nothing"), env.step

    def in_groups(actions):
        obs, reward, done, extras = step(actions)
        return obs, reward, done, {**extras, "rewards": torch.stack((reward, torch.zeros(64)), dim=1)}

    env.step = in_groups
    runner = collected(env, remembering(replace(small_cfg, several_critics=True), sequence=sequence))
    batch = runner.algorithm.make_batch(runner.collector.rollout)
    assert batch.value.shape == batch.returns.shape == (8 * 64, 2)
    with torch.no_grad():
        torch.testing.assert_close(runner.critic.values(batch.critic_in, batch.critic_past), batch.value)
    assert math.isfinite(runner.train(3)["loss/value"])


@pytest.mark.parametrize("rubbish", [math.nan, 1e6])
def test_training_is_the_same_whatever_a_quarantined_world_leaves(make_point_env, small_cfg, rubbish):
    """Its observation, reward and last observation are masked, and nothing is remembered of it."""

    def train(left_behind):
        env = make_point_env()
        step, count = env.step, []

        def sick(actions):
            obs, reward, done, extras = step(actions)
            count.append(None)
            bad = torch.arange(64) == 7 * len(count) % 64
            final = obs.clone()
            for tensor in final.values():
                tensor[bad] = left_behind
            return obs, torch.where(bad, left_behind, reward), done, {**extras, "valid": ~bad, "final_obs": final}

        env.step = sick
        runner = Trainer(env, remembering(small_cfg, sequence=4))
        runner.train(3)
        return [
            *runner.actor.state_dict().values(),
            *runner.critic.state_dict().values(),
            *runner.collector.worlds().values(),
        ]

    masked, spoilt = train(0.0), train(rubbish)
    assert all(bool(tensor.isfinite().all()) for tensor in spoilt)
    assert all(torch.equal(one, other) for one, other in zip(masked, spoilt, strict=True))


def test_a_world_that_cannot_be_seen_spoils_nothing_later(make_point_env, small_cfg):
    env = make_point_env()
    step, count = env.step, []

    def sick(actions):
        obs, reward, done, extras = step(actions.nan_to_num(0.0))
        count.append(None)
        bad = (torch.arange(64) == 5) & (len(count) % 8 < 3)
        obs["actor"][bad], obs["critic"][bad] = math.nan, math.nan
        # The observation that is not a number is the one that the next step's action is drawn at.
        return obs, reward, done, {**extras, "valid": ~(bad | ((torch.arange(64) == 5) & (len(count) % 8 == 3)))}

    env.step = sick
    runner = Trainer(env, remembering(small_cfg))
    assert math.isfinite(runner.train(3)["loss/value"])
    assert all(
        bool(tensor.isfinite().all()) for tensor in (*runner.actor.parameters(), *runner.collector.worlds().values())
    )


@KINDS
def test_same_seed_same_bits(make_point_env, small_cfg, kind):
    weights = []
    for seed in (3, 3, 4):
        torch.rand(1)  # The global stream must not matter.
        runner = Trainer(make_point_env(), remembering(small_cfg, kind, sequence=4), seed=seed)
        runner.train()
        weights.append(
            torch.cat([p.detach().flatten() for p in (*runner.actor.parameters(), *runner.critic.parameters())])
        )
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@KINDS
def test_a_resumed_learner_goes_on_to_the_bit(make_point_env, small_cfg, tmp_path, kind):
    cfg = remembering(small_cfg, kind, sequence=4)
    env = make_point_env()
    whole = Trainer(env, cfg, run_dir=tmp_path)
    whole.train(2)
    other = make_point_env()
    other.pos, other.episode_length_buf = env.pos.clone(), env.episode_length_buf.clone()
    other.generator.set_state(env.generator.get_state())
    resumed = Trainer(other, cfg, seed=5)
    resumed.load(whole.checkpoint)
    assert float(resumed.collector.memory.abs().max()) > 0.0
    whole.train(3)
    resumed.train(3)
    for a, b in zip(
        (*whole.actor.parameters(), *whole.critic.parameters(), *whole.collector.worlds().values()),
        (*resumed.actor.parameters(), *resumed.critic.parameters(), *resumed.collector.worlds().values()),
        strict=True,
    ):
        assert torch.equal(a, b)


def test_worlds_that_begin_again_remember_nothing(make_point_env, small_cfg, tmp_path):
    """Resuming brings back the memories; fresh worlds, and another number of them, have no use for those."""
    cfg = remembering(small_cfg)
    first = Trainer(make_point_env(), cfg, run_dir=tmp_path)
    first.train(2)
    for num_envs in (64, 32):
        second = Trainer(make_point_env(num_envs=num_envs), cfg)
        second.load(first.checkpoint, allow_resize=True)
        second.collector.start(second.worlds(), is_first=False)
        assert all(float(tensor.abs().max()) == 0.0 for tensor in second.collector.worlds().values())
        assert math.isfinite(second.train(3)["loss/value"])


def test_recorded_steps_of_sequences_are_the_steps(make_point_env, small_cfg):
    """A replayed CUDA graph reads sequences, their starts and states from their own memory."""

    class Replaying:
        def run(self, work):
            work()

        def record(self, work):
            return work

    runners = [Trainer(make_point_env(episode=5), remembering(small_cfg, sequence=4)) for _ in range(2)]
    runners[0].algorithm.graphed = GraphedStep(runners[0].algorithm, Replaying())
    for runner in runners:
        runner.train(3)
    assert len(runners[0].algorithm.graphed._recordings) == 1
    for a, b in zip(runners[0].networks().values(), runners[1].networks().values(), strict=True):
        assert torch.equal(a, b)


def test_the_policy_of_a_run_remembers(make_point_env, small_cfg, tmp_path):
    runner = Trainer(make_point_env(), remembering(small_cfg, "lstm"), run_dir=tmp_path)
    runner.train(2)
    policy, state = make_policy(tmp_path), torch.zeros(64, runner.actor.state_size)
    obs = [make_point_env(seed=seed).get_observations() for seed in range(4)]
    done = torch.arange(64) < 20
    with torch.no_grad():
        for k, now in enumerate(obs):
            expected = runner.actor.mean(now["actor"], state)
            torch.testing.assert_close(policy(now), expected)
            if k == 1:
                policy.reset(done)
                state[done] = 0.0
        policy.reset()
        first = policy(obs[0])
        torch.testing.assert_close(first, runner.actor.mean(obs[0]["actor"], torch.zeros_like(state)))
        assert policy(make_point_env(num_envs=3).get_observations()).shape == (3, 1)


def test_a_policy_without_a_memory_has_nothing_to_forget(make_point_env, small_cfg, tmp_path):
    Trainer(make_point_env(), small_cfg, run_dir=tmp_path).train(1)
    policy = make_policy(tmp_path)
    obs = make_point_env().get_observations()
    before = policy(obs)
    policy.reset(torch.ones(64, dtype=torch.bool))
    policy.reset()
    assert isinstance(policy, TrainedPolicy)
    assert torch.equal(policy(obs), before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"actor.memory.kind": "gru", "actor.memory.sequence": 32},
            r"^actor\.memory\.sequence: 32 is longer than the rollout of num_steps=24$",
        ),
        (
            {"critic.memory.kind": "lstm", "critic.memory.sequence": 10},
            r"^critic\.memory\.sequence: 10 does not divide the rollout of num_steps=24, 8 does$",
        ),
        (
            {"actor.memory.kind": "gru", "critic.memory.kind": "gru", "actor.memory.sequence": 8},
            r"^critic\.memory\.sequence: 24 steps, must be the actor's 8$",
        ),
        (
            {"actor.memory.kind": "gru", "symmetry": "augment"},
            r"^actor\.memory\.kind: 'gru' remembers no mirror images; use symmetry=network instead of augment$",
        ),
        ({"actor.memory.kind": "rnn"}, r"actor\.memory\.kind=rnn: must be one of"),
    ],
)
def test_memories_that_cannot_be(change, message):
    with pytest.raises(UserError, match=message):
        apply_overrides(PPOLearnerCfg(), change)


def test_a_sequence_without_a_memory_does_not_matter():
    cfg = apply_overrides(PPOLearnerCfg(), {"actor.memory.sequence": 32, "critic.memory.sequence": 5})
    assert cfg.sequence == 24
    assert apply_overrides(PPOLearnerCfg(), {"critic.memory.kind": "gru", "critic.memory.sequence": 6}).sequence == 6


def test_more_minibatches_than_sequences(make_point_env, small_cfg):
    runner = Trainer(make_point_env(num_envs=3), remembering(small_cfg))
    with pytest.raises(UserError, match=r"^ppo\.minibatches: 4 is more than the 3 sequences of 8 steps$"):
        runner.train(1)


@pytest.mark.parametrize("there", [True, False])
def test_another_architecture_is_refused(make_point_env, small_cfg, tmp_path, there):
    """A memory of as many units as the observation has components leaves the perceptron's shapes as they were."""
    cfgs = [small_cfg, remembering(small_cfg, critic="none", hidden=1)]
    first = Trainer(make_point_env(), cfgs[there], run_dir=tmp_path)
    first.train(1)
    second = Trainer(make_point_env(), cfgs[not there])
    has, needs = r"has 'actor.memory.cells.0.\w+' \(", r"has no 'actor.memory.cells.0.weight_x' \(3, 1\)"
    with pytest.raises(UserError, match=f"{has if there else needs}.*of another architecture"):
        second.load(first.checkpoint)


def test_a_memory_of_another_size_is_refused_with_both_shapes(make_point_env, small_cfg, tmp_path):
    first = Trainer(make_point_env(), remembering(small_cfg), run_dir=tmp_path)
    first.train(1)
    second = Trainer(make_point_env(), remembering(small_cfg, hidden=8))
    with pytest.raises(UserError, match=r"'actor.memory.cells.0.weight_x' has shape \(48, 1\), must be \(24, 1\)"):
        second.load(first.checkpoint)

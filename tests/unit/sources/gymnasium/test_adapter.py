"""The adapter from a vector environment: what the learner is given is what single worlds did, whatever the autoreset.

The usual mistakes are to take the next episode's first observation for the last one of this, to learn from the step in
which a world was reset, and to go on in value behind a termination.
"""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.ppo.config import PPOCfg, PPOLearnerCfg
from robot_rl.learn.trainer import Trainer
from robot_rl.settings import NetworkCfg
from robot_rl.sources.gymnasium.adapter import GymEnv

MODES = ["NextStep", "SameStep", "Disabled"]
WAYS = [*(("sync", mode) for mode in MODES), ("own", "NextStep")]


def by_hand(walk, count):
    """The first transitions of a world: (observation, reward, next observation, terminated, cut short)."""
    rows, obs = [], walk.reset()[0]
    while len(rows) < count:
        after, reward, terminated, truncated, _ = walk.step(np.zeros(2, np.float32))
        rows.append((obs[0], reward, after[0], terminated, truncated))
        obs = walk.reset()[0] if terminated or truncated else after
    return rows


def through(env, steps):
    """The transitions of each world that may be learned from, as the adapter returns them."""
    worlds = [[] for _ in range(env.num_envs)]
    obs = env.get_observations()["critic"].clone()
    for _ in range(steps):
        after, reward, done, extras = env.step(torch.zeros(env.num_envs, env.num_actions))
        valid = extras.get("valid", torch.ones_like(done))
        last = torch.where(done[:, None], extras["final_obs"]["critic"], after["critic"])
        for k in range(env.num_envs):
            if valid[k]:
                ended, cut = bool(done[k]), bool(extras["time_outs"][k])
                worlds[k].append((obs[k].item(), reward[k].item(), last[k].item(), ended and not cut, cut))
        obs = after["critic"].clone()
    return worlds


@pytest.mark.parametrize(("kind", "mode"), WAYS)
def test_every_transition_is_that_of_a_single_world(walks, walk_class, kind, mode):
    env = walks(mode, kind=kind)
    for k, rows in enumerate(through(env, 40)):
        assert rows == by_hand(walk_class(first=k), len(rows))
        # Nothing is left out but the steps that were resets, one after each end of an episode.
        resets = sum(row[3] or row[4] for row in rows) if mode == "NextStep" else 0
        assert 40 <= len(rows) + resets <= 41


def test_processes_give_the_same_transitions(walks, walk_class):
    env = walks("SameStep", kind="async", num_envs=2)
    for k, rows in enumerate(through(env, 12)):
        assert rows == by_hand(walk_class(first=k), 12)


def small_cfg(**changes):
    network = NetworkCfg(hidden=(8,))
    return PPOLearnerCfg(
        num_steps=12, actor=network, critic=network, ppo=PPOCfg(minibatches=2), stagger_episodes=False, **changes
    )


@pytest.mark.parametrize(("kind", "mode"), WAYS)
def test_what_is_learned_at_the_end_of_an_episode(walks, kind, mode):
    """The return at a time-out is reward + gamma V(last observation), at a termination the reward; resets weigh 0."""
    env = walks(mode, kind=kind)
    runner = Trainer(env, small_cfg(normalize_obs=False))
    gamma, ends = runner.cfg.ppo.gamma, 0
    for _ in range(3):  # The second and third rollout begin wherever the first one stopped, on a reset step, too.
        runner.collect()
        rollout = runner.collector.rollout
        batch = runner.algorithm.make_batch(rollout)
        returns = batch.returns.view(rollout.done.shape)
        weight = torch.ones_like(returns) if batch.weight is None else batch.weight.view(rollout.done.shape)
        rewards = rollout.critic_obs[:-1, :, 0] % 100 + 1  # The step's number, by the observation before it.
        for t, k in rollout.done.nonzero().tolist():
            if weight[t, k] == 0:
                continue
            ends += 1
            after = rollout.critic_obs[t, k, 0] + 1
            expected = rewards[t, k]
            if rollout.time_out[t, k]:
                with torch.no_grad():
                    expected = expected + gamma * runner.critic.value(after.view(1, 1))[0]
            torch.testing.assert_close(returns[t, k], expected)
        assert (weight == 0).sum() == (~rollout.valid).sum() if mode == "NextStep" else (weight > 0).all()
    assert ends >= 15


def test_a_termination_counts_more_than_a_time_limit(walk_class):
    class Both(walk_class):
        def step(self, action):
            obs, reward, *_ = super().step(action)
            return obs, reward, True, True, {}

    env = GymEnv(gymnasium.vector.SyncVectorEnv([Both], autoreset_mode="SameStep"))
    _, _, done, extras = env.step(torch.zeros(1, 2))
    assert done.all()
    assert not extras["time_outs"].any()


def test_observations_are_copies(walks):
    env = walks("NextStep", kind="own")  # Its vector environment hands out one buffer again and again.
    first = env.get_observations()["actor"]
    before = first.clone()
    env.step(torch.zeros(3, 2))
    assert torch.equal(first, before)


def test_a_batch_of_last_observations_is_taken_too(walks):
    class Batched(gymnasium.vector.VectorWrapper):
        def step(self, actions):
            obs, reward, terminated, truncated, info = self.env.step(actions)
            if "final_obs" in info:
                info["final_obs"] = np.stack(
                    [row if last is None else last for row, last in zip(obs, info["final_obs"], strict=True)]
                )
            return obs, reward, terminated, truncated, info

    listed, batched = walks("SameStep"), walks("SameStep")
    batched.env = Batched(batched.env)
    assert through(listed, 20) == through(batched, 20)


def test_metrics_of_episodes(walks):
    for mode in MODES:
        env = walks(mode)
        ended = []
        for _ in range(30):
            _, _, done, extras = env.step(torch.zeros(3, 2))
            ended += [bool(cut) for cut in extras["time_outs"][done & extras.get("valid", torch.ones_like(done))]]
        metrics = env.pop_metrics()
        assert metrics["episodes"] == len(ended)
        assert metrics["termination/time_limit"] == pytest.approx(np.mean(ended))
        assert metrics["episode/length_s"] == pytest.approx(metrics["episode/steps"] / 50)
        assert 3 <= metrics["episode/steps"] <= 5
        assert env.pop_metrics() == {"episodes": 0.0}
    # The first episodes: of world 0 number 0 with 3 steps, of world 1 number 1 with 4 steps.
    env = walks("NextStep", num_envs=2)
    for _ in range(4):
        env.step(torch.zeros(2, 2))
    metrics = env.pop_metrics()
    assert metrics["episode/return"] == (1 + 2 + 3 + 1 + 2 + 3 + 4) / 2
    assert metrics["episode/steps"] == 3.5


def test_the_same_seed_gives_the_same_bits():
    def returns(seed):
        env = GymEnv(gymnasium.make_vec("Pendulum-v1", 3, vectorization_mode="sync"), seed=seed)
        runner = Trainer(env, small_cfg(), seed=seed)
        runner.train(2)
        return torch.cat([p.flatten() for p in runner.actor.state_dict().values()])

    assert torch.equal(returns(3), returns(3))
    assert not torch.equal(returns(3), returns(4))


def test_wrappers_of_gymnasium_go_between():
    vector = gymnasium.make_vec(
        "Pendulum-v1", 2, vectorization_mode="sync", vector_kwargs={"autoreset_mode": "SameStep"}
    )
    env = GymEnv(gymnasium.wrappers.vector.RecordEpisodeStatistics(vector), seed=1)
    assert (env.autoreset, env.max_episode_length) == (AutoresetMode.SAME_STEP, 200)
    for _ in range(200):
        _, _, done, extras = env.step(torch.zeros(2, 1))
    assert done.all()
    assert extras["time_outs"].all()
    assert env.env.episode_count == 2


def test_an_environment_without_a_reset_description_is_refused(walk_vector_class):
    with pytest.raises(UserError, match=r"autoreset_mode.*=None.*give autoreset= one of next_step, same_step"):
        GymEnv(walk_vector_class(2, metadata={}))
    assert GymEnv(walk_vector_class(2, metadata={}), autoreset="next_step").autoreset is AutoresetMode.NEXT_STEP
    with pytest.raises(UserError, match="autoreset=soon: must be one of"):
        GymEnv(walk_vector_class(2), autoreset="soon")


def test_a_time_limit_without_a_last_observation_is_refused(walks):
    class Forgetful(gymnasium.vector.VectorWrapper):
        def step(self, actions):
            *rest, _ = self.env.step(actions)
            return *rest, {}

    env = walks("SameStep", num_envs=1)
    env.env = Forgetful(env.env)
    env.step(torch.zeros(1, 2))
    env.step(torch.zeros(1, 2))
    with pytest.raises(UserError, match=r"world 0 was truncated and info\['final_obs'\] does not hold"):
        env.step(torch.zeros(1, 2))


def test_the_clock_of_episodes_may_be_written_to(walks):
    """A learner that staggers episodes may ask for it; Gymnasium's time limits have clocks of their own."""
    env = walks("SameStep")
    env.step(torch.zeros(3, 2))
    assert env.episode_length_buf.tolist() == [1, 1, 1]
    env.episode_length_buf = torch.tensor([9, 9, 9])
    env.episode_length_buf.copy_(torch.tensor([9, 9, 9]))
    assert env.episode_length_buf.tolist() == [1, 1, 1]


@pytest.mark.parametrize("kind", ["sync", "own"])
def test_what_follows_a_reset_step_belongs_to_another_episode(walks, kind):
    """A policy with a memory has to forget the last observation, which it is shown once more in that step."""
    env = walks("NextStep", kind=kind, num_envs=1)
    flags = []
    for _ in range(5):
        _, reward, done, extras = env.step(torch.zeros(1, 2))
        flags.append((reward.item(), done.item(), extras["time_outs"].item(), extras["valid"].item()))
    assert flags == [
        (1.0, False, False, True),
        (2.0, False, False, True),
        (3.0, True, True, True),
        (0.0, True, False, False),
        (1.0, False, False, True),
    ]

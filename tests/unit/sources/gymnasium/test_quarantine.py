"""Worlds with numbers that are not finite: they are named, nothing is learned from them, and the others go on."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from robot_rl.errors import NotRetryableError, UserError
from robot_rl.evaluation.rollout import evaluate_episodes
from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.learn.trainer import Trainer
from robot_rl.sources.gymnasium.adapter import GymEnv

SPACE = spaces.Dict({"pos": spaces.Box(-9, 9, (1,), np.float64), "vel": spaces.Box(-9, 9, (2,), np.float32)})
LENGTH = 5


class Counter(gymnasium.Env):
    """Its position is the step of an episode of 5 steps; `part` is `bad` in step `at` of the first episode."""

    observation_space, action_space = SPACE, spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, part="", at=0, bad=np.nan, always=False):
        self.part, self.at, self.bad, self.always, self.episode = part, at, bad, always, 0

    def is_bad(self, part):
        return self.part == part and self.steps == self.at and (self.always or self.episode == 1)

    def look(self):
        pos = self.bad if self.is_bad("pos") else float(self.steps)
        return {"pos": np.array([pos]), "vel": np.ones(2, np.float32)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.episode = 0, self.episode + 1
        return self.look(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        reward = self.bad if self.is_bad("reward") else 1.0
        return self.look(), reward, False, self.steps == LENGTH, {}


class CounterVector(VectorEnv):
    """The same worlds as a vector environment of its own, which resets no single world."""

    def __init__(self, worlds):
        self.worlds, self.num_envs = worlds, len(worlds)
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space, self.single_action_space = SPACE, Counter.action_space
        self.action_space = batch_space(Counter.action_space, self.num_envs)

    def reset(self, *, seed=None, options=None):
        assert not options
        self.over = [False] * self.num_envs
        return self.batch([world.reset()[0] for world in self.worlds]), {}

    def batch(self, rows):
        return {key: np.stack([row[key] for row in rows]) for key in SPACE}

    def step(self, actions):
        pairs = zip(self.worlds, actions, self.over, strict=True)
        rows = [(w.reset()[0], 0.0, False, False) if over else w.step(a)[:4] for w, a, over in pairs]
        obs, reward, terminated, truncated = zip(*rows, strict=True)
        self.over = list(truncated)
        return self.batch(obs), np.array(reward), np.array(terminated), np.array(truncated), {}


def make(mode, kind="sync", **broken):
    """Three worlds behind the adapter, of which world 1 breaks."""
    if kind == "own":
        return GymEnv(CounterVector([Counter(), Counter(**broken), Counter()]))
    vector = {"sync": gymnasium.vector.SyncVectorEnv, "async": gymnasium.vector.AsyncVectorEnv}[kind]
    return GymEnv(vector([Counter, lambda: Counter(**broken), Counter], autoreset_mode=mode))


def walk(env, steps):
    """The steps as rows of (valid, done, reward, position) of world 1; the others are as if it were not there."""
    rows = []
    for _ in range(steps):
        obs, reward, done, extras = env.step(torch.zeros(3, 1))
        valid = extras.get("valid", torch.ones(3, dtype=torch.bool))
        assert all(group.isfinite().all() for group in (*obs.values(), *extras["final_obs"].values(), reward))
        assert obs["pos"][0] == obs["pos"][2]
        assert (valid[0], done[0], reward[0]) == (valid[2], done[2], reward[2])
        assert not (extras["time_outs"] & ~valid).any()
        rows.append((valid[1].item(), done[1].item(), reward[1].item(), obs["pos"][1].item()))
    return rows


@pytest.mark.parametrize(("mode", "kind"), [("SameStep", "sync"), ("NextStep", "sync"), ("Disabled", "sync")])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e39])
@pytest.mark.parametrize("part", ["pos", "reward"])
def test_a_world_that_breaks_is_reset(mode, kind, bad, part):
    env = make(mode, kind, part=part, at=3, bad=bad)
    assert walk(env, 4) == [(True, False, 1, 1), (True, False, 1, 2), (False, True, 0, 0), (True, False, 1, 1)]
    words = {"pos": "observation 'pos'", "reward": "the reward"}[part]
    (line,) = env.pop_notices()
    assert line.startswith("quarantined world 1 of ")
    assert line.endswith(f": {words} is not finite in float32")
    metrics = env.pop_metrics()
    assert (metrics["quarantined"], metrics["episodes"]) == (1, 0)
    assert metrics[f"quarantined/{'observation' if part == 'pos' else part}"] == 1
    walk(env, 12)
    metrics = env.pop_metrics()
    assert (metrics["episode/return"], metrics["episode/steps"], "quarantined" in metrics) == (LENGTH, LENGTH, False)
    assert env.pop_notices() == []


@pytest.mark.long
def test_worlds_in_processes_are_reset_one_by_one():
    env = make("SameStep", "async", part="pos", at=3)
    assert walk(env, 4)[2:] == [(False, True, 0, 0), (True, False, 1, 1)]
    env.close()


def test_a_world_that_cannot_be_reset_waits_for_its_next_episode():
    env = make("", "own", part="pos", at=3)
    assert walk(env, 7)[1:] == [(True, False, 1, 2), *[(False, True, 0, 0)] * 4, (True, False, 1, 1)]
    assert env.pop_metrics()["quarantined"] == 3  # The step that reset the world is no sample.


@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
def test_the_last_observation_counts(mode):
    env = make(mode, part="pos", at=LENGTH)
    rows = walk(env, 2 * LENGTH)
    assert rows[LENGTH - 1] == (False, True, 0, 0)
    assert [row[0] for row in rows] == [k not in ((4, 5) if mode == "NextStep" else (4,)) for k in range(10)]
    assert env.pop_metrics()["quarantined/observation"] == 1


@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
def test_an_episode_that_begins_broken_is_none(mode):
    env = make(mode, part="pos", at=0)
    assert env.get_observations()["pos"].tolist() == [[0.0]] * 3
    assert [row[:2] for row in walk(env, 2)] == [(False, True), (True, False)]
    env.reset()
    assert walk(env, 1)[0][0]


def test_an_action_that_is_not_finite_does_not_reach_the_world():
    for space in (Counter.action_space, spaces.Discrete(3)):
        env = make("SameStep")
        env._actions = type(env._actions)(space)
        env.env.action_space = batch_space(space, 3)
        for world in env.env.envs:
            world.action_space = space
        _, reward, done, extras = env.step(torch.tensor([[0.0], [torch.nan], [1.0]]))
        assert extras["valid"].tolist() == [True, False, True]
        assert (reward.tolist(), done.tolist()) == ([1.0, 0.0, 1.0], [False, True, False])
        assert env.pop_metrics()["quarantined/action"] == 1


def learner(**changes):
    return PPOLearnerCfg(num_steps=8, stagger_episodes=False, actor_groups=("pos",), critic_groups=("pos",), **changes)


@pytest.mark.parametrize("at", [3, LENGTH])
def test_a_training_goes_on_without_them(at):
    runner = Trainer(make("SameStep", part="pos", at=at, always=True), learner(), seed=1)
    row = runner.train(2)
    assert row["quarantined/observation"] >= 1
    assert all(value.isfinite().all() for value in runner.actor.state_dict().values())


def test_a_training_in_which_nearly_all_break_is_given_up():
    worlds = [lambda: Counter(part="reward", at=1, always=True)] * 3
    env = GymEnv(gymnasium.vector.SyncVectorEnv(worlds, autoreset_mode="SameStep"))
    with pytest.raises(NotRetryableError, match=r"max_quarantined=0\.5: 48 of 48 samples .* most for 'reward'"):
        Trainer(env, learner(), seed=1).train(2)


def test_an_evaluation_counts_whole_episodes_only(capsys):
    env = make("SameStep", part="reward", at=3)
    result = evaluate_episodes(env, lambda obs: torch.zeros(3, 1), 6, LENGTH)
    assert (result["episodes"], result["torch"]["return"]["mean"]) == (5, LENGTH)
    assert "quarantined world 1 of " in capsys.readouterr().err
    worlds = [lambda: Counter(part="reward", at=1, always=True)]
    env = GymEnv(gymnasium.vector.SyncVectorEnv(worlds, autoreset_mode="SameStep"))
    with pytest.raises(UserError, match="steps=5: no episode ended within them; quarantined world 0 of .*reward"):
        evaluate_episodes(env, lambda obs: torch.zeros(1, 1), 2, LENGTH)

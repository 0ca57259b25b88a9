"""Rows of a `DirectMARLEnv`: agents in order, each with its own ends, the state before a reset, worlds that break."""

import math
from types import SimpleNamespace

import gymnasium
import pytest
import torch

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.mappo.config import MAPPOLearnerCfg
from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.settings import apply_overrides
from robot_rl.sources.isaaclab.agent import team_changes
from robot_rl.sources.isaaclab.source import IsaacLabSource
from robot_rl.sources.isaaclab.task import IsaacTask, agents_of
from robot_rl.sources.isaaclab.team import IsaacTeamEnv

SEEN, DRIVEN = {"left": 3, "right": 2}, {"left": 2, "right": 1}


class Pair:
    """Two agents that count: both see their world's step and its index, and 10 is the last step.

    It steps, ends and resets as Isaac Lab's `DirectMARLEnv`.
    """

    def __init__(self, num_envs=3, states=-1, actions=None, spaces=None):
        self.num_envs, self.device, self.common_step_counter = num_envs, "cpu", 0
        self.possible_agents = list(SEEN)
        self.observation_spaces = spaces or {k: gymnasium.spaces.Box(-1, 1, (n,)) for k, n in SEEN.items()}
        self.action_spaces = actions or {k: gymnasium.spaces.Box(-1, 1, (n,)) for k, n in DRIVEN.items()}
        self.cfg = SimpleNamespace(state_space=states)
        self.max_episode_length, self.step_dt = 10, 0.5
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.long)
        self.reset_buf = torch.zeros(num_envs, dtype=torch.bool)
        self.extras = {agent: {} for agent in SEEN}
        self.falls, self.breaks, self.absent, self.reset_worlds = {}, {}, (), []

    def _observe(self):
        found = {}
        for agent, size in SEEN.items():
            if agent not in self.absent:
                found[agent] = torch.stack([self.episode_length_buf, torch.arange(self.num_envs)], 1).float()
                found[agent] = torch.nn.functional.pad(found[agent], (0, size - 2), value=7.0)
        for (agent, world), step in self.breaks.items():
            if self.episode_length_buf[world] == step:
                found[agent][world, 1] = torch.nan
        return found

    def _get_states(self):
        return torch.stack([10 * self.episode_length_buf, torch.arange(self.num_envs)], 1).float()

    def state(self):
        if self.cfg.state_space < 0:
            return torch.cat([self.seen[agent] for agent in self.possible_agents], dim=-1)
        return self._get_states()

    def reset(self, seed=None):
        self.episode_length_buf[:] = 0
        self.seen = self._observe()
        return self.seen, self.extras

    def _reset_idx(self, which):
        self.reset_worlds += which.tolist()
        self.episode_length_buf[which.long()] = 0

    def step(self, actions):
        self.given = {agent: action.clone() for agent, action in actions.items()}
        self.episode_length_buf += 1
        self.common_step_counter += 1
        late = self.episode_length_buf >= self.max_episode_length
        ended = {k: torch.zeros(self.num_envs, dtype=torch.bool) for k in SEEN}
        for (agent, world), step in self.falls.items():
            ended[agent][world] = self.episode_length_buf[world] >= step
        cut = dict.fromkeys(SEEN, late)
        self.reset_buf[:] = math.prod(ended.values()) | math.prod(cut.values())
        reward = {"left": torch.full((self.num_envs,), 1.0), "right": torch.full((self.num_envs,), 2.0)}
        over = self.reset_buf.nonzero().squeeze(-1)
        if len(over):
            for agent, value in self._observe().items():
                self.extras[agent]["final_obs"] = value
            self._reset_idx(over)
            self.extras.setdefault("log", {})["Metrics/success"] = torch.tensor(0.5)
            self.extras["left"]["log"] = {"grip": torch.tensor(3.0)}
        self.seen = self._observe()
        return self.seen, reward, ended, cut, self.extras


def walk(env, steps, action=None):
    for _ in range(steps):
        returned = env.step(torch.zeros(env.num_envs, env.num_actions) if action is None else action)
    return returned


def test_rows_are_the_agents_of_each_world_filled_up():
    lab = Pair()
    env = IsaacTeamEnv(lab, name="isaac/X", action_clip=2.0)
    assert (env.agents, env.num_worlds, env.team_size, env.num_envs) == (("left", "right"), 3, 2, 6)
    assert (env.num_actions, env.roles) == (2, ("3x2", "2x1"))
    assert env.role_sizes == {"3x2": (3, 2), "2x1": (2, 1)}
    action = torch.arange(12.0).view(6, 2) / 4
    obs, reward, done, extras = env.step(action)
    assert obs["policy"].tolist() == [[1, 0, 7], [1, 0, 0], [1, 1, 7], [1, 1, 0], [1, 2, 7], [1, 2, 0]]
    assert obs["state"].tolist() == [[1, w, 7, 1, w] for w in (0, 0, 1, 1, 2, 2)]
    assert reward.tolist() == [1, 2, 1, 2, 1, 2]
    assert lab.given["left"].tolist() == [[0.0, 0.25], [1.0, 1.25], [2.0, 2.0]]
    assert lab.given["right"].tolist() == [[0.5], [1.5], [2.0]]
    assert not done.any()
    assert extras["valid"].all()
    assert env.episode_length_buf.tolist() == [1] * 6
    env.episode_length_buf = torch.tensor([8, 8, 0, 0, 9, 9])
    assert walk(env, 1)[2].tolist() == [False] * 4 + [True] * 2


@pytest.mark.parametrize("states", [-1, 2, 0])
def test_an_episode_ends_for_all_with_the_last_observation_and_state(states):
    lab = Pair(num_envs=2, states=states)
    env = IsaacTeamEnv(lab, name="isaac/X")
    lab.falls = {("left", 1): 4, ("right", 1): 4}
    obs, _, done, extras = walk(env, 4)
    assert done.tolist() == [False, False, True, True]
    assert not extras["time_outs"].any()
    assert extras["final_obs"]["policy"][:, 0].tolist() == [4.0] * 4
    assert obs["policy"][:, 0].tolist() == [4.0, 4.0, 0.0, 0.0]
    if states:
        first = 4.0 if states < 0 else 40.0
        assert extras["final_obs"]["state"][:, 0].tolist() == [first] * 4
        assert obs["state"][:, 0].tolist() == [first, first, 0.0, 0.0]
    else:
        assert "state" not in obs.keys()  # noqa: SIM118  (a TensorDict)
    assert extras["log"] == {"Metrics/success": torch.tensor(0.5), "left/grip": torch.tensor(3.0)}
    # Nothing of the last end is reported again.
    lab.falls = {}
    assert walk(env, 1)[3]["log"] == {}
    _, _, done, extras = walk(env, 5)
    assert done.tolist() == extras["time_outs"].tolist() == extras["ended"].tolist() == [True, True, False, False]


def test_an_agent_that_ends_before_the_others_takes_no_part_until_all_end():
    lab = Pair(num_envs=1)
    env = IsaacTeamEnv(lab, name="isaac/X")
    lab.falls = {("right", 0): 3}
    obs, reward, done, extras = walk(env, 3)
    assert done.tolist() == [False, True]
    assert extras["ended"].tolist() == extras["time_outs"].tolist() == [False, False]
    assert reward.tolist() == [1.0, 2.0]
    assert extras["final_obs"]["policy"][1].tolist() == [3.0, 0.0, 0.0]
    assert obs["policy"].tolist() == [[3.0, 0.0, 7.0], [0.0, 0.0, 0.0]]
    obs, reward, done, extras = walk(env, 1)
    assert (extras["valid"].tolist(), reward.tolist(), done.any().item()) == ([True, False], [1.0, 0.0], False)
    _, _, done, extras = walk(env, 6)
    assert (done.tolist(), extras["time_outs"].tolist()) == ([True, False], [True, False])
    assert walk(env, 1)[3]["valid"].all()


def test_an_agent_without_an_observation_takes_no_part():
    lab = Pair(num_envs=2, states=0)
    env = IsaacTeamEnv(lab, name="isaac/X")
    lab.absent = ("right",)
    obs = walk(env, 1)[0]
    assert not obs["policy"].view(2, 2, 3)[:, 1].any()
    assert walk(env, 1)[3]["valid"].tolist() == [True, False, True, False]


def test_a_world_that_breaks_ends_for_all_its_agents():
    lab = Pair()
    lab.breaks = {("right", 2): 3}
    env = IsaacTeamEnv(lab, name="isaac/X")
    obs, reward, done, extras = walk(env, 3)
    assert done.tolist() == extras["ended"].tolist() == [False] * 4 + [True] * 2
    assert not extras["time_outs"].any()
    assert lab.reset_worlds == [2]
    assert int(extras["log"]["worlds/broken"]) == 1
    for found in (obs, extras["final_obs"]):
        assert all(torch.isfinite(found[name]).all() for name in ("policy", "state"))
    assert reward.tolist() == [1, 2, 1, 2, 0, 0]
    assert not walk(env, 1)[2].any()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"actions": dict.fromkeys(SEEN, gymnasium.spaces.Discrete(2))}, "the actions of agent left are choices"),
        ({"actions": dict.fromkeys(SEEN, gymnasium.spaces.Dict())}, "its actions are a Dict; numbers"),
        ({"spaces": dict.fromkeys(SEEN, gymnasium.spaces.Discrete(2))}, "agent left observes a Discrete; numbers"),
    ],
)
def test_agents_that_cannot_be_learned_are_refused(options, line):
    with pytest.raises(UserError, match=f"task=isaac/X: {line}"):
        IsaacTeamEnv(Pair(**options), name="isaac/X")


def test_a_learner_of_one_agent_is_refused_by_their_names():
    env, source, task = IsaacTeamEnv(Pair(), name="isaac/X"), IsaacLabSource(), IsaacTask(name="isaac/X")
    line = "learner=ppo: trains 1 agent, task=isaac/X has 2: left, right; use learner=mappo"
    with pytest.raises(UserError, match=line):
        source.check_learner(env, task, PPOLearnerCfg())
    source.check_learner(env, task, MAPPOLearnerCfg())


def test_the_critic_of_all_agents_sees_the_state_where_there_is_one():
    cfg = SimpleNamespace(possible_agents=["left", "right"], observation_spaces=SEEN, state_space=-1)
    assert agents_of(cfg) == ("left", "right")
    groups = IsaacTask(name="isaac/X").observation_groups(cfg)
    changes = team_changes(None, groups)
    learner = apply_overrides(MAPPOLearnerCfg(), changes)
    assert (learner.actor_groups, learner.critic_groups, learner.sharing) == (("policy",), ("state",), "separate")
    cfg.state_space = 0
    assert team_changes(None, IsaacTask(name="isaac/X").observation_groups(cfg))["critic_groups"] == ["policy"]

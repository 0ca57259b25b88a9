"""PettingZoo's parallel environments, both ways, and MaMuJoCo's robots divided among agents."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from gymnasium_robotics import mamujoco_v1
from pettingzoo import ParallelEnv
from pettingzoo.test import parallel_api_test
from robot_rl_envs.adapters.pettingzoo_env import TeamParallelEnv
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

from robot_rl.cli.main import main
from robot_rl.sources.pettingzoo.mamujoco import factorization
from robot_rl.sources.pettingzoo.parts import PartsEnv
from robot_rl.sources.pettingzoo.zoo import ZooEnv
from tests.covering import chosen

LINES = ["mamujoco:Ant-4x2", "mamujoco:HalfCheetah-2x3", "mamujoco:Walker2d-2x3"]


@pytest.mark.long
@pytest.mark.parametrize("name", ["go2_pair_carry", "go2_team"])
def test_pettingzoos_own_test_passes(name):
    env = TeamParallelEnv(get_task(name), num_threads=1)
    parallel_api_test(env, num_cycles=120)
    env.close()


@pytest.mark.long
def test_a_world_steps_as_the_learners_does():
    task = get_task("go2_pair_carry")
    zoo, ours = TeamParallelEnv(task, seed=4, num_threads=1), make_env(task, num_envs=1, seed=4, num_threads=1)
    seen, _ = zoo.reset()
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):
        action = torch.randn(2, 12, generator=generator)
        seen, rewards, ended, cut, _ = zoo.step(dict(zip(("front", "rear"), action.numpy(), strict=True)))
        obs, reward, done, _ = ours.step(action)
        assert list(rewards.values()) == reward.tolist()
        assert [ended[a] or cut[a] for a in ("front", "rear")] == done.tolist()
        if done.any():
            break
        np.testing.assert_array_equal(seen["rear"], obs["actor"][1])
    assert zoo.agents == []
    assert zoo.reset()[0]["front"].shape == (53,)


@pytest.mark.parametrize("line", LINES)
def test_agents_see_and_drive_what_mamujocos_do(line):
    scenario, division = line.removeprefix("mamujoco:").split("-")
    theirs = mamujoco_v1.parallel_env(scenario, division, agent_obsk=1)
    observed, _ = theirs.reset(seed=0)
    seen, driven = factorization(line, 1)
    for _ in range(3):
        action = {agent: theirs.action_space(agent).sample() for agent in theirs.agents}
        observed, *_ = theirs.step(action)
        whole = theirs.state()
        for agent, part in seen.items():
            # Walker2d's state is clipped to 10, its agents' parts of it are not.
            np.testing.assert_array_equal(np.clip(observed[agent], -10, 10), np.clip(whole[part], -10, 10))
        joined = theirs.map_local_actions_to_global_action(action)
        for agent, part in driven.items():
            np.testing.assert_array_equal(joined[part], action[agent])


def test_a_divided_robot_is_the_robot():
    seen, driven = factorization("mamujoco:Ant-4x2", 1)
    whole, robot = (make_env(get_task("ant_v5"), num_envs=3, seed=2, num_threads=1) for _ in range(2))
    parts = PartsEnv(robot, seen, driven)
    assert (parts.num_envs, parts.num_actions, parts.agents[0]) == (12, 2, "agent_0")
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        action = torch.rand(3, 8, generator=generator) * 2 - 1
        rows = torch.stack([action[:, driven[agent]] for agent in parts.agents], dim=1).flatten(0, 1)
        obs, reward, done, extras = parts.step(rows)
        wanted, earned, ends, _ = whole.step(action)
        for k, agent in enumerate(parts.agents):
            assert torch.equal(obs["actor"].view(3, 4, -1)[:, k], wanted["actor"][:, seen[agent]])
        assert torch.equal(reward.view(3, 4), earned[:, None].expand(3, 4))
        assert torch.equal(done.view(3, 4)[:, 1], ends)
        assert extras["valid"].all()


def test_parallel_environments_of_others_are_rows():
    env = ZooEnv(lambda: mamujoco_v1.parallel_env("HalfCheetah", "2x3", agent_obsk=1), 2, seed=3)
    assert (env.num_envs, env.roles, env.num_actions) == (4, ("12x3", "12x3"), 3)
    first = mamujoco_v1.parallel_env("HalfCheetah", "2x3", agent_obsk=1)
    observed, _ = first.reset(seed=4)
    action = torch.full((4, 3), 5.0)  # Clipped to its box.
    np.testing.assert_allclose(env.get_observations()["actor"][2], observed["agent_0"], atol=1e-6)
    obs, reward, done, extras = env.step(action)
    observed, rewards, *_ = first.step({agent: np.ones(3, np.float32) for agent in first.agents})
    np.testing.assert_allclose(obs["actor"][3], observed["agent_1"], atol=1e-6)
    assert reward[2].item() == pytest.approx(rewards["agent_0"], rel=1e-5)
    assert not done.any()
    assert extras["acted"].all()
    env.close()


class Pair(ParallelEnv):
    """Two agents that see the step of an episode of 4 steps; `part` is `bad` in step 2 of the first episode."""

    metadata = {"name": "pair"}  # noqa: RUF012
    possible_agents = ("left", "right")

    def __init__(self, part="", bad=np.nan):
        self.part, self.bad, self.episode = part, bad, 0

    def observation_space(self, agent):
        return Box(-9, 9, (1,), np.float64)

    def action_space(self, agent):
        return Box(-1, 1, (1,), np.float32)

    def look(self):
        bad = self.part == "right" and self.is_bad()
        return {"left": np.array([float(self.steps)]), "right": np.array([self.bad if bad else float(self.steps)])}

    def is_bad(self):
        return (self.steps, self.episode) == (2, 1)

    def reset(self, seed=None, options=None):
        self.agents, self.steps, self.episode = list(self.possible_agents), 0, self.episode + 1
        return self.look(), {}

    def step(self, actions):
        assert all(self.action_space(agent).contains(action) for agent, action in actions.items()), actions
        self.steps += 1
        reward = self.bad if self.part == "reward" and self.is_bad() else 1.0
        cut = self.steps == 4
        self.agents = [] if cut else self.agents
        rows = [dict.fromkeys(self.possible_agents, value) for value in (reward, False, cut)]
        return self.look(), *rows, {agent: {} for agent in self.possible_agents}


@pytest.mark.parametrize("bad", [np.nan, 1e39])
@pytest.mark.parametrize(
    ("part", "words"), [("right", "the observation of right"), ("reward", "the reward"), ("", "an action")]
)
def test_a_world_that_breaks_is_reset(part, words, bad):
    worlds = iter([Pair(), Pair(part, bad)])
    env = ZooEnv(lambda: next(worlds), 2)
    for step in range(6):
        actions = torch.zeros(4, 1)
        if not part and step == 1:
            actions[2] = torch.nan
        obs, reward, done, extras = env.step(actions)
        assert all(t.isfinite().all() for t in (obs["actor"], extras["final_obs"]["actor"], reward))
        broken = step == 1
        assert extras["valid"].tolist() == [True, True, not broken, not broken]
        assert extras["ended"].tolist() == [step == 3] * 2 + [step in (1, 5)] * 2
        assert done.tolist() == extras["ended"].tolist()
        assert reward.tolist() == [1.0, 1.0] + [0.0 if broken else 1.0] * 2
    (line,) = env.pop_notices()
    assert line.startswith("quarantined world 1 of ")
    assert line.endswith(f": {words} is not finite in float32")
    metrics = env.pop_metrics()
    assert (metrics["quarantined"], metrics["episodes"], metrics["episode/steps"]) == (2, 2, 4)


@pytest.mark.parametrize("task", chosen([LINES[2], "zoo:gymnasium_robotics.mamujoco_v1:parallel_env"], LINES[2]))
def test_they_train_and_are_evaluated(task, in_tmp, capsys):
    more = ["env.scenario=Walker2d", "env.agent_conf=2x3"] if task.startswith("zoo:") else []
    tiny = ["num_envs=2", "num_steps=8", "max_iterations=2", "ppo.minibatches=2", "actor.hidden=[8]"]
    assert main(["train", f"task={task}", *more, *tiny, "critic.hidden=[8]"]) == 0
    assert main(["eval", "run=latest", "episodes=2"]) == 0
    assert "return" in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("task=mamujoco:Ant",), "write mamujoco:<scenario>-<division> such as mamujoco:Ant-4x2"),
        (("task=mamujoco:Ant-9x9",), "MaMuJoCo has no such division of Ant"),
        (("task=mamujoco:Ant-4x2", "learner=ppo"), "learner=ppo: trains 1 agent, task=mamujoco:Ant-4x2 has 4"),
        (("task=mamujoco:Ant-4x2", "obsk=-1"), "obsk=-1: must be a whole number of at least 0"),
        (("task=zoo:nowhere:make",), "task=zoo:nowhere:make: cannot import nowhere"),
        (
            ("task=zoo:pettingzoo.mpe.simple_spread_v3:parallel_env",),
            "pettingzoo.mpe.simple_spread_v3 cannot be imported: MPE has been moved into its own package",
        ),
        (("task=zoo:pettingzoo.test:nix",), "task=zoo:pettingzoo.test:nix: pettingzoo.test has no function nix"),
        (("task=zoo:make",), "write zoo:<module>:<function>"),
    ],
)
def test_bad_input(words, line, in_tmp, capsys):
    assert main(["train", *words, "num_envs=2"]) == 2
    assert line in capsys.readouterr().err

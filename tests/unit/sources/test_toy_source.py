"""A source of tasks in one file, as somebody's package would add it: trained, gone on with, evaluated, and refused."""

import json

import pytest
import yaml

from robot_rl.sources import registry

SOURCE = '''
"""Worlds in which a point is to be moved to 0; a whole source of tasks, in one file."""

from dataclasses import dataclass

import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict

from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.settings import to_dict
from robot_rl.errors import UserError
from robot_rl.sources.protocol import Defaults, Resolved, TaskSource


@dataclass
class Toy:
    name: str
    reach: float


class ToyEnv(VecEnv):
    def __init__(self, task, worlds):
        self.task, self.num_envs, self.device, self.cfg = task, worlds.num_envs, worlds.device, task
        self.num_actions, self.max_episode_length = 1, 10
        self.generator = torch.Generator().manual_seed(worlds.seed + worlds.first)
        self.episode_length_buf = torch.zeros(self.num_envs, dtype=torch.long)
        self.x = torch.empty(self.num_envs, 1)
        self.restart(torch.ones(self.num_envs, dtype=torch.bool))

    def restart(self, which):
        fresh = self.task.reach * (2 * torch.rand(self.num_envs, 1, generator=self.generator) - 1)
        self.x = torch.where(which[:, None], fresh, self.x)
        self.episode_length_buf[which] = 0

    def get_observations(self):
        return TensorDict({"actor": self.x, "critic": self.x}, batch_size=[self.num_envs])

    def step(self, actions):
        self.x = self.x + 0.1 * actions.clamp(-1, 1)
        self.episode_length_buf += 1
        done = self.episode_length_buf >= self.max_episode_length
        reward = -self.x.abs()[:, 0]
        self.restart(done)
        return self.get_observations(), reward, done, {"time_outs": done, "log": {}}

    def reset(self):
        self.restart(torch.ones(self.num_envs, dtype=torch.bool))
        return self.get_observations(), {}

    def close(self):
        pass


class ToySource(TaskSource):
    name, pattern, summary = "toy", "toy:<reach>", "a point that is moved to 0"

    def owns(self, name):
        return name.startswith("toy:")

    def list_tasks(self):
        return {"toy:near": "the point begins near 0"}

    def defaults(self, name, device):
        return Defaults(settings={"reach": 1.0}, num_envs=4)

    def resolve(self, tree, device):
        if not 0 < tree["reach"] < 10:
            raise UserError(f"reach={tree['reach']}: must lie in (0, 10)")
        return Resolved(task=Toy(tree["task"], tree["reach"]), engine="toy", keys=("reach",))

    def make_env(self, task, worlds):
        return ToyEnv(task, worlds)
'''
SMALL = ("num_envs=4", "num_steps=8", "max_iterations=2", "ppo.minibatches=2", "actor.hidden=[8]", "critic.hidden=[8]")


@pytest.fixture
def toy(install, in_tmp):
    """The source is installed; the current directory is empty."""
    install("toy-worlds", {"robot_rl.sources": {"toy": "toy_worlds:ToySource"}}, {"toy_worlds": SOURCE})
    registry.list_sources.cache_clear()
    yield in_tmp
    registry.list_sources.cache_clear()


def test_a_fourth_source_is_trained_gone_on_with_and_evaluated(run, toy):
    code, out, err = run("train", "task=toy:near", *SMALL, "reach=0.5", "run_id=one")
    assert code == 0, err
    assert "robot-rl eval run=one" in out
    assert "robot-rl video" not in out
    path = toy / "runs" / "toy-near" / "one"
    config = yaml.safe_load((path / "run.yaml").read_text())["config"]
    assert (config["task"], config["engine"], config["reach"]) == ("toy:near", "toy", 0.5)
    assert run("resume", "one", "max_iterations=3", "reach=0.6")[0] == 0
    assert [json.loads(row)["iteration"] for row in (path / "metrics.jsonl").read_text().splitlines()] == [1, 2, 3]
    assert run("eval", "run=one", "episodes=3")[0] == 0
    evaluation = json.loads((path / "eval.json").read_text())
    assert (evaluation["episodes"], evaluation["torch"]["length"]["mean"]) == (3, 10.0)
    assert run("report", "run=one")[0] == 0
    assert run("profile", "task=toy:near", *SMALL[:2], "iterations=1")[0] == 0


def test_what_it_cannot_do_is_refused_with_a_reason(run, toy):
    assert run("train", "task=toy:near", *SMALL, "run_id=one")[0] == 0
    for command in ("play", "video", "record", "sim2sim", "export"):
        code, out, err = run(command, "run=one")
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert f"robot-rl: {command}: toy:near " in err
    assert "is no environment of ours" in run("bench", "env", "task=toy:near")[2]
    assert "reach=20: must lie in (0, 10)" in run("train", "task=toy:near", "reach=20")[2]
    assert "did you mean 'reach'?" in run("train", "task=toy:near", "reahc=2")[2]


def test_it_is_listed(run, toy):
    assert "\n  toy:near " in run("list", "tasks")[1]
    assert "toy:<reach>" in run("train", "--help")[1]
    assert "robot_rl.sources toy" in run("list", "plugins")[1]


def test_a_source_that_cannot_be_used_disturbs_no_other(run, install, in_tmp):
    install("broken", {"robot_rl.sources": {"bad": "bad_source:Source"}}, {"bad_source": "raise RuntimeError('no')"})
    registry.list_sources.cache_clear()
    assert registry.source_of("cartpole").name == "robot-rl"
    _, out, _ = run("list", "plugins")
    assert "cannot be used: name=bad: the plug-in of broken cannot be used: bad_source fails at its import" in out
    registry.list_sources.cache_clear()

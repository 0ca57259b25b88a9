"""A run in one piece, and the same run in two: the results must be the same bits."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

from robot_rl.learn.algorithms import get_learner
from robot_rl.learn.make_trainer import make_trainer
from robot_rl.settings import apply_overrides

WORLDS = 6
SMALL = {"num_steps": 12, "actor.hidden": [8], "critic.hidden": [8], "ppo.epochs": 2, "ppo.minibatches": 2}


@pytest.fixture
def one_thread():
    """Torch computes in one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def maker(one_thread):
    """maker(task) is a function that builds its environment again; all are closed at the end."""
    made = []

    def of(task, num_envs=WORLDS):
        task = get_task(task) if isinstance(task, str) else task

        def make():
            made.append(make_env(task, num_envs=num_envs, engine="mujoco", seed=4, num_threads=1))
            return made[-1]

        return make

    yield of
    for env in made:
        env.close()


def learner(**settings):
    """A learner's configuration, small by default."""
    return apply_overrides(get_learner(settings.pop("name", "ppo"))(), SMALL | settings)


def untimed(path):
    """The rows of a run's metrics without what is measured with a clock."""
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k != "time_s" and not k.startswith("perf/")} for row in rows]


def everything(runner):
    """All that a runner, its worlds included, holds."""
    state = runner.networks() | runner.state() | runner.worlds()
    return state | {f"env.{name}": tensor for name, tensor in runner.env.state_dict().items()}


def in_two(make, cfg, directory, first=2, last=4):
    """Train `last` iterations; then go on from the checkpoint after `first`, in worlds that have been elsewhere.

    Returns:
        The two runners at their end, and their directories.
    """
    cfg = replace(cfg, save_interval=first)
    whole = make_trainer(make(), cfg, run_dir=directory / "whole", seed=3)
    whole.train(last)
    shutil.copytree(directory / "whole", directory / "resumed")
    env = make()
    for _ in range(3):
        env.step(torch.ones(env.num_envs, env.num_actions))
    resumed = make_trainer(env, cfg, run_dir=directory / "resumed", seed=99)
    messages = []
    resumed.load(directory / "resumed" / "checkpoints" / f"{first:06d}", tell=messages.append)
    assert (resumed.iteration, messages) == (first, [])
    resumed.train(last)
    return whole, resumed


def assert_same_run(whole, resumed):
    """Networks, optimizer, streams, worlds and metrics of two runners are the same bits."""
    one, two = everything(whole), everything(resumed)
    assert one.keys() == two.keys()
    assert [name for name in one if not torch.equal(one[name].nan_to_num(), two[name].nan_to_num())] == []
    assert untimed(whole.run_dir) == untimed(resumed.run_dir)
    assert len(untimed(whole.run_dir)) == whole.iteration

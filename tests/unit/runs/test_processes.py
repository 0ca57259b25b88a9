"""The share of each of several processes: its worlds, its GPU, its cores, its notices."""

import pytest
import torch

from robot_rl.errors import UserError
from robot_rl.learn.ranks import ProcessGroup
from robot_rl.runs import settings
from robot_rl.runs.settings import default_tree, resolve, resolve_device
from robot_rl.runs.training import print_notices
from robot_rl.settings import tree as trees


class Second(ProcessGroup):
    """The second of two processes."""

    rank, size = 1, 2


def make_cfg(**settings):
    return resolve(trees.override(default_tree("go2_flat", "cpu"), {"num_envs": 6, "num_threads": 1, **settings}))


def test_a_process_has_its_part_of_the_worlds():
    """They are what they would be among all: start, noise and randomization."""
    cfg = make_cfg()
    whole, part = cfg.make_env(), cfg.make_env(ranks=Second())
    assert (whole.num_envs, part.num_envs) == (6, 3)
    for _ in range(3):
        for group, theirs in whole.get_observations().items():
            assert torch.equal(part.get_observations()[group], theirs[3:])
        whole.step(torch.zeros(6, 12))
        part.step(torch.zeros(3, 12))
    whole.close()
    part.close()


def test_worlds_of_gymnasium_are_seeded_by_their_index(monkeypatch):
    cfg = resolve(trees.override(default_tree("gym:CartPole-v1", "cpu"), {"num_envs": 4, "seed": 5}))
    whole, part = cfg.make_env(), cfg.make_env(ranks=Second())
    for group, theirs in whole.get_observations().items():
        assert torch.equal(part.get_observations()[group], theirs[2:])
    whole.close()
    part.close()


def test_worlds_that_cannot_be_divided():
    with pytest.raises(UserError, match="num_envs=7: must be a multiple of the 2 processes that train together"):
        make_cfg(num_envs=7).make_env(ranks=Second())


def test_a_process_has_its_part_of_the_cores(monkeypatch):
    seen = []
    monkeypatch.setattr("robot_rl_envs.make.make_env", lambda task, **options: seen.append(options))
    monkeypatch.setattr(settings.os, "cpu_count", lambda: 9)
    for name, value in {"RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    make_cfg(num_threads=0).make_env(ranks=Second())
    make_cfg(num_threads=3).make_env(ranks=Second())
    make_cfg(num_threads=0).make_env()
    assert [one["num_threads"] for one in seen] == [4, 3, 0]
    assert [one["world_offset"] for one in seen] == [3, 3, 0]


def test_each_process_of_a_machine_has_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert [resolve_device(name) for name in ("auto", "cuda", "cuda:1")] == ["cuda:0", "cuda:0", "cuda:1"]
    environ = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert [resolve_device(name) for name in ("auto", "cuda", "cuda:0")] == ["cuda:1"] * 3
    assert resolve_device("cpu") == "cpu"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    with pytest.raises(UserError, match="device=auto: 3 processes on this machine, 2 GPUs; start as many as GPUs"):
        resolve_device("auto")


def test_notices_of_another_process_are_printed(capsys):
    class Env:
        def pop_notices(self):
            return ["world 7: quarantined"]

    print_notices(Env(), 3)({"iteration": 1})
    assert capsys.readouterr().err == "robot-rl (process 3): world 7: quarantined\n"

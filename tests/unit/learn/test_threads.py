"""A resumed learner computes with as many threads as the run had."""

import os

import torch

from robot_rl.learn.checkpoints.checkpoint import load_checkpoint
from robot_rl.learn.ranks import SINGLE_PROCESS
from robot_rl.learn.threads import restore_threads, use_threads
from robot_rl.learn.trainer import Trainer


def test_a_checkpoint_knows_the_threads_and_they_are_restored(make_point_env, small_cfg, tmp_path, monkeypatch):
    torch.set_num_threads(2)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    meta = load_checkpoint(Trainer(make_point_env(4), small_cfg, run_dir=tmp_path).save())[1]
    assert meta["threads"] == [2]
    torch.set_num_threads(1)
    restore_threads(meta, "cpu", SINGLE_PROCESS, print)
    assert torch.get_num_threads() == 2


def test_where_it_cannot_be_a_line_is_printed(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    lines = []
    for meta in ({}, {"threads": [4, 4]}, {"threads": [64]}):
        restore_threads(meta, "cpu", SINGLE_PROCESS, lines.append)
    restore_threads({"threads": [64]}, "cuda:0", SINGLE_PROCESS, lines.append)
    assert torch.get_num_threads() == 1
    (line,) = lines
    assert "had 64 threads when the run was saved, here are 2 cores: it continues with 1" in line


def test_by_default_the_learner_takes_half_of_the_cores(monkeypatch):
    """With a thread a core, whatever else runs holds up every operation."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for cores, threads in ((1, 1), (2, 1), (3, 1), (16, 8)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, count=cores: set(range(count)))
        use_threads(0, "cpu")
        assert torch.get_num_threads() == threads
    use_threads(2, "cpu")
    assert torch.get_num_threads() == 2
    use_threads(5, "cuda:0")
    assert torch.get_num_threads() == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    use_threads(0, "cpu")
    assert torch.get_num_threads() == 2

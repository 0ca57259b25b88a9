"""A resumed learner computes with as many threads as the run had."""

import torch

from robot_rl.learn.checkpoints.checkpoint import load_checkpoint
from robot_rl.learn.ranks import ALONE
from robot_rl.learn.runner import Runner
from robot_rl.learn.threads import restore_threads


def test_a_checkpoint_knows_the_threads_and_they_are_restored(make_point_env, small_cfg, tmp_path, monkeypatch):
    torch.set_num_threads(2)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    meta = load_checkpoint(Runner(make_point_env(4), small_cfg, run_dir=tmp_path).save())[1]
    assert meta["threads"] == [2]
    torch.set_num_threads(1)
    restore_threads(meta, "cpu", ALONE, print)
    assert torch.get_num_threads() == 2


def test_where_it_cannot_be_a_line_says_so(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    told = []
    for meta in ({}, {"threads": [4, 4]}, {"threads": [64]}):
        restore_threads(meta, "cpu", ALONE, told.append)
    restore_threads({"threads": [64]}, "cuda:0", ALONE, told.append)
    assert torch.get_num_threads() == 1
    (line,) = told
    assert "had 64 threads when the run was saved, here are 2 cores: it goes on with 1" in line

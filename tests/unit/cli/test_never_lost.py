"""A run that was killed, torn or requeued goes on as if it had not been interrupted."""

import json
import time

import pytest
import torch

from robot_rl.learn.checkpoints.checkpoint import latest_checkpoint, list_checkpoints, load_checkpoint, load_worlds
from robot_rl.metrics.rows import lock
from robot_rl.runs.run_dir import RunDir


def untimed(run_dir):
    rows = [json.loads(line) for line in run_dir.metrics_file.read_text().splitlines()]
    return [{k: v for k, v in row.items() if k != "time_s" and not k.startswith("perf/")} for row in rows]


def assert_same(one, two):
    """The last checkpoints and the metrics of two runs hold the same bits."""
    first, second = latest_checkpoint(one.path), latest_checkpoint(two.path)
    assert first.name == second.name
    for load in (lambda path: load_checkpoint(path)[0], load_worlds):
        a, b = load(first), load(second)
        assert a.keys() == b.keys()
        assert [name for name in a if not torch.equal(a[name].nan_to_num(), b[name].nan_to_num())] == []
    assert untimed(one) == untimed(two)


def tear(path):
    """Cut a file in half, as a disk does that lost power."""
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


@pytest.mark.long
def test_killed_and_requeued_it_is_the_run(run, in_tmp, tiny, start_python):
    """`kill -9` in the middle, then the same command line again."""
    words = ("task=cartpole", *tiny.but("max_iterations=60"), "save_interval=5")
    assert run("train", *words, "run_id=straight")[0] == 0
    killed = RunDir(in_tmp / "runs" / "cartpole" / "killed")
    process = start_python(["-m", "robot_rl.cli.main", "train", *words, "run_id=killed"])
    try:
        end = time.monotonic() + 300
        while time.monotonic() < end and len(list_checkpoints(killed.path)) < 2:
            time.sleep(0.01)
    finally:
        process.kill()
        process.communicate()
    left = untimed(killed)
    assert 10 <= len(left) < 60
    code, out, _ = run("train", *words, "run_id=killed")
    assert code == 0
    assert_same(RunDir(in_tmp / "runs" / "cartpole" / "straight"), killed)
    resumed = killed.read_config()["resumed"]
    assert [event["iteration"] % 5 for event in resumed] == [0]
    assert not [path for path in killed.checkpoints.iterdir() if path.name.startswith(".")]
    code, out, _ = run("train", *words, "run_id=killed")
    assert (code, "has done 60 iterations" in out) == (0, True)


@pytest.mark.long
def test_a_kill_long_before_the_first_save_interval(run, in_tmp, tiny, start_python):
    """A checkpoint is there by time."""
    many = tiny.but("max_iterations=1000000", "save_interval=1000000", "save_interval_s=0.2")
    words = ("task=cartpole", *many)
    killed = RunDir(in_tmp / "runs" / "cartpole" / "killed")
    process = start_python(["-m", "robot_rl.cli.main", "train", *words, "run_id=killed"])
    try:
        end = time.monotonic() + 300
        while time.monotonic() < end and process.poll() is None and not list_checkpoints(killed.path):
            time.sleep(0.01)
    finally:
        process.kill()
        process.communicate()
    done = int(latest_checkpoint(killed.path).name)
    code, _, err = run("resume", "killed", f"max_iterations={done + 1}", "save_interval_s=0")
    assert code == 0, err
    assert untimed(killed)[-1]["iteration"] == done + 1


def test_a_torn_checkpoint_is_named_and_the_one_before_goes_on(run, in_tmp, tiny):
    words = ("task=cartpole", *tiny.but("max_iterations=6"), "save_interval=2")
    assert run("train", *words, "run_id=straight")[0] == 0
    assert run("train", *words, "run_id=torn")[0] == 0
    torn = RunDir(in_tmp / "runs" / "cartpole" / "torn")
    tear(torn.checkpoints / "000006" / "env.safetensors")
    code, _, err = run("resume", "torn")
    assert code == 0, err
    assert "000006/env.safetensors: damaged, sha256 is" in err
    assert "going back to checkpoint 000004" in err
    assert_same(RunDir(in_tmp / "runs" / "cartpole" / "straight"), torn)
    assert "000006" in torn.read_config()["resumed"][0]["told"][0]


@pytest.mark.long
def test_a_run_killed_before_its_first_checkpoint_begins_from_scratch(run, in_tmp, tiny):
    words = ("task=cartpole", *tiny.but("max_iterations=3"))
    assert run("train", *words, "run_id=a")[0] == 0
    assert run("train", *words, "run_id=b")[0] == 0
    early = RunDir(in_tmp / "runs" / "cartpole" / "b")
    for file in (early.checkpoints / "000003").iterdir():
        file.unlink()
    (early.checkpoints / "000003").rmdir()
    code, _, err = run("resume", "b")
    assert (code, "has no checkpoint" in err) == (86, True)
    rows = early.metrics_file.read_bytes()
    code, _, err = run("train", *words, "run_id=b")
    assert (code, "again; the earlier content (checkpoints, metrics.jsonl, run.yaml, tb) is in earlier-1" in err) == (
        0,
        True,
    )
    assert (early.path / "earlier-1" / "metrics.jsonl").read_bytes() == rows
    assert_same(RunDir(in_tmp / "runs" / "cartpole" / "a"), early)


def test_a_run_in_training_is_refused_before_its_checkpoints_are_looked_at(run, in_tmp, tiny):
    words = ("task=cartpole", *tiny.but("max_iterations=1"), "run_id=busy")
    assert run("train", *words)[0] == 0
    busy = RunDir(in_tmp / "runs" / "cartpole" / "busy")
    (busy.checkpoints / "000001" / "model.safetensors").unlink()  # As the one who trains removes old ones.
    with lock(busy.metrics_file):
        for command in (("resume", "busy"), ("train", *words)):
            code, _, err = run(*command)
            assert (code, err.count("another process is writing it"), err.count("\n")) == (2, 1, 1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("rewards.effort.weight=-0.02", "rewards.effort.weight=-0.02: run one has -0.01"),
        ("seed=2", "seed=2: run one has 1"),
        ("run_id=.hidden", "run_id=.hidden: must be"),
        ("run_id=latest", "run_id=latest: must be"),
        ("run_id='../x'", "run_id=../x: must be"),
    ],
)
def test_what_is_not_that_run(run, in_tmp, tiny, changed, message):
    words = ("task=cartpole", *tiny.but("max_iterations=1"))
    assert run("train", *words, "run_id=one")[0] == 0
    name = () if changed.startswith("run_id") else ("run_id=one",)
    code, _, err = run("train", *words, *name, changed)
    assert (code, len(err.splitlines())) == (2, 1)
    assert message in err
    assert len(list((in_tmp / "runs").glob("*/*"))) == 1


def test_more_iterations_of_a_run_by_its_id(run, in_tmp, tiny):
    words = [word for word in ("task=cartpole", *tiny, "run_id=one") if not word.startswith("max_iterations")]
    assert run("train", *words, "max_iterations=2")[0] == 0
    assert run("train", *words, "max_iterations=4", "keep_checkpoints=1")[0] == 0
    one = RunDir.find("latest")
    assert [row["iteration"] for row in untimed(one)] == [1, 2, 3, 4]
    assert [path.name for path in list_checkpoints(one.path)] == ["000004"]


def test_another_number_of_worlds(run, in_tmp, tiny):
    assert run("train", "task=cartpole", *tiny, "run_id=few")[0] == 0
    few = RunDir(in_tmp / "runs" / "cartpole" / "few")
    code, _, err = run("resume", "few", "max_iterations=3", "num_envs=6")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "num_envs=6 in 1 process: the run has 4 in 1 process; continue with as many, or give allow_resize=" in err
    assert len(untimed(few)) == 2
    code, _, err = run("resume", "few", "max_iterations=3", "num_envs=6", "allow_resize=true")
    assert code == 0, err
    line = "4 worlds in 1 process become 6 in 1 process: the first 4 continue, 2 begin again"
    assert line in err
    assert few.read_config()["resumed"][0]["told"] == [line]
    assert untimed(few)[-1]["env_steps"] == 2 * 4 * 4 + 6 * 4


def test_worlds_begin_again_with_fresh_worlds(run, in_tmp, tiny):
    assert run("train", "task=cartpole", *tiny, "run_id=one")[0] == 0
    assert run("resume", "one", "fresh_worlds=perhaps")[0] == 2
    code, _, err = run("resume", "one", "max_iterations=3", "fresh_worlds=true")
    assert (code, "every world begins again" in err) == (0, True)
    one = RunDir(in_tmp / "runs" / "cartpole" / "one")
    assert load_worlds(latest_checkpoint(one.path))["env.state.counter"].max() <= 4 + 1

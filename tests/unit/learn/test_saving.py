"""Checkpoints written in the background of the training: what it waits for, and where errors are raised."""

import errno
import threading
from dataclasses import replace

import pytest
import torch

from robot_rl.errors import NotRetryableError, UserError
from robot_rl.learn.checkpoints import checkpoint, saving
from robot_rl.learn.checkpoints.checkpoint import (
    drop_replay,
    list_checkpoints,
    load_checkpoint,
    load_replay,
    replay_files,
    verify_checkpoint,
)
from robot_rl.learn.checkpoints.saving import Package, Saver
from robot_rl.learn.ranks import SINGLE_PROCESS
from robot_rl.learn.trainer import Trainer
from robot_rl.metrics.writers import read_metrics


@pytest.fixture
def gate(monkeypatch):
    """Holds every writing thread until it is opened."""
    opened = threading.Event()
    write = saving.save_checkpoint

    def held(*args, **options):
        assert opened.wait(60)
        return write(*args, **options)

    monkeypatch.setattr(saving, "save_checkpoint", held)
    return opened


def test_a_save_writes_the_state_at_the_request(tmp_path, gate):
    saver, weights, place = Saver(SINGLE_PROCESS, 0), torch.ones(3), torch.zeros(2)
    path = tmp_path / "checkpoints" / "000001"
    saver.start(Package(path, {"weights": weights}, {}, {"env.place": place}))
    assert (saver.durable, path.exists()) == (None, False)
    weights.fill_(7.0)
    gate.set()
    saver.wait()
    assert saver.durable == path
    assert load_checkpoint(path)[0]["weights"].tolist() == [1.0] * 3


def test_a_copy_is_made_into_the_arrays_of_the_one_before_where_they_fit(tmp_path):
    live = Package(tmp_path, {"weights": torch.ones(3)}, {"iteration": 1}, {"env.place": torch.zeros(2)})
    first = live.copied()
    live.tensors["weights"].fill_(2.0)
    assert first.tensors["weights"].tolist() == [1.0] * 3
    again = replace(live, meta={"iteration": 2}, worlds={"env.place": torch.zeros(4)}).copied(first)
    assert again.tensors["weights"].data_ptr() == first.tensors["weights"].data_ptr()
    assert (again.tensors["weights"].tolist(), again.worlds["env.place"].shape, again.meta) == (
        [2.0] * 3,
        (4,),
        {"iteration": 2},
    )


def test_one_is_written_at_a_time(tmp_path, gate):
    saver, begun = Saver(SINGLE_PROCESS, 0), []
    saver.start(Package(tmp_path / "checkpoints" / "000001", {}, {}, {}))
    other = Package(tmp_path / "checkpoints" / "000002", {}, {}, {})
    second = threading.Thread(target=lambda: (saver.start(other), begun.append(saver.durable)))
    second.start()
    second.join(0.05)
    assert begun == []
    gate.set()
    second.join(60)
    assert begun[0].name in ("000001", "000002")  # The first is on the disk before the second begins.
    saver.wait()
    assert [path.name for path in list_checkpoints(tmp_path)] == ["000001", "000002"]


def test_the_training_goes_on_while_one_is_written(make_point_env, small_cfg, tmp_path, gate):
    seen = []

    def observer(row):
        seen.append((int(row["iteration"]), len(list_checkpoints(tmp_path))))
        if row["iteration"] == 3:
            gate.set()

    runner = Trainer(make_point_env(), small_cfg, run_dir=tmp_path, observer=observer)
    runner.train(4)
    assert seen[:3] == [(1, 0), (2, 0), (3, 0)]
    assert [path.name for path in list_checkpoints(tmp_path)] == ["000002", "000004"]
    assert runner.checkpoint.name == "000004"
    waited = [row["perf/save_s"] for row in read_metrics(tmp_path)]
    assert (waited[0], waited[1], waited[2] > 0.0) == (0.0, 0.0, True)


def test_a_full_disk_ends_the_training_after_the_iteration_in_hand(make_point_env, small_cfg, tmp_path, monkeypatch):
    def full(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(saving, "save_checkpoint", full)
    runner = Trainer(make_point_env(), replace(small_cfg, save_interval=2), run_dir=tmp_path)
    with pytest.raises(OSError, match="No space left"):
        runner.train(50)
    assert 2 <= runner.iteration <= 4
    assert runner.checkpoint is None
    assert threading.active_count() == len(
        [thread for thread in threading.enumerate() if thread.name != "robot-rl-save"]
    )


def test_a_loss_that_is_not_finite_leaves_the_checkpoint_before_it_whole(make_point_env, small_cfg, tmp_path):
    env = make_point_env()
    step, count = env.step, []

    def breaks(actions):
        obs, reward, done, extras = step(actions)
        count.append(None)
        return obs, reward * (float("nan") if len(count) > 2 * small_cfg.num_steps else 1.0), done, extras

    env.step = breaks
    runner = Trainer(env, small_cfg, run_dir=tmp_path)
    with pytest.raises(FloatingPointError):
        runner.train(10)
    assert runner.checkpoint.name == "000002"
    assert load_checkpoint(runner.checkpoint)[1]["iteration"] == 2


def test_it_is_due_by_iterations_or_by_time(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(saving.time, "monotonic", lambda: now[0])
    saver, never = Saver(SINGLE_PROCESS, 0, 10, 60.0), Saver(SINGLE_PROCESS, 0, 10)
    assert [saver.is_due(iteration) for iteration in (9, 10, 11)] == [False, True, False]
    now[0] = 161.0
    assert [saver.is_due(11), never.is_due(11)] == [True, False]


def test_a_checkpoint_by_time_begins_the_time_again(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(saving.time, "monotonic", lambda: now[0])
    saver = Saver(SINGLE_PROCESS, 0, 1000, 60.0)
    now[0] = 61.0
    assert saver.is_due(3)
    saver.start(Package(tmp_path / "checkpoints" / "000003", {}, {}, {}))
    saver.wait()
    assert not saver.is_due(4)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_no_number_that_is_not_finite_is_kept(tmp_path, value):
    """The checkpoint before stays; what belongs to a world is the quarantine's matter."""
    saver, state = Saver(SINGLE_PROCESS, 1), {"actor.normalizer.var": torch.ones(3)}
    saver.start(Package(tmp_path / "checkpoints" / "000001", state, {}, {"env.qvel": torch.full((2,), value)}))
    saver.wait()
    state["actor.normalizer.var"][1] = value
    saver.start(Package(tmp_path / "checkpoints" / "000002", state, {}, {}))
    with pytest.raises(NotRetryableError, match=r"'actor.normalizer.var' holds 1 of 3 numbers that are not finite"):
        saver.wait()
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["000001"]


def save_with_replay(saver, run_dir, *iterations):
    for iteration in iterations:
        replay = {"replay.reward": torch.full((4,), float(iteration))}
        path = run_dir / "checkpoints" / f"{iteration:06d}"
        saver.start(Package(path, {"weights": torch.ones(3)}, {"iteration": iteration}, {}, replay))
        saver.wait()


def with_replay(run_dir):
    """The checkpoints that have the replay memory; all of the run are whole."""
    for path in list_checkpoints(run_dir):
        verify_checkpoint(path)
    return [int(path.name) for path in list_checkpoints(run_dir) if load_replay(path) is not None]


def test_the_replay_memory_is_in_the_newest_two_and_at_the_end_in_the_newest(tmp_path):
    saver = Saver(SINGLE_PROCESS, 0)
    save_with_replay(saver, tmp_path, 1, 2, 3, 4)
    assert with_replay(tmp_path) == [3, 4]
    assert load_replay(saver.durable)["replay.reward"].tolist() == [4.0] * 4
    saver.conclude()
    assert with_replay(tmp_path) == [4]


def test_a_memory_is_kept_until_the_newest_can_be_read(tmp_path):
    saver = Saver(SINGLE_PROCESS, 0)
    save_with_replay(saver, tmp_path, 1, 2)
    content = (saver.durable / "replay.safetensors").read_bytes()
    (saver.durable / "replay.safetensors").write_bytes(content[:-1])
    saver.conclude()
    assert len(replay_files(tmp_path / "checkpoints" / "000001")) == 1
    with pytest.raises(UserError, match=r"000002/replay\.safetensors: damaged"):
        load_replay(saver.durable)


def test_a_run_that_continues_keeps_the_memory_it_continued_from(tmp_path):
    """Not the one of a newer checkpoint, which is damaged, and is left as it is."""
    save_with_replay(Saver(SINGLE_PROCESS, 0), tmp_path, 2, 4)
    damaged = tmp_path / "checkpoints" / "000004" / "meta.json"
    damaged.write_text("{")
    saver = Saver(SINGLE_PROCESS, 0)
    saver.loaded = tmp_path / "checkpoints" / "000002"
    save_with_replay(saver, tmp_path, 3)
    assert [len(replay_files(path)) for path in list_checkpoints(tmp_path)] == [1, 1, 1]
    save_with_replay(saver, tmp_path, 5)
    assert [len(replay_files(path)) for path in list_checkpoints(tmp_path)] == [0, 1, 1, 1]
    assert damaged.read_text() == "{"


@pytest.mark.parametrize("fails", ["write_atomic", "sync_directory"])
def test_a_crash_while_a_memory_is_removed_leaves_a_whole_checkpoint(tmp_path, monkeypatch, fails):
    def crash(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    saver = Saver(SINGLE_PROCESS, 0)
    save_with_replay(saver, tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, fails, crash)
        with pytest.raises(OSError, match="No space"):
            drop_replay(saver.durable)
    verify_checkpoint(saver.durable)
    save_with_replay(saver, tmp_path, 2, 3)
    assert with_replay(tmp_path) == [2, 3]
    assert sorted(path.name for path in (tmp_path / "checkpoints" / "000001").iterdir()) == [
        "meta.json",
        "model.safetensors",
    ]

"""TensorBoard and Weights & Biases: rows once over kills, no training that ends with them, copies written again."""

import errno
import sys
from types import SimpleNamespace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from robot_rl.errors import UserError
from robot_rl.metrics.trackers import Board, sync_tensorboard, sync_wandb, wandb_id
from robot_rl.metrics.writers import MetricsWriter, read_metrics


def scalars(directory, name="x"):
    board = EventAccumulator(str(directory))
    board.Reload()
    return [(event.step, event.value, event.wall_time) for event in board.Scalars(name)]


def make_rows(first, last):
    return [{"iteration": i, "env_steps": 10 * i, "time_s": 2.0 * i, "x": i / 2} for i in range(first, last + 1)]


class FakeRun:
    """A run at Weights & Biases that has some rows already."""

    def __init__(self, starting_step, calls):
        self.starting_step, self.calls, self.sync_dir = starting_step, calls, "wandb/offline-run-1"

    def log(self, row, step):
        self.calls.append((step, row["x"]))

    def finish(self):
        self.calls.append("finished")


@pytest.fixture
def wandb(monkeypatch):
    """The calls that a made-up wandb gets; `start` is the step that its runs go on from."""
    fake = SimpleNamespace(calls=[], start=0)

    def init(**options):
        fake.calls.append(options)
        return FakeRun(fake.start, fake.calls)

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    return fake


def test_tensorboard_shows_an_iteration_once_after_a_kill(tmp_path):
    killed = Board(tmp_path / "tb")
    for row in make_rows(1, 8):
        killed.write(row)
    killed.flush()
    resumed = Board(tmp_path / "tb")
    for row in make_rows(6, 9):
        resumed.write({**row, "x": row["x"] + 100.0})
    resumed.close()
    seen = [(step, value) for step, value, _ in scalars(tmp_path / "tb")]
    assert seen == [(i, i / 2 + (100.0 if i > 5 else 0.0)) for i in range(1, 10)]


def test_tensorboard_has_the_rows_of_a_checkpoint_when_it_is_written(tmp_path):
    writer = MetricsWriter(tmp_path)
    for row in make_rows(1, 3):
        writer.write(row["iteration"], row)
    writer.mark()
    assert [step for step, _, _ in scalars(tmp_path / "tb")] == [1, 2, 3]
    writer.close()


def test_a_tracker_that_fails_is_left_alone_and_training_goes_on(tmp_path, wandb, monkeypatch):
    messages = []

    def fail(self, row, step):
        raise OSError(errno.EPIPE, "the service has ended\nmore of it")

    monkeypatch.setattr(FakeRun, "log", fail)
    monkeypatch.setattr(Board, "flush", lambda self: fail(self, None, 0))
    with MetricsWriter(tmp_path, "online", say=messages.append) as writer:
        writer.write(1, {"x": 1.0})
        writer.mark()
        writer.write(2, {"x": 2.0})
    assert [row["x"] for row in read_metrics(tmp_path)] == [1.0, 2.0]
    assert [line.partition(" takes no more rows")[0] for line in messages] == ["Weights & Biases", "TensorBoard"]
    assert all("\n" not in line and "robot-rl sync" in line for line in messages)


def test_a_resumed_training_goes_on_with_its_run_and_sends_no_row_twice(tmp_path, wandb):
    wandb.start = 4
    with MetricsWriter(tmp_path, "online", name="go2_flat/my.run") as writer:
        for row in make_rows(3, 5):
            writer.write(row["iteration"], row)
    options, *rows, end = wandb.calls
    assert {name: options[name] for name in ("id", "name", "mode", "resume")} == {
        "id": "go2_flat-my.run",
        "name": "go2_flat/my.run",
        "mode": "online",
        "resume": "allow",
    }
    assert (rows, end) == ([(4, 2.0), (5, 2.5)], "finished")


def test_wandb_that_cannot_be_had_is_one_line_and_leaves_the_run_to_others(tmp_path, monkeypatch):
    def init(**options):
        raise RuntimeError("api_key not configured (no-tty)\ncall wandb.login()")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    with pytest.raises(UserError, match=r"metrics\.wandb: 'online' cannot be had \(api_key .*\); log in") as caught:
        MetricsWriter(tmp_path, "online")
    assert "\n" not in str(caught.value)
    MetricsWriter(tmp_path).close()


def test_tensorboard_written_again_holds_every_row_at_its_time(tmp_path):
    board = Board(tmp_path / "tb")
    for row in make_rows(2, 3):
        board.write(row)
    board.close()
    (tmp_path / ".tb.left").mkdir()
    assert sync_tensorboard(tmp_path, make_rows(1, 6), ended=1000.0) == tmp_path / "tb"
    assert scalars(tmp_path / "tb") == [(i, i / 2, 1000.0 - 12.0 + 2.0 * i) for i in range(1, 7)]
    assert [path.name for path in tmp_path.iterdir()] == ["tb"]


def test_a_copy_that_fails_leaves_the_old_one(tmp_path, monkeypatch):
    (tmp_path / "tb").mkdir()
    (tmp_path / "tb" / "events.out.tfevents.old").touch()
    monkeypatch.setattr(Board, "write", lambda self, row, time: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    with pytest.raises(OSError, match="full"):
        sync_tensorboard(tmp_path, make_rows(1, 2), ended=0.0)
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["tb", "tb/events.out.tfevents.old"]


@pytest.mark.parametrize(("mode", "start", "sent"), [("offline", 0, [1, 2, 3]), ("online", 3, [3])])
def test_weights_and_biases_gets_the_rows_that_it_lacks(tmp_path, wandb, mode, start, sent):
    wandb.start = start
    assert sync_wandb(tmp_path, make_rows(1, 3), mode, "t/r") == (len(sent), "wandb/offline-run-1")
    options, *rows, end = wandb.calls
    assert options["mode"] == mode
    assert ("resume" in options) == (mode == "online")
    assert ([step for step, _ in rows], end) == (sent, "finished")


def test_an_id_holds_what_it_can():
    assert wandb_id("gym-Ant-v5/a b:c") == "gym-Ant-v5-a-b-c"
    assert len(wandb_id("x" * 500)) == 128

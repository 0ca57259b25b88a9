"""robot-rl sync: copies of metrics.jsonl written again, and what is refused."""

import shutil
import sys
import threading
from types import SimpleNamespace

import pytest
import yaml

from robot_rl.metrics.rows import NAME, lock


@pytest.fixture
def copied(small_run, in_tmp):
    """A copy of the tiny run of two iterations, in the default place."""
    path = in_tmp / "runs" / "cartpole" / small_run.name
    shutil.copytree(small_run, path)
    return path


@pytest.fixture
def sent(monkeypatch):
    """What a fake wandb received: the options of a run, then its iterations."""
    calls = []
    made = SimpleNamespace(
        log=lambda row, step: calls.append(step), finish=lambda: None, starting_step=0, sync_dir="wandb/offline-run"
    )
    fake = SimpleNamespace(init=lambda **options: (calls.append(options), made)[1])
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return calls


def test_tensorboard_is_written_again_from_the_rows(run, copied):
    shutil.rmtree(copied / "tb")
    code, out, err = run("sync", copied.name)
    assert (code, err) == (0, "")
    assert out == f"TensorBoard: 2 rows in runs/cartpole/{copied.name}/tb\n"
    assert len(list((copied / "tb").iterdir())) == 1


def test_weights_and_biases_offline(run, copied, sent):
    code, out, _ = run("sync", "cartpole/latest", "to=wandb", "metrics.wandb=offline")
    assert code == 0
    assert out == "Weights & Biases: 2 of 2 rows, offline; upload with: wandb sync wandb/offline-run\n"
    options, *steps = sent
    assert (options["name"], options["mode"], steps) == (f"cartpole/{copied.name}", "offline", [1, 2])


def test_both_are_made_where_the_run_was_trained_with_both(run, copied, sent):
    record = yaml.safe_load((copied / "run.yaml").read_text())
    record["config"]["metrics"]["wandb"] = "online"
    (copied / "run.yaml").write_text(yaml.safe_dump(record))
    code, out, _ = run("sync")
    assert code == 0
    assert [line.partition(":")[0] for line in out.splitlines()] == ["TensorBoard", "Weights & Biases"]
    assert sent[0]["mode"] == "online"


def test_lines_that_are_no_rows_are_named(run, copied):
    with (copied / NAME).open("ab") as file:
        file.write(b'{"iteration": 3, "x')
    code, out, _ = run("sync")
    assert code == 0
    assert "1 of 3 lines are damaged" in out.splitlines()[0]
    assert "TensorBoard: 2 rows" in out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("to=tensorbord",), "to=tensorbord: did you mean 'tensorboard'?"),
        (("to=wandb", "metrics.wandb=off"), "metrics.wandb=off: must be offline or online"),
        (("metrics.wandbb=offline",), "unknown key 'metrics.wandbb': did you mean 'metrics.wandb'?"),
        (("nothere",), "run=nothere: no such run in runs"),
    ],
)
def test_what_is_refused(run, copied, words, line):
    code, out, err = run("sync", *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"robot-rl: {line}")
    assert err.count("\n") == 1


def test_a_run_without_rows_and_one_in_training_are_refused(run, copied):
    before = sorted((copied / "tb").iterdir())
    with lock(copied / NAME):
        code, _, err = run("sync")
    assert (code, err.count("another process is writing it")) == (2, 1)
    (copied / NAME).write_bytes(b"\n\xff\n")
    assert run("sync")[0] == 2
    (copied / NAME).unlink()
    code, _, err = run("sync")
    assert (code, err.count("has no metrics.jsonl yet")) == (2, 1)
    assert sorted((copied / "tb").iterdir()) == before


def test_a_full_disk_is_one_line_and_the_old_files_stay(run, copied, monkeypatch):
    from tensorboard.summary.writer.record_writer import RecordWriter

    def full(*_):
        raise OSError(28, "No space left on device")

    before, tracebacks = sorted(path.name for path in copied.rglob("*")), []
    monkeypatch.setattr(threading, "excepthook", tracebacks.append)
    monkeypatch.setattr(RecordWriter, "write", full)
    code, out, err = run("sync", "to=tensorboard")
    assert (code, out, tracebacks) == (74, "", [])
    assert err == "robot-rl: the disk is full: [Errno 28] No space left on device\n"
    assert sorted(path.name for path in copied.rglob("*")) == before


def test_what_somebody_put_into_tb_is_not_removed(run, copied, in_tmp):
    (copied / "tb" / "notes.txt").write_text("precious")
    code, _, err = run("sync", "to=tensorboard")
    assert (code, "holds 'notes.txt', which is not TensorBoard's" in err) == (2, True)
    assert (copied / "tb" / "notes.txt").read_text() == "precious"
    (copied / "tb").rename(in_tmp / "elsewhere")
    (copied / "tb").symlink_to(in_tmp / "elsewhere")
    code, _, err = run("sync", "to=tensorboard")
    assert (code, "tb: is a link or a file" in err) == (2, True)
    assert (copied / "tb").is_symlink()

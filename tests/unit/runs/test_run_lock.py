"""A run's directory at the start: which files are removed, what is set aside, and what is refused."""

import contextlib
import os

import pytest
import torch

from robot_rl.errors import UserError
from robot_rl.learn.checkpoints.checkpoint import save_checkpoint
from robot_rl.metrics.rows import lock, refuse_locked
from robot_rl.runs.run_dir import RunDir
from robot_rl.runs.run_lock import RunLock, check_kinds


def is_locked(path):
    try:
        refuse_locked(path)
    except UserError:
        return True
    return False


def begin(root):
    return RunLock.create(root, "cartpole", 1, "mine")


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.fixture
def left(tmp_path):
    """A run where the checkpoints were renamed, and a file of the user's."""
    path = tmp_path / "runs" / "cartpole" / "mine"
    for name in ("kept/000001/model.safetensors", "tb/events", "policy/policy.onnx", "notes.txt", "run.yaml"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(name)
    (path / "metrics.jsonl").write_text('{"iteration": 1}\n')
    return RunDir(path)


def test_what_was_made_is_removed_and_nothing_else(tmp_path):
    root = tmp_path / "runs"
    with contextlib.suppress(UserError), begin(root) as run_lock:
        run_lock.run_dir.write_config({}, [])
        (run_lock.run_dir.path / "tb").mkdir()
        raise UserError("refused")
    assert list(tmp_path.iterdir()) == []
    notes = root / "cartpole" / "mine" / "notes.txt"
    notes.parent.mkdir(parents=True)
    notes.write_text("x")
    with contextlib.suppress(UserError), begin(root) as run_lock:
        run_lock.run_dir.write_config({}, [])
        raise UserError("refused")
    assert content(root) == {"cartpole": None, "cartpole/mine": None, "cartpole/mine/notes.txt": b"x"}
    notes.unlink()
    with pytest.raises(KeyboardInterrupt), begin(root):
        raise KeyboardInterrupt
    assert notes.parent.is_dir()


def test_what_was_learned_is_kept(tmp_path):
    for name in ("metrics.jsonl", "checkpoints/000001/model.safetensors"):
        with contextlib.suppress(UserError), RunLock.create(tmp_path, "cartpole", 1) as run_lock:
            (run_lock.run_dir.path / name).parent.mkdir(parents=True, exist_ok=True)
            (run_lock.run_dir.path / name).write_text("x")
            raise UserError("too late")
        assert (run_lock.run_dir.path / name).read_text() == "x"


def test_an_earlier_run_is_set_aside_and_reported(tmp_path, left, capsys):
    before = content(left.path)
    with begin(tmp_path / "runs") as run_lock:
        run_lock.report()
    line = capsys.readouterr().err
    assert "begins again; the earlier content (metrics.jsonl, policy, run.yaml, tb) is in earlier-1" in line
    own = {"kept", "notes.txt"}
    moved = {k: v for k, v in before.items() if k.split("/")[0] not in own}
    now = content(left.path)
    assert {k.removeprefix("earlier-1/"): v for k, v in now.items() if k.startswith("earlier-1/")} == moved
    assert {k: v for k, v in now.items() if not k.startswith("earlier-1")} == {
        **{k: v for k, v in before.items() if k.split("/")[0] in own},
        "metrics.jsonl": b"",
    }
    left.config_file.write_text("again")
    begin(tmp_path / "runs").close()
    assert (left.path / "earlier-2" / "run.yaml").read_text() == "again"


def test_where_nothing_is_learned_the_earlier_run_is_back(tmp_path, left):
    before = content(left.path)
    with contextlib.suppress(KeyboardInterrupt), begin(tmp_path / "runs") as run_lock:
        run_lock.run_dir.write_config({}, [])
        (run_lock.run_dir.checkpoints).mkdir()
        raise KeyboardInterrupt
    assert content(left.path) == before
    assert not is_locked(left.metrics_file)


def test_a_run_that_another_process_trains_is_not_touched(tmp_path, left):
    before = content(left.path)
    with lock(left.metrics_file), pytest.raises(UserError, match="another process is writing it"):
        begin(tmp_path / "runs")
    assert content(left.path) == before


def test_the_lock_is_held_until_the_end_and_shared_with_the_rows(tmp_path):
    run_lock = begin(tmp_path)
    run_lock.rows_file().close()
    assert is_locked(run_lock.run_dir.metrics_file)
    run_lock.close()
    assert not is_locked(run_lock.run_dir.metrics_file)


def test_checkpoints_are_never_begun_over(tmp_path, left):
    save_checkpoint(left.checkpoints / "000001", {"w": torch.zeros(1)}, {})
    with pytest.raises(UserError, match="that another process wrote meanwhile; repeat the command"):
        begin(tmp_path / "runs")
    left.config_file.unlink()
    with pytest.raises(UserError, match=r"has checkpoints but no run.yaml.*; put run.yaml back, or choose another run"):
        begin(tmp_path / "runs")
    (left.checkpoints / "000001").rename(left.checkpoints / ".000001-replaced")  # Killed while it saved one again.
    with pytest.raises(UserError, match="has checkpoints"):
        begin(tmp_path / "runs")
    assert not (left.path / "earlier-1").exists()


@pytest.mark.parametrize("name", ["run.yaml", "metrics.jsonl", "checkpoints", "tb", "wandb", "quarantine"])
@pytest.mark.parametrize("kind", ["link", "dangling", "fifo", "other"])
def test_links_pipes_and_the_like_are_refused(tmp_path, name, kind):
    run_dir = RunDir.create(tmp_path / "runs", "cartpole", 1, "mine")
    path, is_file = run_dir.path / name, "." in name
    outside = tmp_path / "outside"
    if kind == "link":
        outside.write_text("x") if is_file else outside.mkdir()
    if kind in ("link", "dangling"):
        path.symlink_to(outside)
    elif kind == "fifo":
        os.mkfifo(path)
    elif is_file:
        path.mkdir()
    else:
        path.write_text("x")
    before = sorted(content(tmp_path)) if kind != "fifo" else None
    for refused in (lambda: check_kinds(run_dir), lambda: begin(tmp_path / "runs"), lambda: RunLock(run_dir)):
        with pytest.raises(UserError, match=rf"{name}: .*must be {'a plain file' if is_file else 'a directory'}"):
            refused()
    assert before is None or sorted(content(tmp_path)) == before


def test_a_run_that_is_a_link_out_of_the_runs_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs" / "cartpole").mkdir(parents=True)
    (tmp_path / "runs" / "cartpole" / "mine").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is a link that leads out of"):
        begin(tmp_path / "runs")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_task_folder_that_is_a_link_out_of_the_runs_is_refused(tmp_path):
    """Where it trained nothing would find the run again: its name leads out of the runs."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "cartpole").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="runs/cartpole: is a link that leads out of"):
        begin(tmp_path / "runs")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_refused_command_leaves_the_notes(run, in_tmp, tiny):
    notes = in_tmp / "runs" / "cartpole" / "mine" / "notes.txt"
    notes.parent.mkdir(parents=True)
    notes.write_text("x")
    code, _, err = run("train", "task=cartpole", *tiny, "run_id=mine", "ppo.minibatches=1000")
    assert (code, "ppo.minibatches" in err) == (2, True)
    assert content(in_tmp / "runs") == {"cartpole": None, "cartpole/mine": None, "cartpole/mine/notes.txt": b"x"}


def test_a_second_training_changes_nothing_of_the_first(run, in_tmp, tiny):
    """As when the first has no checkpoint yet."""
    words = ("task=cartpole", *tiny, "run_id=mine")
    run_dir = RunDir.create("runs", "cartpole", 1, "mine")
    with lock(run_dir.metrics_file):
        run_dir.path.joinpath("tb").mkdir()
        before = content(in_tmp)
        code, _, err = run("train", *words)
        assert (code, "another process is writing it" in err) == (2, True)
        assert content(in_tmp) == before

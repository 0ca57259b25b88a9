"""robot-rl watch: a second process's run is followed, also where it stops or its file is cut."""

import json
import shutil

import pytest

from robot_rl.cluster.watch import NewRows, follow
from robot_rl.metrics.rows import lock
from robot_rl.runs.run_dir import RunDir
from tests.unit.conftest import TINY


def line(iteration, **more):
    return json.dumps({"iteration": iteration, "time_s": float(iteration), **more}) + "\n"


@pytest.fixture
def run_dir(small_run, tmp_path):
    """A copy of a finished run of two iterations."""
    shutil.copytree(small_run, tmp_path / "runs" / "cartpole" / "a")
    return RunDir(tmp_path / "runs" / "cartpole" / "a")


@pytest.mark.long
def test_a_training_in_another_process_is_followed_to_its_end(start_python, run, tmp_path):
    small = [word for word in TINY if not word.startswith("max_iterations=")]
    words = ["-m", "robot_rl.cli.main", "train", "task=cartpole", *small, "max_iterations=4", "run_id=w"]
    process = start_python([*words, f"root={tmp_path}"])
    file = tmp_path / "cartpole" / "w" / "run.yaml"
    while not file.is_file():
        assert process.poll() is None
    code, out, err = run("watch", "w", f"root={tmp_path}")
    process.communicate()
    assert code == 0
    assert out.splitlines()[0] == f"cartpole: 4 iterations -> {file.parent}"
    assert out.splitlines()[-1] == f"done: {file.parent}"
    assert "iteration 4/4" in err
    assert "upright" in err


def test_rows_are_given_once_and_a_half_written_one_when_it_is_whole(tmp_path):
    file = tmp_path / "metrics.jsonl"
    rows = NewRows(file)
    assert rows.read() == []
    file.write_text(line(1) + line(2) + '{"iteration": 3, ')
    assert [row["iteration"] for row in rows.read()] == [2]
    assert rows.read() == []
    with open(file, "a") as stream:
        stream.write('"time_s": 3.0}\n' + "no row\n" + line(4))
    assert [row["iteration"] for row in rows.read()] == [3, 4]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_a_resumed_run_cuts_goes_on_from_there(tmp_path, replaced):
    file = tmp_path / "metrics.jsonl"
    rows = NewRows(file)
    file.write_text("".join(line(k) for k in range(1, 9)))
    rows.read()
    if replaced:
        (tmp_path / "new").write_text("".join(line(k) for k in range(1, 6)))
        (tmp_path / "new").rename(file)
    else:
        file.write_text("".join(line(k) for k in range(1, 6)))
    assert rows.read() == []
    with open(file, "a") as stream:
        stream.write(line(6, again=1) + line(7))
    assert [row["iteration"] for row in rows.read()] == [6, 7]


def test_a_run_that_nobody_trains_is_over_after_a_while_and_one_that_somebody_trains_is_not(run_dir):
    slept, time_s = [], [run_dir.metrics_file.stat().st_mtime]

    def sleep(seconds):
        slept.append(seconds)
        time_s[0] += 10.0
        if len(slept) == 3:
            holders.pop().close()

    holders = [lock(run_dir.metrics_file)]
    found = [row["iteration"] for row in follow(run_dir, 9, sleep=sleep, clock=lambda: time_s[0])]
    assert found == [2]
    assert 4 <= len(slept) <= 5  # 30 s, and not while it is locked


def test_what_is_shown_of_a_run_that_stopped(run, run_dir, monkeypatch):
    from robot_rl.cluster import watch

    monkeypatch.setattr(watch, "PATIENCE_S", 0.0)
    monkeypatch.setattr(watch, "PATIENCE_ROWS", 0.0)
    root = run_dir.path.parents[1]
    text = run_dir.config_file.read_text()
    run_dir.config_file.write_text(text.replace("max_iterations: 2", "max_iterations: 9"))
    code, out, _ = run("watch", f"root={root}")
    assert code == 0
    assert out.splitlines()[-1].startswith(f"after 2 of 9 iterations; robot-rl resume a root={root} continues it")
    run_dir.config_file.write_text(text.replace("max_iterations: 2", "max_iterations: many"))
    code, _, err = run("watch", f"root={root}")
    assert (code, err.count("\n")) == (2, 1)
    assert "max_iterations=many: must be a whole number" in err
    assert run("watch", "nix", f"root={root}")[0] == 2
    run_dir.config_file.write_text(text)
    run_dir.metrics_file.write_bytes(b"\xff\n\x80\0")
    code, _, err = run("watch", f"root={root}")
    assert (code, err.count("\n")) == (2, 1)
    assert "metrics.jsonl: damaged, no row can be read; robot-rl resume a root=" in err

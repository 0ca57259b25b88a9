"""launcher=torchrun with real processes: one is killed, all get a notice, and the run is the undisturbed one."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from robot_rl.drill import differing_rows, differing_tensors, rows_of
from robot_rl.learn.checkpoints.checkpoint import latest_checkpoint
from robot_rl.runs.run_dir import RunDir
from tests.listening import reachable

ITERATIONS = 60
SETTINGS = ("task=cartpole", "num_envs=64", f"max_iterations={ITERATIONS}", "save_interval=5", "launcher=torchrun")


def train(root, name, *words):
    return subprocess.Popen(
        [sys.executable, "-m", "robot_rl.cli.main", "train", *SETTINGS, "launcher.ranks=2", f"run_id={name}", *words],
        cwd=root,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def iterations(path):
    try:
        return [json.loads(line)["iteration"] for line in (path / "metrics.jsonl").read_bytes().splitlines()]
    except (OSError, ValueError):
        return []


def wait_for(process, path, count):
    deadline = time.monotonic() + 120
    while len(iterations(path)) < count:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def workers(process):
    """Return the processes of the run by rank: the server that forks them starts them in this order."""
    found = [child for child in psutil.Process(process.pid).children(recursive=True) if child.ppid() != process.pid]
    return sorted(found, key=lambda child: child.create_time())


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A directory with an undisturbed run of two processes."""
    root = tmp_path_factory.mktemp("torchrun")
    process = train(root, "undisturbed")
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output
    assert "2 processes" in output
    return root


def check_same(root, name):
    """Check that a run has each iteration once, and the bits of the undisturbed one."""
    mine, other = (RunDir(root / "runs/cartpole" / run) for run in (name, "undisturbed"))
    assert iterations(mine.path) == list(range(1, ITERATIONS + 1))
    assert differing_tensors(latest_checkpoint(mine.path), latest_checkpoint(other.path)) == []
    assert differing_rows(rows_of(mine.path), rows_of(other.path), 0) == []


def test_killed_processes_are_replaced_and_the_run_is_the_same(root):
    process, seen = train(root, "killed"), set()
    for rank, count in ((0, 12), (1, 32)):
        wait_for(process, root / "runs/cartpole/killed", count)
        seen |= reachable(process.pid)
        workers(process)[rank].kill()
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output
    for restart in (1, 2):
        line = f"a process was lost; all start again from the newest checkpoint (restart {restart})"
        assert line in output
    check_same(root, "killed")
    assert seen == set()  # Nothing listened to other machines.


@pytest.mark.long
def test_a_notice_saves_ends_with_its_code_and_the_same_command_goes_on(root):
    path = root / "runs/cartpole/notice"
    for number, code, count in ((signal.SIGTERM, 85, 12), (signal.SIGINT, 130, 32)):
        process = train(root, "notice")
        wait_for(process, path, count)
        os.killpg(process.pid, number)  # To everything that the command started, as Ctrl-C and schedulers do.
        output, _ = process.communicate(timeout=180)
        assert process.returncode == code, output
        done = iterations(path)
        assert int(latest_checkpoint(path).name) == len(done) < ITERATIONS  # No iteration has to be done again.
    process = train(root, "notice")
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output
    check_same(root, "notice")


@pytest.mark.long
def test_processes_do_not_outlive_a_killed_launcher_and_the_same_command_goes_on(root):
    process = train(root, "orphans")
    path = root / "runs/cartpole/orphans"
    wait_for(process, path, 12)
    mine = workers(process)
    process.kill()
    process.communicate()
    assert psutil.wait_procs(mine, timeout=60)[1] == []
    assert int(latest_checkpoint(path).name) == len(iterations(path))
    process = train(root, "orphans")
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output
    check_same(root, "orphans")


@pytest.mark.long
def test_a_refused_setting_is_one_line_without_another_attempt(root):
    process = train(root, "refused", "init_from=undisturbed", "actor.hidden=[8]")
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 2, output
    assert "restart" not in output
    assert not (root / "runs/cartpole/refused").exists()


@pytest.mark.long
def test_nothing_is_left_running(root):
    mine = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, FileNotFoundError):  # It ended meanwhile.
            mine += [process.cmdline()] if process.cwd() == str(root) else []
    assert mine == []

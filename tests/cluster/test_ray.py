"""launcher=ray on a real cluster: processes, machines and the command are killed, a notice comes, a job is sent."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from robot_rl.drill import differing_rows, differing_tensors, rows_of
from robot_rl.learn.checkpoints.checkpoint import latest_checkpoint
from robot_rl.runs.run_dir import RunDir
from tests.cluster.ray_cluster import Clusters, rows, wait_until
from tests.listening import reachable

SMALL = ("task=cartpole", "num_envs=64", "num_threads=1", "save_interval=10")


@pytest.fixture(scope="module")
def clusters():
    with Clusters(dashboard=True) as clusters:
        yield clusters


@pytest.fixture
def cluster(clusters):
    return clusters.idle()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("root")


def last(path):
    found = rows(path)
    return found[-1] if found else {"iteration": 0, "ranks": 0}


def train(cluster, root, name, iterations, *words):
    """Start a training of two machines with one process each."""
    more = (f"max_iterations={iterations}", f"run_id={name}", "launcher=ray", "launcher.nodes=2")
    return cluster.run(root, "train", *SMALL, *more, f"launcher.address={cluster.address}", *words)


def finish(process, path, iterations, code=0):
    """Wait for a training, and check that it did each iteration once; return what it printed."""
    output, _ = process.communicate(timeout=240)
    assert process.returncode == code, output
    assert [row["iteration"] for row in rows(path)] == list(range(1, iterations + 1)), output
    return output


def end(process, path):
    """Let a training take three more iterations, end it by a signal, and return what it printed.

    Each iteration was done once.
    """
    before = last(path)["iteration"]
    wait_until(lambda: last(path)["iteration"] >= before + 3, process=process)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 85, output
    assert [row["iteration"] for row in rows(path)] == list(range(1, last(path)["iteration"] + 1)), output
    return output


@pytest.mark.long
def test_killed_processes_are_replaced_and_the_run_is_the_same(cluster, root):
    for name in ("undisturbed", "killed"):
        path = root / "runs/cartpole" / name
        process = train(cluster, root, name, 40)
        if name == "killed":
            wait_until(lambda path=path: last(path)["iteration"] >= 14, process=process)
            os.kill(next(iter(cluster.workers().values())).pid, signal.SIGKILL)
        output = finish(process, path, 40)
        assert ("a process was lost; all start again" in output) == (name == "killed")
    mine, other = (RunDir(root / "runs/cartpole" / name) for name in ("killed", "undisturbed"))
    assert differing_tensors(latest_checkpoint(mine.path), latest_checkpoint(other.path)) == []
    assert differing_rows(rows_of(mine.path), rows_of(other.path), 0) == []
    assert {(row["ranks"], row["num_envs"], row["batch"]) for row in rows(mine.path)} == {(2, 64, 1024)}
    wait_until(lambda: cluster.busy() == [])


def test_a_lost_machine_leaves_a_smaller_group_that_grows_again(cluster, root):
    path = root / "runs/cartpole/lost"
    process = train(cluster, root, "lost", 2000, "launcher.min_nodes=1")
    wait_until(lambda: last(path)["iteration"] >= 14, process=process)
    cluster.kill_node(cluster.raylets[-1])
    wait_until(lambda: last(path)["ranks"] == 1, process=process)
    cluster.add_node()
    seen = []
    wait_until(lambda: seen.append(last(path)) or seen[-1]["ranks"] == 2, process=process)
    numbers = [row["iteration"] for row in seen]
    assert numbers == sorted(numbers)  # To grow, it saved first.
    output = end(process, path)
    assert "a machine has joined the cluster" in output
    assert {(row["ranks"], row["num_envs"]) for row in rows(path)} == {(1, 64), (2, 64)}


@pytest.mark.long
def test_a_notice_saves_and_the_killed_command_goes_on(cluster, root):
    path = root / "runs/cartpole/notice"
    process = train(cluster, root, "notice", 2000, "launcher.min_nodes=1")
    wait_until(lambda: last(path)["iteration"] >= 12, process=process)
    cluster.drain(cluster.raylets[-1])
    seen = []
    wait_until(lambda: seen.append(last(path)) or seen[-1]["ranks"] == 1, process=process)
    numbers = [row["iteration"] for row in seen]
    assert numbers == sorted(numbers)  # No iteration was done twice.
    process.kill()
    process.communicate()
    wait_until(lambda: cluster.busy() == [])
    cluster.kill_node(cluster.raylets[-1])
    cluster.add_node()
    process = train(cluster, root, "notice", 2000, "launcher.min_nodes=1")
    wait_until(lambda: last(path)["ranks"] == 2, process=process)
    output = end(process, path)
    assert "2 processes" in output
    wait_until(lambda: cluster.busy() == [])


@pytest.mark.long
def test_a_signal_saves_on_all_machines_and_the_same_command_goes_on(cluster, root):
    path = root / "runs/cartpole/signal"
    process = train(cluster, root, "signal", 200)
    wait_until(lambda: last(path)["iteration"] >= 3, process=process)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 85, output
    assert int(latest_checkpoint(path).name) == last(path)["iteration"]
    assert not (path / "stop").exists()
    done = last(path)["iteration"]
    finish(train(cluster, root, "signal", done + 5), path, done + 5)


@pytest.mark.long
def test_a_job_trains_without_the_command_that_submitted_it(cluster, root):
    path = root / "runs/cartpole/job"
    words = ("run_id=job", "max_iterations=15", "launcher=ray", f"launcher.address={cluster.dashboard}")
    process = cluster.run(root, "train", *SMALL, *words)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert "job raysubmit_" in output
    job = json.loads((path / "job.json").read_text())
    assert job["launcher"] == "ray"
    wait_until(lambda: last(path)["iteration"] == 15, 120)
    watch = cluster.run(root, "watch", "job")
    output, _ = watch.communicate(timeout=60)
    assert watch.returncode == 0, output


@pytest.mark.long
def test_a_sweep_is_as_many_runs_at_once_as_there_is_room_for(cluster, root):
    words = ("-m", *SMALL, "seed=1,2,3", "'run_id=sweep-${seed}'".strip("'"), "max_iterations=4")
    process = cluster.run(root, "train", *words, "launcher=ray", f"launcher.address={cluster.address}")
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 0, output
    for seed in (1, 2, 3):
        assert f"sweep-{seed}: exit code 0" in output
        assert last(root / f"runs/cartpole/sweep-{seed}")["iteration"] == 4
    wait_until(lambda: cluster.busy() == [])


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("launcher.cpus=64",), "launcher.cpus=64: a process needs 64 CPU, the cluster has 2"),
        (("launcher.gpus=8",), "launcher.gpus=8: a process needs 8 GPU, the cluster has 0"),
    ],
)
def test_more_than_the_cluster_has_is_one_line(cluster, root, words, line):
    address = f"launcher.address={cluster.address}"
    process = cluster.run(root, "train", *SMALL, "run_id=refused", "launcher=ray", "launcher.ranks=1", address, *words)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 2, output
    assert output.count("\n") == 1
    assert line in output
    assert not (root / "runs/cartpole/refused").exists()


@pytest.fixture
def short():
    """A directory with a path that Ray's sockets fit into."""
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        yield folder


@pytest.mark.long
@pytest.mark.parametrize("processes", ["launcher.nodes=2", "launcher.ranks=2"])
def test_without_a_cluster_one_is_started_and_ended(root, short, processes):
    name = processes.replace("=", "-")
    environ = {**os.environ, "RAY_TMPDIR": short, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "robot_rl.cli.main", "train", *SMALL, f"run_id={name}", "max_iterations=3"]
    command += ["launcher=ray", processes, "launcher.address=local"]
    with open(f"{short}/output", "w+") as output:
        process, seen = subprocess.Popen(command, cwd=root, env=environ, stdout=output, stderr=output), set()
        while process.poll() is None:
            seen |= reachable(process.pid)
            time.sleep(0.2)
        output.seek(0)
        assert process.returncode == 0, output.read()
    assert seen == set()  # Nothing listened to other machines.
    assert last(root / "runs/cartpole" / name)["ranks"] == 2

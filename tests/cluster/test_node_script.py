"""The processes of a pod, started by the shell of a manifest: a notice ends them with 85, the same pod goes on."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from robot_rl.cluster.manifests import processes
from robot_rl.cluster.manifests.job import ClusterJob
from robot_rl.learn.checkpoints.checkpoint import latest_checkpoint
from robot_rl.runs.run_dir import RunDir

pytestmark = pytest.mark.long

ITERATIONS = 30
SETTINGS = ("task=cartpole", "num_envs=64", f"max_iterations={ITERATIONS}", "save_interval=5", "num_threads=1")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def frozen(tmp_path):
    """A run that was frozen and has not begun."""
    words = [sys.executable, "-m", "robot_rl.cli.main", "train", *SETTINGS, "launcher=freeze", "launcher.ranks=2"]
    subprocess.run([*words, "run_id=mine"], cwd=tmp_path, check=True, capture_output=True, timeout=180)
    return RunDir(tmp_path / "runs/cartpole/mine")


@pytest.fixture
def pod(frozen, tmp_path):
    """Starts the pod of the manifest, with an address of this machine."""
    program = tmp_path / "robot-rl"
    program.write_text(f'#!/bin/bash\nexec {sys.executable} -m robot_rl.cli.main "$@"\n')
    program.chmod(0o755)
    job = ClusterJob(run_id="mine", task="cartpole", ranks=2, mount=str(frozen.path.parent.parent))

    def start():
        variables = processes.variables(job, "127.0.0.1") | {"NODE_RANK": "0", "MASTER_PORT": str(free_port())}
        surroundings = {**os.environ, **variables, "PATH": f"{tmp_path}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            processes.command(job), env=surroundings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    return start


def test_a_notice_ends_the_pod_with_85_and_the_next_one_goes_on(frozen, pod):
    process = pod()
    deadline = time.monotonic() + 120
    while not frozen.metrics_file.exists() or len(frozen.metrics_file.read_bytes().splitlines()) < 6:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 85, output
    done = int(latest_checkpoint(frozen.path).name)
    assert done == len(frozen.metrics_file.read_bytes().splitlines()) < ITERATIONS
    process = pod()
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output
    assert int(latest_checkpoint(frozen.path).name) == ITERATIONS

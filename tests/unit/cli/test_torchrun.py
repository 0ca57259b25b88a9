"""The command line under torchrun: one run of several processes, stopped by Ctrl-C, resumed by a single one."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from robot_rl.sim2sim.link import free_ports

pytestmark = pytest.mark.long

LAUNCH = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")
SURROUNDINGS = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def torchrun(*words, cwd):
    return subprocess.Popen(
        [*LAUNCH, "robot_rl.cli.main", *words],
        cwd=cwd,
        env={**os.environ, **SURROUNDINGS},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def rows(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def wait_for_rows(process, directory, count):
    """Return the run's directory once so many iterations are written down."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        for run in directory.glob("runs/cartpole/*"):
            if (run / "metrics.jsonl").is_file() and len(rows(run)) >= count:
                return run
        if process.poll() is not None:
            break
        time.sleep(0.2)
    process.kill()
    raise AssertionError(process.communicate()[0])


def test_a_run_of_two_is_stopped_and_resumed_by_one(in_tmp, run, tiny):
    process = torchrun("train", "task=cartpole", *tiny.but("max_iterations=100000"), "save_interval=100000", cwd=in_tmp)
    path = wait_for_rows(process, in_tmp, 3)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=300)
    done = len(rows(path))
    assert output.count("4 worlds, mujoco on cpu, seed 1, 2 processes") == 1
    for who in ("robot-rl:", "robot-rl (process 1):"):  # Asked in whatever iterations, both end after the same.
        assert f"{who} interrupted after iteration {done}; the state is saved" in output
    assert rows(path)[-1]["env_steps"] == done * 4 * 4
    assert [checkpoint.name for checkpoint in (path / "checkpoints").iterdir()] == [f"{done:06d}"]
    meta = json.loads((path / "checkpoints" / f"{done:06d}" / "meta.json").read_text())
    assert meta["processes"] == 2
    code, _, err = run("resume", path.name, f"max_iterations={done + 2}")
    assert (code, "num_envs=4 in 1 process: the run has 4 in 2 processes" in err) == (2, True)
    code, _, err = run("resume", path.name, f"max_iterations={done + 2}", "allow_resize=true")
    assert code == 0, err
    assert "4 worlds in 2 processes become 4 in 1 process: the first 4 continue, 0 begin again" in err
    assert [row["iteration"] for row in rows(path)] == list(range(1, done + 3))
    assert rows(path)[-1]["env_steps"] == (done + 2) * 4 * 4
    assert len(list(in_tmp.glob("runs/cartpole/*"))) == 1


def test_worlds_that_cannot_be_divided(start_python, in_tmp, tiny):
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0]), "WORLD_SIZE": "2"}
    words = ["-m", "robot_rl.cli.main", "train", "task=cartpole", *tiny.but("num_envs=5")]
    environs = [{**os.environ, **SURROUNDINGS, **group, "RANK": str(rank)} for rank in range(2)]
    processes = [start_python(words, cwd=in_tmp, env=environ) for environ in environs]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert "robot-rl: num_envs=5: must be a multiple of the 2 processes that train together" in outputs[0]
    assert [process.returncode for process in processes] == [2, 2], outputs
    assert not list(in_tmp.glob("runs/*/*"))

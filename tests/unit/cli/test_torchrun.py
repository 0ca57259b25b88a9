"""The command line under torchrun: one run of several processes, stopped by Ctrl-C, resumed by one alone."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from robot_rl.cli.settings import resolve_device
from robot_rl.cli.train import notices
from robot_rl.errors import UserError

pytestmark = pytest.mark.slow

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
    process = torchrun("train", "task=cartpole", *tiny, "max_iterations=100000", "save_interval=100000", cwd=in_tmp)
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
    assert code == 0, err
    assert [row["iteration"] for row in rows(path)] == list(range(1, done + 3))
    assert rows(path)[-1]["env_steps"] == (done + 2) * 4 * 4
    assert len(list(in_tmp.glob("runs/cartpole/*"))) == 1


def test_worlds_that_cannot_be_divided(in_tmp, tiny):
    output, _ = torchrun("train", "task=cartpole", *tiny, "num_envs=5", cwd=in_tmp).communicate(timeout=300)
    assert "robot-rl: num_envs=5: must be a multiple of the 2 processes that train together" in output
    assert not list(in_tmp.glob("runs/*/*"))


def test_each_process_of_a_machine_has_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert [resolve_device(name) for name in ("auto", "cuda", "cuda:1")] == ["cuda:0", "cuda:0", "cuda:1"]
    told = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert [resolve_device(name) for name in ("auto", "cuda", "cuda:0")] == ["cuda:1"] * 3
    assert resolve_device("cpu") == "cpu"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    with pytest.raises(UserError, match="device=auto: 3 processes on this machine, 2 GPUs; start as many as GPUs"):
        resolve_device("auto")


def test_what_another_process_has_to_say_is_told(capsys):
    class Env:
        def pop_notices(self):
            return ["world 7: quarantined"]

    notices(Env(), 3)({"iteration": 1})
    assert capsys.readouterr().err == "robot-rl (process 3): world 7: quarantined\n"

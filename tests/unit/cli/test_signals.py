"""Signals to a training, and what the process exits with: saved and to be requeued, interrupted, stopped at once."""

import json
import os
import signal
import time

import pytest

from robot_rl.cli import progress
from robot_rl.errors import ExitCode
from robot_rl.learn import make

MANY = "max_iterations=1000000"
TAKEN = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


@pytest.fixture
def train(run, in_tmp, tiny, monkeypatch):
    """Trains, with signals to itself after the second iteration; returns the exit code, the last line and the run."""

    def call(*numbers):
        shown = progress.Progress.__call__

        def show(self, row):
            shown(self, row)
            if row["iteration"] == 2:
                for number in numbers:
                    os.kill(os.getpid(), number)
                    time.sleep(0.15)  # The same sooner is taken for an echo.

        monkeypatch.setattr(progress.Progress, "__call__", show)
        before = [signal.getsignal(number) for number in TAKEN]
        code, _, err = run("train", "task=cartpole", *tiny.but(MANY))
        assert [signal.getsignal(number) for number in TAKEN] == before
        (path,) = in_tmp.glob("runs/cartpole/*")
        return code, err.splitlines()[-1], path

    return call


@pytest.mark.parametrize(
    ("number", "code", "by"),
    [
        (signal.SIGTERM, ExitCode.REQUEUE, " by SIGTERM"),
        (signal.SIGUSR1, ExitCode.REQUEUE, " by SIGUSR1"),
        (signal.SIGINT, ExitCode.INTERRUPTED, ""),
    ],
)
def test_the_first_signal_saves_after_the_iteration(train, number, code, by):
    exit_code, line, path = train(number)
    assert exit_code == code
    assert line == (
        f"robot-rl: interrupted{by} after iteration 2; the state is saved, go on with: robot-rl resume {path.name}"
    )
    (checkpoint,) = (path / "checkpoints").iterdir()
    assert json.loads((checkpoint / "meta.json").read_text())["iteration"] == 2


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (signal.SIGTERM, signal.SIGTERM, 143),
        (signal.SIGTERM, signal.SIGINT, 130),
        (signal.SIGINT, signal.SIGUSR1, 138),
        (signal.SIGINT, signal.SIGINT, 130),
    ],
)
def test_a_second_signal_stops_at_once(train, first, second, code):
    exit_code, line, path = train(first, second)
    assert exit_code == code
    assert line.startswith("robot-rl: interrupted")
    assert "saved" not in line
    assert not (path / "checkpoints").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_before_the_first_iteration_is_requeued_and_leaves_nothing(run, in_tmp, tiny, monkeypatch, number):
    monkeypatch.setattr(make, "make_runner", lambda *_, **__: os.kill(os.getpid(), number))
    code, _, err = run("train", "task=cartpole", *tiny)
    assert (code, err.count("\n")) == (ExitCode.REQUEUE, 1)
    assert err == f"robot-rl: interrupted by {signal.Signals(number).name} before an iteration was finished\n"
    assert not (in_tmp / "runs").exists()


@pytest.mark.slow
def test_a_scheduler_that_signals_every_process_of_a_job(in_tmp, tiny, start_python):
    """The worlds are processes, too; they live on until the iteration is over."""
    pytest.importorskip("gymnasium")
    words = ["train", "task=gym:CartPole-v1", "vectorization=async", "ppo.minibatches=1"]
    words += [word for word in tiny.but(MANY) if not word.startswith("num_threads")]
    process = start_python(["-m", "robot_rl.cli.main", *words], start_new_session=True)
    try:
        assert any(line.startswith("iteration 1/") for line in process.stdout)
        os.killpg(process.pid, signal.SIGTERM)
        rest, _ = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == ExitCode.REQUEUE
    assert "interrupted by SIGTERM after iteration" in rest.splitlines()[-1]
    (checkpoint,) = in_tmp.glob("runs/*/*/checkpoints/*")
    assert checkpoint.is_dir()

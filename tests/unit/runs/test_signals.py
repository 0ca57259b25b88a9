"""Signals to a training, and what the process exits with: saved and to be requeued, interrupted, stopped at once."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from robot_rl.errors import ExitCode
from robot_rl.learn import make_trainer as making
from robot_rl.processes import SIGNALS
from robot_rl.runs import progress

MANY = "max_iterations=1000000"


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
        before = [signal.getsignal(number) for number in SIGNALS]
        code, _, err = run("train", "task=cartpole", *tiny.but(MANY))
        assert [signal.getsignal(number) for number in SIGNALS] == before
        (path,) = in_tmp.glob("runs/cartpole/*")
        return code, err.splitlines()[-1], path

    return call


@pytest.mark.parametrize(
    ("number", "code", "by"),
    [
        (signal.SIGTERM, ExitCode.REQUEUE, " by SIGTERM"),
        (signal.SIGUSR1, ExitCode.REQUEUE, " by SIGUSR1"),
        (signal.SIGUSR2, ExitCode.REQUEUE, " by SIGUSR2"),
        (signal.SIGHUP, ExitCode.REQUEUE, " by SIGHUP"),
        (signal.SIGINT, ExitCode.INTERRUPTED, ""),
    ],
)
def test_the_first_signal_saves_after_the_iteration(train, number, code, by):
    exit_code, line, path = train(number)
    assert exit_code == code
    assert line == (
        f"robot-rl: interrupted{by} after iteration 2; the state is saved, continue with: robot-rl resume {path.name}"
    )
    (checkpoint,) = (path / "checkpoints").iterdir()
    assert json.loads((checkpoint / "meta.json").read_text())["iteration"] == 2


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (signal.SIGTERM, signal.SIGTERM, 143),
        pytest.param(signal.SIGTERM, signal.SIGINT, 130, marks=pytest.mark.long),
        pytest.param(signal.SIGINT, signal.SIGUSR1, 138, marks=pytest.mark.long),
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
    monkeypatch.setattr(making, "make_trainer", lambda *_, **__: os.kill(os.getpid(), number))
    code, _, err = run("train", "task=cartpole", *tiny)
    assert (code, err.count("\n")) == (ExitCode.REQUEUE, 1)
    assert err == f"robot-rl: interrupted by {signal.Signals(number).name} before an iteration was finished\n"
    assert not (in_tmp / "runs").exists()


@pytest.mark.long
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


def _wait_until_handled(pid: int) -> None:
    """Wait until the process handles its signals: in the first instants of the interpreter the default action holds."""
    for _ in range(3000):
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        if int(fields["SigCgt"], 16) >> (signal.SIGUSR2 - 1) & 1:
            return
        time.sleep(0.01)
    raise AssertionError("no handler within 30 s")


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "code", "delays"),
    [(signal.SIGTERM, 85, (0.0, 1.0, 2.5)), (signal.SIGINT, 130, (0.3, 1.7)), (signal.SIGHUP, 85, (1.3,))],
)
def test_a_signal_at_any_moment_of_the_start(in_tmp, tiny, number, code, delays):
    """In the middle of imports as well: one line, the exit code, nothing left behind."""
    for delay in delays:
        words = [sys.executable, "-m", "robot_rl.cli.main", "train", "task=cartpole", *tiny.but(MANY)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        _wait_until_handled(process.pid)
        time.sleep(delay)
        process.send_signal(number)
        _, err = process.communicate(timeout=300)
        assert process.returncode == code, err
        assert "Traceback" not in err
        if "after iteration" not in err:
            assert (err.count("\n"), "before an iteration was finished" in err) == (1, True)
            assert not (in_tmp / "runs").exists()


def test_what_an_import_makes_of_a_signal_is_still_the_signal(run, in_tmp, tiny, monkeypatch):
    """An exception that a signal raised may be swallowed, or come out as another."""

    def break_import(*_, **__):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt:
            raise ImportError("half of a module") from None

    monkeypatch.setattr(making, "make_trainer", break_import)
    code, _, err = run("train", "task=cartpole", *tiny)
    assert (code, err) == (85, "robot-rl: interrupted by SIGTERM before an iteration was finished\n")
    assert not (in_tmp / "runs").exists()

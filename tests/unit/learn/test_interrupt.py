"""Requests to stop: which signal, how often, and what is left of it afterwards."""

import os
import signal
import threading
from types import SimpleNamespace

import pytest

from robot_rl.errors import ExitCode, Interrupted
from robot_rl.learn import interrupt
from robot_rl.learn.interrupt import StopRequest
from robot_rl.processes import SIGNALS

ME = os.getpid()


def handlers():
    return [signal.getsignal(number) for number in SIGNALS]


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_a_request_and_the_handlers_are_given_back(number):
    before = handlers()
    with StopRequest() as request:
        assert not request.requested
        os.kill(ME, number)
        assert (request.requested, request.signal) == (True, number)
    assert handlers() == before


@pytest.fixture
def clock(monkeypatch):
    """Sets the time that passes between one signal and the next [s]."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)

    state = SimpleNamespace(now=100.0, step=0.0)

    def monotonic():
        state.now += state.step
        return state.now

    monkeypatch.setattr(interrupt, "time", SimpleNamespace(monotonic=monotonic))
    return lambda seconds: setattr(state, "step", seconds)


@pytest.mark.parametrize("second", [number for number in SIGNALS if number != signal.SIGHUP])
def test_the_second_does_not_wait_and_the_third_is_the_systems(clock, second):
    before = handlers()
    clock(0.15)
    with StopRequest() as request:
        os.kill(ME, signal.SIGTERM)
        with pytest.raises(Interrupted) as caught:
            os.kill(ME, second)
        assert handlers() == [signal.SIG_DFL] * len(SIGNALS)
    assert (request.signal, caught.value.signal, caught.value.saved) == (signal.SIGTERM, second, False)
    assert handlers() == before


@pytest.mark.parametrize(("first", "second"), [(signal.SIGTERM, signal.SIGUSR1), (signal.SIGINT, signal.SIGINT)])
def test_another_signal_or_ctrl_c_is_no_echo(clock, first, second):
    clock(0.0)
    with StopRequest() as request:
        os.kill(ME, first)
        with pytest.raises(Interrupted):
            os.kill(ME, second)
    assert request.signal == first


@pytest.mark.parametrize(("processes", "in_slurm", "step"), [(1, False, 0.03), (2, False, 0.9), (1, True, 0.9)])
def test_the_echo_of_a_signal_is_no_second_one(clock, monkeypatch, processes, in_slurm, step):
    """As `timeout` sends it twice, or a scheduler and torchrun; later it is one."""
    if in_slurm:
        monkeypatch.setenv("SLURM_JOB_ID", "7")
    clock(step)
    with StopRequest(processes) as request:
        for _ in range(3):
            os.kill(ME, signal.SIGTERM)
        assert request.signal == signal.SIGTERM
        clock(10.0)
        with pytest.raises(Interrupted):
            os.kill(ME, signal.SIGTERM)


def test_a_terminal_that_goes_is_never_a_second_notice(clock):
    """Closing a session sends SIGTERM and SIGHUP together, and a shell passes its SIGHUP on."""
    clock(10.0)
    with StopRequest() as request:
        os.kill(ME, signal.SIGTERM)
        os.kill(ME, signal.SIGHUP)
        os.kill(ME, signal.SIGHUP)
        assert request.signal == signal.SIGTERM


def test_an_ignored_hangup_stays_ignored():
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest() as request:
            os.kill(ME, signal.SIGHUP)
            assert not request.requested
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_nothing_is_taken_over_outside_the_main_thread():
    before, seen = handlers(), []

    def work():
        with StopRequest() as request:
            seen.append((handlers() == before, request.requested))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(True, False)]


def test_handlers_that_python_does_not_know_become_the_systems(monkeypatch):
    """As of a library in another language, which is None here."""
    real, given = signal.signal, []

    def take(number, handler):
        given.append(handler)
        real(number, handler)

    before = handlers()
    monkeypatch.setattr(signal, "signal", take)
    with StopRequest():
        pass
    assert given[len(SIGNALS) :] == [signal.SIG_DFL] * len(SIGNALS)
    for number, handler in zip(SIGNALS, before, strict=True):
        real(number, handler)


@pytest.mark.parametrize(
    ("number", "saved", "code"),
    [
        (signal.SIGINT, True, ExitCode.INTERRUPTED),
        (signal.SIGINT, False, ExitCode.INTERRUPTED),
        (signal.SIGTERM, True, ExitCode.REQUEUE),
        (signal.SIGUSR1, True, ExitCode.REQUEUE),
        (signal.SIGUSR2, True, ExitCode.REQUEUE),
        (signal.SIGHUP, True, ExitCode.REQUEUE),
        (signal.SIGTERM, False, 143),
        (signal.SIGUSR1, False, 138),
    ],
)
def test_the_exit_code_depends_on_whether_the_state_was_saved(number, saved, code):
    assert Interrupted(None, 3, number, saved=saved).exit_code == code

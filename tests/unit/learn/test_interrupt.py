"""Requests to stop: which signal, how often, and what is left of it afterwards."""

import os
import signal
import threading

import pytest

from robot_rl.errors import ExitCode, Interrupted
from robot_rl.learn.interrupt import SIGNALS, StopRequest

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


@pytest.mark.parametrize("second", SIGNALS)
def test_the_second_does_not_wait_and_the_third_is_the_systems(second):
    before = handlers()
    with StopRequest() as request:
        os.kill(ME, signal.SIGTERM)
        with pytest.raises(Interrupted) as caught:
            os.kill(ME, second)
        assert handlers() == [signal.SIG_DFL] * 3
    assert (request.signal, caught.value.signal, caught.value.saved) == (signal.SIGTERM, second, False)
    assert handlers() == before


@pytest.mark.parametrize(("first", "second"), [(signal.SIGTERM, signal.SIGUSR1), (signal.SIGINT, signal.SIGINT)])
def test_an_echo_is_no_second_signal_but_another_or_ctrl_c_is(first, second):
    with StopRequest(echo_s=1000.0) as request:
        for _ in range(1 if first == signal.SIGINT else 3):
            os.kill(ME, first)
        assert request.signal == first
        with pytest.raises(Interrupted):
            os.kill(ME, second)


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
    assert given[3:] == [signal.SIG_DFL] * 3
    for number, handler in zip(SIGNALS, before, strict=True):
        real(number, handler)


@pytest.mark.parametrize(
    ("number", "saved", "code"),
    [
        (signal.SIGINT, True, ExitCode.INTERRUPTED),
        (signal.SIGINT, False, ExitCode.INTERRUPTED),
        (signal.SIGTERM, True, ExitCode.REQUEUE),
        (signal.SIGUSR1, True, ExitCode.REQUEUE),
        (signal.SIGTERM, False, 143),
        (signal.SIGUSR1, False, 138),
    ],
)
def test_the_exit_code_says_whether_the_state_was_saved(number, saved, code):
    assert Interrupted(None, 3, number, saved=saved).exit_code == code

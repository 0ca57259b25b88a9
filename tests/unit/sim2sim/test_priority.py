"""The priority of a thread that keeps time: real time where that is permitted, else a better niceness, and back."""

import os

import pytest

from robot_rl.sim2sim import binary


@pytest.fixture
def calls(monkeypatch):
    """What was requested of the system, without an effect on this process."""
    found = []
    monkeypatch.setattr(os, "setpriority", lambda which, who, value: found.append(("niceness", value)))
    monkeypatch.setattr(
        os, "sched_setscheduler", lambda who, policy, param: found.append((policy, param.sched_priority))
    )
    return found


def test_a_thread_that_keeps_time_has_real_time_priority_and_loses_it(calls):
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with binary.high_priority():
        assert calls == [(os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, binary.REALTIME)]
        del calls[:]
    assert calls == [(os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, 0), ("niceness", before)]


def test_without_permission_it_is_the_niceness(calls, monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with binary.high_priority():
        assert calls == [("niceness", binary.NICENESS)]
    assert calls[1:] == [("niceness", before)]

"""A signal as a request to stop: the current iteration is finished, so that the saved state is complete.

An iteration may take longer than a scheduler waits. One before which the state was copied is given up instead.
"""

from __future__ import annotations

import os
import signal
import time
from types import FrameType

from robot_rl.errors import Interrupted
from robot_rl.processes import Handler, restore_signals, take_signals

ECHO_S, ECHO_IN_A_JOB_S = 0.1, 2.0
"""Time after a first signal other than SIGINT in which the same signal does not count as a second one [s]: `timeout`
sends it to a process and to its group, a scheduler to every process of a job, of which torchrun and srun repeat it."""


class IterationCancelled(BaseException):
    """The current iteration did not end in time after a signal; the state it left is incomplete."""


class StopRequest:
    """While entered, the first of `robot_rl.processes.SIGNALS` sets `requested` and the second raises `Interrupted`.

    A third ends the process. SIGHUP never counts as the second: a vanishing terminal, or systemd, sends it after or
    before another. If it is ignored, as under nohup, it stays ignored. Outside the main thread, where Python allows no
    signal handlers, nothing is handled. `patience_s` after the first signal [s] `IterationCancelled` is raised, if it
    may be; 0: never.

    Attributes:
        signal: the signal that requested the end; 0 before.
        may_give_up: whether `IterationCancelled` may be raised now.
    """

    def __init__(self, processes: int = 1, patience_s: float = 0.0) -> None:
        self.signal, self.may_give_up, self._patience_s = 0, False, patience_s
        is_job = processes > 1 or "SLURM_JOB_ID" in os.environ
        self._echo_s, self._since = ECHO_IN_A_JOB_S if is_job else ECHO_S, 0.0
        self._previous: dict[int, Handler] = {}

    @property
    def requested(self) -> bool:
        """Whether the training shall stop."""
        return self.signal != 0

    def __enter__(self) -> StopRequest:
        """Install the handlers."""
        self._previous = take_signals(self._handle)
        if self._patience_s:
            self._previous |= take_signals(self._give_up, [signal.SIGALRM])
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the handlers before."""
        if signal.SIGALRM in self._previous:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        restore_signals(self._previous)
        self._previous = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self.requested:
            self.signal, self._since = number, now
            if self._patience_s:
                signal.setitimer(signal.ITIMER_REAL, self._patience_s)
            return
        is_echo = number == self.signal != signal.SIGINT and now - self._since < self._echo_s
        if is_echo or number == signal.SIGHUP:
            return
        for other in self._previous:
            if other != signal.SIGALRM:
                signal.signal(other, signal.SIG_DFL)
        raise Interrupted(None, 0, number, saved=False)

    def _give_up(self, number: int, frame: FrameType | None) -> None:
        if self.may_give_up:
            self.may_give_up = False
            raise IterationCancelled

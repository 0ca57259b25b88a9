"""Run a flow on this machine: each step in its own process, its output in a file, the state after every change.

A process gets SIGTERM when this one dies, however it dies. A signal to this one is passed on to each running step;
saving is then up to the training.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from robot_rl.cluster.flow.dag import Flow, Step
from robot_rl.cluster.flow.state import (
    DONE,
    FAILED,
    RUNNING,
    STOPPED,
    FlowState,
    StepState,
    command_digest,
    input_digests,
    is_current,
    output_digests,
    process_ticks,
    remove_outputs,
    stamps,
)
from robot_rl.errors import ExitCode
from robot_rl.processes import name_end, own_environment, restore_signals, take_signals, tied

POLL_S = 0.05
TAIL_BYTES = 4096

View = Callable[[], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How a flow ended.

    Attributes:
        code: The exit code; `robot_rl.errors.ExitCode`.
        line: One line about the failure or the reason it stopped; empty if all is done.
    """

    code: int
    line: str = ""


@dataclass(kw_only=True, slots=True)
class Running:
    """A step that runs."""

    step: Step
    process: subprocess.Popen[bytes]
    log: BinaryIO
    offset: int
    began: float
    before: Mapping[str, object]


class Executor:
    """Run the steps of a flow, as many at a time as `jobs` says.

    Attributes:
        running: The steps that run now, by name.
        kept: Names of steps that were not repeated.
    """

    def __init__(self, flow: Flow, state: FlowState, *, jobs: int = 1, view: View = lambda: None) -> None:
        """Prepare the run of a flow; `view` is called after every change and several times a second."""
        self.flow, self.state, self.jobs = flow, state, jobs
        self.view = view
        self.running: dict[str, Running] = {}
        self.kept: list[str] = []
        self._finished = state.reached
        self._signal, self._is_failure_passed_on = 0, False
        self._received: list[int] = []
        self._failed: Ending | None = None

    def run(self) -> Ending:
        """Run all steps; return how it ended. The state is saved, and nothing is left running."""
        state = self.state
        state.steps = {step.name: state.steps.get(step.name, StepState()) for step in self.flow.steps}
        state.wait_for_leftovers()
        state.state = RUNNING
        state.save()
        with self._signals():
            try:
                self._loop()
            finally:
                self._end_all()
        ending = self._ending()
        stops = (ExitCode.REQUEUE, ExitCode.INTERRUPTED)
        state.state = DONE if ending.code == 0 else STOPPED if ending.code in stops else FAILED
        state.save()
        self.view()
        return ending

    def last_line(self, name: str) -> str:
        """Return the last line of a running step's output."""
        one = self.running.get(name)
        return "" if one is None else read_tail(self.state.log(name), one.offset)

    def seconds(self, name: str) -> float:
        """Return how long a step ran, or has been running [s]."""
        one = self.running.get(name)
        return self.state.steps[name].seconds if one is None else time.monotonic() - one.began

    def _loop(self) -> None:
        order = self.flow.order()
        while True:
            self._pass_on()
            self._collect()
            if not self._is_ending():
                self._start_ready(order)
            self.view()
            if not self.running and (self._is_ending() or len(self._finished) == len(order)):
                return
            time.sleep(POLL_S)

    def _is_ending(self) -> bool:
        return bool(self._signal) or self._failed is not None

    def _start_ready(self, order: Sequence[Step]) -> None:
        for step in order:
            if len(self.running) >= self.jobs:
                return
            if step.name in self.running or step.name in self._finished:
                continue
            if not all(name in self._finished for name in step.needs()):
                continue
            if is_current(self.flow, step, self.state.steps[step.name]):
                self._finished.add(step.name)
                self.kept.append(step.name)
            else:
                self._start(step)

    def _start(self, step: Step) -> None:
        row, path = self.state.steps[step.name], self.state.log(step.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        for output in step.outputs.values():
            Path(output.path).parent.mkdir(parents=True, exist_ok=True)
        remove_outputs(step)
        before = stamps(step)
        words = self.flow.words(step)
        row.command, row.inputs, row.written = command_digest(self.flow, step), input_digests(self.flow, step), {}
        log = path.open("ab", buffering=0)
        log.write(f"$ {' '.join(words)}\n".encode())
        process = start_process(words, log)
        self.running[step.name] = Running(
            step=step, process=process, log=log, offset=log.tell(), began=time.monotonic(), before=before
        )
        row.state, row.started, row.runs = RUNNING, time.time(), row.runs + 1
        row.code, row.line, row.pid, row.ticks = None, "", process.pid, process_ticks(process.pid)
        self.state.save()
        self.view()

    def _collect(self) -> None:
        for name, one in list(self.running.items()):
            code = one.process.poll()
            if code is None:
                continue
            row = self.state.steps[name]
            one.log.close()
            row.code, row.pid, row.ticks = code, 0, 0
            row.line, row.seconds = read_tail(self.state.log(name), one.offset), time.monotonic() - one.began
            del self.running[name]
            self._judge(one, row)
            self.state.save()
            self.view()

    def _judge(self, one: Running, row: StepState) -> None:
        """Set the state of a step that has ended. What an earlier try wrote and this one did not is missing."""
        step, now = one.step, stamps(one.step)
        assert row.code is not None
        old = [name for name, stamp in one.before.items() if now.get(name) == stamp]
        missing = [name for name, written in output_digests(step).items() if not written or name in old]
        if row.code in step.codes and not missing:
            row.state, row.written = DONE, output_digests(step)
            self._finished.add(step.name)
        elif self._is_ending() or row.code in (ExitCode.REQUEUE, ExitCode.INTERRUPTED):
            row.state = STOPPED
            if not self._is_ending():
                self._failed = Ending(code=row.code, line=f"step {step.name}: was stopped: {row.line}")
        else:
            row.state = FAILED
            self._failed = Ending(code=row.code if row.code > 0 else ExitCode.FAULT, line=self._why(step, row, missing))

    def _why(self, step: Step, row: StepState, missing: Sequence[str]) -> str:
        if row.code == 0:
            path = self.flow.path(step.name, missing[0])
            return f"step {step.name}: did not write {path}; see {self.state.log(step.name)}"
        line = row.line.removeprefix("robot-rl: ")
        if step.gates and row.code == ExitCode.FAULT and line.startswith("gate "):
            return line
        return f"step {step.name}: ended with {name_end(row.code or 0)}: {line}; see {self.state.log(step.name)}"

    def _ending(self) -> Ending:
        if self._failed is not None:
            return self._failed
        if self._signal:
            what = (
                f"interrupted by {signal.Signals(self._signal).name}; resume with: robot-rl flow resume {self._words()}"
            )
            code = ExitCode.INTERRUPTED if self._signal == signal.SIGINT else ExitCode.REQUEUE
            return Ending(code=code, line=what)
        return Ending(code=ExitCode.DONE)

    def _words(self) -> str:
        root = self.state.folder.parent.parent
        return self.flow.id if root == Path("runs") else f"{self.flow.id} root={root}"

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        before = take_signals(self._note)
        try:
            yield
        finally:
            restore_signals(before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signal = self._signal or number
        self._received.append(number)

    def _pass_on(self) -> None:
        """Send each signal that came, and SIGTERM after a failure, to the steps that run."""
        numbers, self._received = self._received, []
        if self._failed is not None and not self._is_failure_passed_on:
            self._is_failure_passed_on = True
            numbers = [signal.SIGTERM, *numbers]
        for number in numbers:
            for one in self.running.values():
                one.process.send_signal(number)

    def _end_all(self) -> None:
        """End the steps that an error in this process left running."""
        for one in self.running.values():
            one.process.terminate()
        for one in self.running.values():
            one.process.wait()
            one.log.close()
        self.running.clear()


def start_process(words: Sequence[str], log: BinaryIO) -> subprocess.Popen[bytes]:
    """Start a step in its own session, so that a terminal's Ctrl-C reaches it only once: through this process."""
    from robot_rl.sim2sim.binary import runtime_environment

    return subprocess.Popen(
        tied(resolve_program(words)),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=own_environment(runtime_environment()),
    )


def resolve_program(words: Sequence[str]) -> list[str]:
    """Return a command with the program that this Python's robot-rl or its runtime stand for."""
    import shutil

    first, *arguments = words
    if first == "robot-rl":
        return [sys.executable, "-m", "robot_rl.cli.main", *arguments]
    if first == "robot-rl-infer":
        from robot_rl.sim2sim.binary import load_runtime

        return [str(load_runtime().binary()), *arguments]
    return [shutil.which(first) or first, *arguments]


def read_tail(path: Path, offset: int) -> str:
    """Return the last line that is not empty in a log after an offset."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(offset, size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = (line.strip() for line in reversed(text.replace("\r", "\n").splitlines()))
    return next((line for line in lines if line), "")

"""The copies of a run in which faults are injected, their recovery, and the comparison with an undisturbed copy."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robot_rl.drill.compare import differing_rows, differing_tensors, read_lines, rows_of
from robot_rl.drill.process import DrillError, First, Training, name_code
from robot_rl.errors import UserError
from robot_rl.learn.checkpoints.checkpoint import latest_checkpoint, list_checkpoints, verify_checkpoint
from robot_rl.runs.run_dir import RunDir

START_S = 180.0
"""Time limit for the start of a process [s]."""
SHOWN = 3
"""Number of lines and differences that are kept of a process."""
SAME = "yes, bit for bit: weights, optimizer, random streams, worlds and rows of metrics"
Rows = Sequence[Mapping[str, Any]]


@dataclass(kw_only=True, slots=True)
class Outcome:
    """The result of a fault.

    Attributes:
        injected: what was done.
        noticed: exit codes and output of the training.
        stepping_s: from the start of the process that recovered until its first step [s]; None without one.
        recovery_s: from its start until its first iteration was done [s].
        lost_iterations: iterations that were repeated.
        lost_s: training time that was lost with them [s].
        same: whether the recovered run equals the undisturbed one, in words.
        wrong: a line for each failed check; the fault was survived if there is none.
    """

    fault: str
    injected: str = ""
    noticed: list[str] = field(default_factory=list)
    stepping_s: float | None = None
    recovery_s: float | None = None
    lost_iterations: int | None = None
    lost_s: float | None = None
    same: str = "not known"
    wrong: list[str] = field(default_factory=list)

    def expect(self, holds: bool, what: str) -> None:
        """Add a line to `wrong` if a check fails."""
        if not holds:
            self.wrong.append(what)


@dataclass(kw_only=True, slots=True)
class RunCopies:
    """The copies of one run, which all continue from the same checkpoint for the same number of iterations.

    Attributes:
        origin: the run; it is only read.
        checkpoint: the checkpoint with which every copy begins.
        work: the directory of the copies.
        start: iterations done in that checkpoint.
        total: iterations at which a copy is done.
        save_interval: iterations between checkpoints.
        iteration_s: approximate time of an iteration [s].
        incomparable: why two copies cannot be compared; empty if they can.
        settings: further settings that change, by name.
    """

    origin: RunDir
    checkpoint: Path
    work: Path
    start: int
    total: int
    save_interval: int
    iteration_s: float
    incomparable: str = ""
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def undisturbed(self) -> RunDir:
        """The copy without a fault, which `reference` trains."""
        return RunDir(self.work / "undisturbed" / self.origin.task / self.origin.run_id)

    @property
    def patience_s(self) -> float:
        """Time limit of a process, after which it counts as hung [s]."""
        return START_S + 20.0 * self.iteration_s * (self.total - self.start)

    def after(self, share: float) -> int:
        """Return the iteration after a share of a copy's training."""
        return self.start + max(1, round(share * (self.total - self.start)))

    def train(self, run: RunDir, **options: Any) -> Training:
        """Start the process that continues a copy."""
        settings = {
            "max_iterations": self.total,
            "save_interval": self.save_interval,
            "save_interval_s": 0,
            **self.settings,
        }
        return Training(run, settings, **options)

    def copy(self, name: str, parent: Path | None = None) -> RunDir:
        """Return a new copy of the run, with the checkpoint."""
        run = RunDir((parent or self.work) / name / self.origin.task / self.origin.run_id)
        run.checkpoints.mkdir(parents=True)
        for file in (self.origin.config_file, self.origin.metrics_file):
            if file.is_file():
                shutil.copy2(file, run.path / file.name)
        shutil.copytree(self.checkpoint, run.checkpoints / self.checkpoint.name)
        return run

    def reference(self) -> RunDir:
        """Return the copy without a fault, trained to its end; it is trained once.

        Raises:
            DrillError: the run cannot continue.
        """
        run = self.undisturbed
        if run.path.is_dir():
            return run
        with self.train(self.copy("undisturbed")) as training:
            code = training.wait(self.patience_s)
        if code != 0:
            raise DrillError(f"the undisturbed copy of the run ended with {name_code(code)}; {training.last_words()}")
        return run

    def killed(self, name: str) -> RunDir:
        """Return a new copy of the run that was killed between two checkpoints, after it wrote at least three.

        Raises:
            DrillError: the run ended before.
        """
        first = RunDir(self.work / "killed" / self.origin.task / self.origin.run_id)
        if not first.path.is_dir():
            self.copy("killed")
            with self.train(first) as training:
                training.wait_iteration(self.start + 3 * self.save_interval + self.save_interval // 2, self.patience_s)
                training.wait_for(lambda: len(list_checkpoints(first.path)) >= 3 or None, "three checkpoints", START_S)
                training.send(signal.SIGKILL)
                if training.wait(START_S) != -signal.SIGKILL:
                    raise DrillError("the run was done before it could be killed; give more iterations=")
        run = RunDir(self.work / name / self.origin.task / self.origin.run_id)
        shutil.copytree(first.path, run.path)
        return run


def recover(
    copies: RunCopies,
    run: RunDir,
    outcome: Outcome,
    before: Rows,
    *,
    most_lost: int,
    is_same: bool = True,
    missing: Collection[int] = (),
) -> None:
    """Continue a copy with a fault to its end, and add times, losses and failed checks to the outcome.

    Args:
        copies: all copies of the run.
        run: the copy with the fault.
        outcome: takes the results.
        before: the copy's rows of metrics when the fault occurred.
        most_lost: maximum number of iterations that may be lost.
        is_same: whether it has to become identical to the undisturbed run.
        missing: iterations of which the fault destroyed the rows of metrics.

    Raises:
        DrillError: the process did not begin or did not end.
    """
    with copies.train(run) as training:
        first = training.wait_first(copies.patience_s)
        note_start(outcome, training, first, before)
        code = training.wait(copies.patience_s)
        outcome.expect(code == 0, f"the recovered run ended with {name_code(code)}; {training.last_words()}")
    lost = outcome.lost_iterations
    outcome.expect(lost is None or lost <= most_lost, f"{lost} iterations lost, must be at most {most_lost}")
    check_end(copies, run, outcome, missing)
    if is_same:
        outcome.same = compare(copies, run, outcome, missing)


def note_start(outcome: Outcome, training: Training, first: First, before: Rows) -> None:
    """Add the time to a process's first iteration, its output before, and what was lost of the rows before it."""
    outcome.noticed += training.lines_before_stepping()[:SHOWN]
    outcome.stepping_s, outcome.recovery_s = first.stepping_s, first.done_s
    if before:
        resumed, times = first.iteration - 1, {row["iteration"]: row["time_s"] for row in before}
        last = before[-1]["iteration"]
        outcome.lost_iterations = last - resumed
        outcome.lost_s = times[last] - times[resumed] if resumed in times else None


def check_end(copies: RunCopies, run: RunDir, outcome: Outcome, missing: Collection[int]) -> None:
    """Check a run that should be done: its newest checkpoint, the iterations in its metrics."""
    newest = latest_checkpoint(run.path)
    outcome.expect(int(newest.name) == copies.total, f"the newest checkpoint is {newest.name}, must be {copies.total}")
    try:
        verify_checkpoint(newest)
    except UserError as error:
        outcome.wrong.append(f"the newest checkpoint is not whole: {error}")
    lines = read_lines(run.path)
    outcome.expect(None not in lines, "metrics.jsonl has invalid lines")
    found = [row["iteration"] for row in lines if row is not None and row["iteration"] > copies.start]
    wanted = [step for step in range(copies.start + 1, copies.total + 1) if step not in missing]
    lacking = sorted({*wanted} - {*found})
    outcome.expect(not lacking, f"metrics.jsonl lacks iterations {lacking[:SHOWN]}")
    outcome.expect(bool(lacking) or found == wanted, "metrics.jsonl has iterations twice, or in another order")


def compare(copies: RunCopies, run: RunDir, outcome: Outcome, missing: Collection[int] = ()) -> str:
    """Compare a finished copy with the undisturbed one and return the result in words; a difference is wrong."""
    reference = copies.reference()
    found = differing_tensors(latest_checkpoint(run.path), latest_checkpoint(reference.path))
    rows = [row for row in rows_of(reference.path) if row["iteration"] not in missing]
    found += differing_rows(rows_of(run.path), rows, copies.start)
    if not found:
        return SAME + (f" except for the {len(missing)} that were lost" if missing else "")
    what = f"{len(found)} differences, the first in {found[0]}"
    if copies.incomparable:
        return f"cannot be compared ({copies.incomparable}); {what}"
    outcome.wrong.append(f"it is another run than the undisturbed one: {'; '.join(found[:SHOWN])}")
    return f"no, {what}"

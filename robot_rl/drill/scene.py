"""Where drills take place: copies of a run, how far they go, and what the undisturbed run came to."""

from __future__ import annotations

import shutil
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robot_rl.drill.process import DrillError, Training, name_code
from robot_rl.experiment.run_dir import RunDir
from robot_rl.learn.checkpoints.checkpoint import list_checkpoints

START_S = 180.0
"""How long a process may take to begin."""


@dataclass(kw_only=True, slots=True)
class Outcome:
    """What became of a run with a fault.

    Attributes:
        fault: the fault's name.
        injected: what was done.
        noticed: how it showed: exit codes, and the lines that the training said.
        stepping_s: from the start of the process that recovered until it began to step [s]; None where it never did.
        recovery_s: the same until its first iteration was done [s].
        lost_iterations: iterations that had to be done again.
        lost_s: the time that they had taken [s].
        same: whether the recovered run equals the undisturbed one, in words.
        wrong: what was not as it has to be, a line each; the fault was survived where there is none.
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
        """Note what is wrong where something does not hold."""
        if not holds:
            self.wrong.append(what)


@dataclass(kw_only=True, slots=True)
class Scene:
    """The copies of one run, all of which go on from the same checkpoint for the same number of iterations.

    Attributes:
        origin: the run; it is only read.
        checkpoint: its checkpoint that every copy begins with.
        work: the directory of the copies.
        start: iterations done in that checkpoint.
        total: iterations at which a copy is done.
        save_interval: iterations from checkpoint to checkpoint.
        iteration_s: what an iteration takes [s], about.
        untold: why nobody can tell whether two copies are the same run; empty where it can be told.
        settings: what else of the run is set anew, by name.
    """

    origin: RunDir
    checkpoint: Path
    work: Path
    start: int
    total: int
    save_interval: int
    iteration_s: float
    untold: str = ""
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def undisturbed(self) -> RunDir:
        """The copy that nothing happens to; `reference` trains it."""
        return RunDir(self.work / "undisturbed" / self.origin.task / self.origin.run_id)

    @property
    def patience_s(self) -> float:
        """How long a process may take to begin and to come to the end, before it counts as hung [s]."""
        return START_S + 20.0 * self.iteration_s * (self.total - self.start)

    def after(self, share: float) -> int:
        """Return the iteration at which a share of a copy's training is done."""
        return self.start + max(1, round(share * (self.total - self.start)))

    def train(self, run: RunDir, **options: Any) -> Training:
        """Start the process that goes on with a copy."""
        told = {
            "max_iterations": self.total,
            "save_interval": self.save_interval,
            "save_interval_s": 0,
            **self.settings,
        }
        return Training(run, told, **options)

    def copy(self, name: str, parent: Path | None = None) -> RunDir:
        """Return a new copy of the run, with the one checkpoint."""
        run = RunDir((parent or self.work) / name / self.origin.task / self.origin.run_id)
        run.checkpoints.mkdir(parents=True)
        for file in (self.origin.config_file, self.origin.metrics_file):
            if file.is_file():
                shutil.copy2(file, run.path / file.name)
        shutil.copytree(self.checkpoint, run.checkpoints / self.checkpoint.name)
        return run

    def reference(self) -> RunDir:
        """Return the copy that nothing happens to, trained to its end; trained once.

        Raises:
            DrillError: the run cannot go on at all.
        """
        run = self.undisturbed
        if run.path.is_dir():
            return run
        with self.train(self.copy("undisturbed")) as training:
            code = training.wait(self.patience_s)
        if code != 0:
            words = training.lines[-1] if training.lines else "it said nothing"
            raise DrillError(f"the undisturbed copy of the run ended with {name_code(code)}; last line: {words}")
        return run

    def killed(self, name: str) -> RunDir:
        """Return a new copy of a run that was killed between two checkpoints, with three or more of its own.

        Raises:
            DrillError: the run did not come that far.
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

"""This machine: in this process, or several runs of a sweep at a time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TextIO

from robot_rl.cluster.launchers.launcher import FrozenRun, Launcher
from robot_rl.errors import Interrupted
from robot_rl.machine import count_cores
from robot_rl.processes import tied
from robot_rl.runs import signals
from robot_rl.settings.schema import setting

POLL_S = 0.1
LOG = "output.log"


@dataclass(kw_only=True, slots=True)
class Local(Launcher):
    """Trains on this machine.

    Attributes:
        at_once: How many runs of a sweep are trained at a time, each in its own process; 1: in this one.
    """

    at_once: int = setting(1, least=1, most=1000)

    name: ClassVar[str] = "local"
    unused: ClassVar[tuple[str, ...]] = ("nodes", "ranks", "gpus", "cpus", "time", "partition")

    @property
    def is_this_process(self) -> bool:
        """Return whether runs are trained one after another, in the process of the command."""
        return self.at_once == 1

    def submit(self, runs: Sequence[FrozenRun], folder: Path) -> int:
        """Train the runs, so many at a time; return the first code that is not 0. The others run to their end."""
        signals.ending.phase = signals.UNWIND
        waiting, code = list(runs), 0
        training: dict[subprocess.Popen[bytes], tuple[FrozenRun, TextIO]] = {}
        try:
            while waiting or training:
                while waiting and len(training) < self.at_once:
                    run = waiting.pop(0)
                    log = open(run.run_dir.path / LOG, "a")  # noqa: SIM115 - closed when the run is over.
                    process = subprocess.Popen(
                        tied(run.command(here=True)),
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                        env=self._environment(),
                    )
                    training[process] = run, log
                for process in [process for process in training if process.poll() is not None]:
                    run, log = training.pop(process)
                    log.close()
                    ended = f"exit code {process.returncode}, see {log.name}" if process.returncode else "done"
                    sys.stdout.write(f"{run.run_dir.path}: {ended}\n")
                    sys.stdout.flush()
                    code = code or process.returncode
                time.sleep(POLL_S)
        except Interrupted as stop:
            for process in training:
                os.kill(process.pid, stop.signal)
            for process, (_, log) in training.items():
                process.wait()
                log.close()
            raise
        return code

    def _environment(self) -> dict[str, str]:
        """Return the environment of a run's process: the cores are divided among the learners of all."""
        threads = max(1, count_cores() // self.at_once)
        return {"OMP_NUM_THREADS": str(threads), **os.environ}

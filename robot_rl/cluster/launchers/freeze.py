"""Nothing is started: the runs are only frozen, for a manifest or your own scheduler."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from robot_rl.cluster.launchers.launcher import FrozenRun, Launcher


@dataclass(kw_only=True, slots=True)
class Freeze(Launcher):
    """Writes the run.yaml of runs, with what `robot-rl manifest` takes from a launcher."""

    name: ClassVar[str] = "freeze"
    is_elsewhere: ClassVar[bool] = True

    def submit(self, runs: Sequence[FrozenRun], folder: Path) -> int:
        """Print how the runs can be started."""
        for run in runs:
            sys.stdout.write(f"{run.run_dir.path}\n")
        first = runs[0].run_dir
        worker = f"robot-rl worker {shlex.quote(str(first.path))}"
        sys.stdout.write(f"start it: robot-rl manifest {first.words} target=, or {worker}\n")
        return 0

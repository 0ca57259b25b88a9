"""In this process, as without a launcher; a sweep's runs one after another.

`robot-rl train` does not ask it to start anything: it goes on by itself. Elsewhere, such as in a search, each run is a
process of its own.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from robot_rl.experiment.launchers.launcher import FrozenRun, Launcher


@dataclass(kw_only=True, slots=True)
class Local(Launcher):
    """Trains in one process of this machine."""

    name: ClassVar[str] = "local"
    unused: ClassVar[tuple[str, ...]] = ("nodes", "ranks", "gpus", "cpus", "time", "partition")

    def launch(self, runs: Sequence[FrozenRun], folder: Path) -> int:
        """Train the runs one after another, each in a process; return the code of the first that fails."""
        for run in runs:
            if code := subprocess.run(run.command(here=True), check=False).returncode:
                return code
        return 0

"""Launchers that start a run by its manifest, which the command line program of a cluster submits."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

from robot_rl.cluster.launchers.launcher import FrozenRun, Launcher
from robot_rl.cluster.manifests.job import DCGM_PORT, IMAGE, MOUNT, ClusterJob
from robot_rl.errors import UserError
from robot_rl.files import write_atomic

COMMAND_S = 60
"""How long the program may take [s]."""


@dataclass(kw_only=True, slots=True)
class Applied(Launcher):
    """Runs as jobs of a cluster, each of a manifest in its directory, which the nodes have to see at `mount`.

    Attributes:
        target: The kind of manifest; empty: the first of the launcher's.
        memory: Memory of each process, such as 16G.
        image: The container's image, with a tag.
        mount: Where the runs are in the container.
        topology: Label of nodes that the processes should have in common, such as a rack's.
    """

    target: str = ""
    memory: str = ""
    image: str = IMAGE
    mount: str = MOUNT
    topology: str = ""

    is_elsewhere: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Raise UserError if a setting is out of range."""
        Launcher.__post_init__(self)
        self.target = self.target or next(iter(self.targets))
        if self.target not in self.targets:
            raise UserError("launcher.target", self.target, f"must be {' or '.join(self.targets)}")
        self._render("run", "task")

    def check(self) -> None:
        """Raise UserError if the program is not installed."""
        if shutil.which(self.program[0]) is None:
            raise UserError("launcher", self.name, f"{self.program[0]} is not on this machine", "install it")

    def submit(self, runs: Sequence[FrozenRun], folder: Path) -> int:
        """Write the manifest of each run into its directory, and submit it."""
        for run in runs:
            file = run.run_dir.path / f"{self.target}.yaml"
            write_atomic(file, self._render(run.run_dir.run_id, run.run_dir.task, trust="trust=true" in run.options))
            try:
                self._apply(file)
            except UserError:
                file.unlink()
                raise
            sys.stdout.write(f"{file}: submitted\n")
        sys.stdout.write(f"follow it: robot-rl watch {runs[0].run_dir.words}\n")
        return 0

    def _apply(self, file: Path) -> None:
        command = [*self.program, str(file)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UserError("launcher", self.name, f"{self.program[0]} failed, {error}") from None
        if done.returncode:
            line = next(iter(done.stderr.strip().splitlines()), f"exit code {done.returncode}")
            raise UserError("launcher", self.name, f"{self.program[0]} failed, {line}")

    def _render(self, run_id: str, task: str, *, trust: bool = False) -> str:
        """Return the manifest of a run; code that is not ours, which it then trusts, runs in a sandbox."""
        settings = {each.name: getattr(self, each.name) for each in fields(ClusterJob) if hasattr(self, each.name)}
        settings |= {"ranks": self.ranks_a_node, "trust": trust, "sandbox": trust}
        settings["metrics_port"] = DCGM_PORT if self.gpus else 0
        try:
            job = ClusterJob(**settings, run_id=run_id, task=task, made_by=f"launcher={self.name}")
            return self.render(job, self.target)
        except UserError as error:
            raise UserError(f"launcher.{error}") from None

"""What a launcher is: it starts the processes of frozen runs, renders manifests for its cluster, and checks that.

A frozen run is a directory with a run.yaml, written once (`robot_rl.cluster.frozen`). Each process of it is
`robot-rl worker <directory>`, which begins the run if it does not have a checkpoint, and resumes it otherwise. So
a scheduler may start the same command as often as it has to.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from robot_rl.cluster.manifests.quantities import read_seconds
from robot_rl.errors import UserError
from robot_rl.files import read_plain, write_atomic
from robot_rl.runs.run_dir import RunDir
from robot_rl.settings.schema import check_fields, setting

if TYPE_CHECKING:
    from robot_rl.cluster.manifests.job import ClusterJob
    from robot_rl.cluster.preflight.finding import Cluster, Finding

PARTITION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,:@+/-]{0,199}")
NAME = re.compile(r"[A-Za-z0-9][\w.:-]{0,99}")
MOST_NODES, MOST_RANKS = 4096, 1024
COMMAND = "robot_rl.cli.main"
"""The module that is `robot-rl`."""
JOB = "job.json"
"""The file of a run that names the job of a scheduler that trains it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FrozenRun:
    """A run that a launcher starts.

    Attributes:
        run_dir: Its directory.
        options: Further words for each of its processes, as `robot-rl worker` accepts them.
    """

    run_dir: RunDir
    options: tuple[str, ...] = ()

    def words(self, *, here: bool = False) -> list[str]:
        """Return the words after `robot-rl` that start one of its processes; `here`: in this working directory."""
        path = self.run_dir.path
        return ["worker", str(path if here else path.absolute()), *self.options]

    def command(self, *, here: bool = False) -> list[str]:
        """Return the command of one of its processes, with this Python."""
        return [sys.executable, "-m", COMMAND, *self.words(here=here)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A kind of manifest that a launcher renders (`robot-rl manifest target=<name>`).

    Attributes:
        info: What it is, in a line of help.
        options: The options that have an effect on it, in addition to those that have one on all.
        is_script: Whether it is a script for machines that see the runs by the same path as this one, not YAML.
    """

    info: str
    options: frozenset[str] = frozenset()
    is_script: bool = False


@dataclass(kw_only=True, slots=True)
class Launcher(ABC):
    """Starts runs, with these settings (`launcher.<name>=`).

    Attributes:
        nodes: Machines of a run.
        ranks: Processes of a run on each machine; 0: one for each GPU, or one.
        gpus: GPUs of each machine.
        cpus: Cores of each process; 0: the launcher's default.
        time: Time limit of a run as hours:minutes:seconds, days-hours or minutes; empty: the scheduler's default.
        partition: The queue or partition that runs go to; empty: the default one.
    """

    nodes: int = setting(1, least=1, most=MOST_NODES)
    ranks: int = setting(0, least=0, most=MOST_RANKS)
    gpus: int = setting(0, least=0, most=MOST_RANKS)
    cpus: int = setting(0, least=0, most=4096)
    time: str = ""
    partition: str = ""

    name: ClassVar[str] = ""
    unused: ClassVar[tuple[str, ...]] = ()
    """Settings without an effect here."""
    is_elsewhere: ClassVar[bool] = False
    """Whether runs are trained on other machines, with `gpus` GPUs each, not on this one with its own."""
    targets: ClassVar[Mapping[str, Target]] = {}
    """The manifests that `render` writes, by name."""
    flow_renderer: ClassVar[str] = ""
    """`module:name` of the function that writes a flow for the cluster (`robot-rl flow target=<launcher>`), if any."""
    program: ClassVar[tuple[str, ...]] = ()
    """The words before the file of a manifest or a flow that submit it, if there is such a program."""

    def __post_init__(self) -> None:
        """Raise UserError if a setting is out of its range."""
        check_fields(self, "launcher.")
        read_seconds(self.time, "launcher.time")
        if self.partition and not PARTITION.fullmatch(self.partition):
            raise UserError("launcher.partition", self.partition, "must be of letters, digits and _ . , : @ + / -")
        if self.gpus and self.ranks_a_node > max(1, self.gpus):
            raise UserError(
                "launcher.ranks",
                self.ranks,
                f"more processes than launcher.gpus={self.gpus} on a machine",
                "each has a GPU of its own",
            )

    def check_settings(self, tree: Mapping[str, Any]) -> None:  # noqa: B027  (most accept all of them)
        """Raise UserError if a run with these settings does not suit the launcher's."""

    @property
    def is_elastic(self) -> bool:
        """Return whether a run may resume with more or fewer processes than before."""
        return False

    @property
    def is_this_process(self) -> bool:
        """Return whether runs are trained in the process of the command itself, so that nothing is started."""
        return False

    @property
    def ranks_a_node(self) -> int:
        """Return the processes on each machine."""
        return self.ranks or max(1, int(self.gpus))

    @property
    def simulators(self) -> int:
        """Return the processes that simulate the worlds of a run; 0: those that learn do."""
        return 0

    @property
    def engines(self) -> Sequence[str]:
        """Return the engines that simulators have in the place of the run's own."""
        return ()

    @property
    def size(self) -> int:
        """Return the processes of a run."""
        return self.nodes * self.ranks_a_node

    def settings(self) -> dict[str, Any]:
        """Return the launcher's name and settings, as run.yaml has them."""
        used = {key: value for key, value in dataclasses.asdict(self).items() if key not in self.unused}
        return {"name": self.name, **used, "ranks": self.ranks_a_node}

    def check(self) -> None:  # noqa: B027
        """Raise UserError if runs cannot be started: a missing package, an unknown partition, too many GPUs.

        Called before anything is written.
        """

    def prepare(self) -> None:  # noqa: B027
        """Begin slow work that does not need a run; called first, before `check`. It ends with this process."""

    def cluster_checks(self, root: Path) -> Sequence[tuple[str, Finding]]:
        """Return the name and the finding of each check of the cluster itself, before `robot-rl preflight` asks nodes.

        They are asked only if the finding called "request" is not a failure.
        """
        from robot_rl.cluster.preflight.finding import check_request

        return [("request", check_request(self.check, f"launcher={self.name} accepts it"))]

    def probe_nodes(self, cluster: Cluster, token: str) -> None:
        """Add the facts of each node of a run to a cluster; by default those of this machine.

        Args:
            cluster: What the nodes answer.
            token: The submitter's, as in `robot_rl.cluster.preflight.shared.SharedRoot`.
        """
        from robot_rl.cluster.preflight.gather import probe_here

        cluster.wanted = 1
        probe_here(cluster, token)

    @classmethod
    def render(cls, job: ClusterJob, target: str) -> str:
        """Return the manifest of a job, of a kind in `targets`; raise UserError if the job does not suit it."""
        raise NotImplementedError(f"launcher={cls.name}: must define render for {target}")

    @abstractmethod
    def submit(self, runs: Sequence[FrozenRun], folder: Path) -> int:
        """Start runs and return the exit code: of the trainings if it waits for them, else of their submission.

        Args:
            runs: The runs.
            folder: A directory for the launcher's own files, which need not exist.

        Raises:
            UserError: Nothing was started.
        """

    @classmethod
    def is_alive(cls, job: str) -> bool:
        """Return whether a job that `submit` started waits or runs; False if `submit` waits for its runs itself."""
        return False

    @classmethod
    def cancel(cls, job: str) -> None:
        """End a job, whose processes save and exit."""
        raise UserError("launcher", cls.name, "does not have jobs that could be ended")


def launcher_words(record: Any) -> str:
    """Return the words of the command line that choose the launcher in a run.yaml; empty for one process, or none.

    What is not of the type that a launcher writes counts as missing: the words are for a shell.
    """
    if not isinstance(record, dict) or not NAME.fullmatch(str(record.get("name"))):
        return ""
    shape = {name: value for name in ("nodes", "ranks", "gpus") if type(value := record.get(name)) is int and value > 0}
    if shape.get("nodes", 1) * shape.get("ranks", 1) == 1:
        return ""
    words = [f"launcher.{name}={value}" for name, value in shape.items() if (name, value) != ("nodes", 1)]
    return " ".join(["", f"launcher={record['name']}", *words])


def write_job(run_dir: RunDir, launcher: str, job: str) -> None:
    """Write which job trains a run into its directory."""
    write_atomic(run_dir.path / JOB, json.dumps({"launcher": launcher, "job": job}) + "\n")


def read_job(run_dir: RunDir) -> tuple[str, str] | None:
    """Return the launcher's name and the job of a run; None if there is none."""
    try:
        record = json.loads(read_plain(run_dir.path / JOB, 1000))
        launcher, job = str(record["launcher"]), str(record["job"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (launcher, job) if all(NAME.fullmatch(word) for word in (launcher, job)) else None

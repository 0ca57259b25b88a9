"""A Ray cluster, or jobs of one: lost processes and machines are replaced, notices heeded."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from robot_rl.cluster.launchers import exit_codes
from robot_rl.cluster.launchers.launcher import MOST_RANKS, FrozenRun, Launcher, Target, write_job
from robot_rl.cluster.manifests.documents import OPTIONS
from robot_rl.cluster.manifests.job import ClusterJob
from robot_rl.cluster.preflight.finding import Cluster
from robot_rl.cluster.ray_runs import jobs
from robot_rl.cluster.ray_runs.cluster import (
    SEGMENTS_BYTES,
    STORE_BYTES,
    Node,
    connect,
    count,
    disconnect,
    list_nodes,
    room,
)
from robot_rl.cluster.ray_runs.probes import ask_ray
from robot_rl.cluster.ray_runs.rank import STOP
from robot_rl.cluster.ray_runs.rayjob import render_rayjob
from robot_rl.cluster.ray_runs.roles import (
    EPISODES,
    MAX_EPISODES,
    EvaluatorCfg,
    GroupCfg,
    SimulatorsCfg,
    roles_room,
    runs_at_once,
)
from robot_rl.errors import ExitCode, UserError
from robot_rl.metrics.rows import to_stderr
from robot_rl.processes import restore_signals, take_signals
from robot_rl.settings.schema import setting

POLL_S = 0.2
SERVICES = ("reference", "teacher")
"""Frozen policies, each of which a run may have evaluated by a separate process."""
LEARNER = "learner"
PLACES = (LEARNER, "apart")
"""The place of a service: with the learner, or in its own process."""


@dataclass(kw_only=True, slots=True)
class Ray(Launcher):
    """Groups of Ray Train's workers.

    Attributes:
        gpus: GPUs of each machine, or a part of one for one process: simulators may have the rest.
        min_nodes: Machines at least; with fewer than `nodes` the run continues with those that are left; 0: all.
        address: host:port of the cluster; auto: the one on this machine, else one that lasts as long as the command;
            http://host:port of a dashboard: submit a job and return.
        max_failures: How often processes of a run may be lost.
        sims: Simulators apart from the learner (`roles.sim.count=`); 0: it simulates its worlds itself.
        sim_cpus: Cores of each simulator (`roles.sim.cpus=`); 0: one that is not reserved.
        sim_gpus: GPUs of each simulator (`roles.sim.gpus=`), also a part of one.
        sim_least: How many simulators have to be there before a training begins (`roles.sim.least=`); 0: all.
        sim_engines: Engines of the simulators, in turn (`roles.sim.engines=`); none: all with `engine=`.
        at_once: Most runs of a sweep that are trained at the same time; 0: as many as there is room for.
        eval_every: Iterations between two evaluations while it trains (`roles.eval.every=`); 0: none.
        eval_episodes: Episodes of each (`roles.eval.episodes=`).
        eval_cpus: Cores of the evaluator (`roles.eval.cpus=`); 0: one that is not reserved.
        reference: "learner" evaluates the reference policy, or a process "apart" (`roles.reference=`).
        reference_cpus: Cores of that process (`roles.reference.cpus=`); 0: one that is not reserved.
        reference_gpus: GPUs of it, also a part of one.
        teacher: The same of the teacher (`roles.teacher=`).
        teacher_cpus: The same.
        teacher_gpus: The same.
        prior: "learner" has the motion prior (`roles.prior=`); it cannot be apart.
    """

    gpus: float = setting(0, least=0, most=MOST_RANKS)  # pyright: ignore[reportIncompatibleVariableOverride]
    min_nodes: int = 0
    address: str = "auto"
    max_failures: int = setting(3, least=0, most=1000)
    sims: int = setting(0, least=0, most=100_000, called="roles.sim.count")
    sim_cpus: int = setting(0, least=0, most=4096, called="roles.sim.cpus")
    sim_gpus: float = setting(0.0, least=0, most=1024, called="roles.sim.gpus")
    sim_least: int = field(default=0, metadata={"called": "roles.sim.least"})
    sim_engines: list[str] = field(default_factory=list, metadata={"called": "roles.sim.engines"})
    at_once: int = setting(0, least=0, most=100_000)
    eval_every: int = setting(0, least=0, most=100_000_000, called="roles.eval.every")
    eval_episodes: int = setting(EPISODES, least=1, most=MAX_EPISODES, called="roles.eval.episodes")
    eval_cpus: int = setting(0, least=0, most=4096, called="roles.eval.cpus")
    reference: str = field(default=LEARNER, metadata={"called": "roles.reference"})
    reference_cpus: int = setting(0, least=0, most=4096, called="roles.reference.cpus")
    reference_gpus: float = setting(0.0, least=0, most=1024, called="roles.reference.gpus")
    teacher: str = field(default=LEARNER, metadata={"called": "roles.teacher"})
    teacher_cpus: int = setting(0, least=0, most=4096, called="roles.teacher.cpus")
    teacher_gpus: float = setting(0.0, least=0, most=1024, called="roles.teacher.gpus")
    prior: str = field(default=LEARNER, metadata={"called": "roles.prior"})

    name: ClassVar[str] = "ray"
    unused: ClassVar[tuple[str, ...]] = ("time", "partition")
    is_elsewhere: ClassVar[bool] = True
    targets: ClassVar[Mapping[str, Target]] = {
        "rayjob": Target(
            info="A RayJob of KubeRay: a Ray cluster for one run, which grows and shrinks with the machines there are",
            options=OPTIONS,
        )
    }

    def __post_init__(self) -> None:
        """Raise UserError if a setting is out of range."""
        Launcher.__post_init__(self)
        if self.gpus > 1 and self.gpus % 1:
            raise UserError("launcher.gpus", self.gpus, "must be a whole number, or a part of one GPU")
        if self.gpus == int(self.gpus):
            self.gpus = int(self.gpus)
        if not 0 <= self.min_nodes <= self.nodes:
            raise UserError(
                "launcher.min_nodes", self.min_nodes, f"must be at least 1 and at most launcher.nodes={self.nodes}"
            )
        self._check_simulators()
        self._check_services()
        for name, value, default in (("episodes", self.eval_episodes, EPISODES), ("cpus", self.eval_cpus, 0)):
            if value != default and not self.eval_every:
                raise UserError(
                    f"roles.eval.{name}", value, "nothing is evaluated", "give roles.eval.every=<iterations>"
                )
        if not self.address:
            raise UserError("launcher.address=: must be auto, host:port, or http://host:port of a dashboard")

    def _check_simulators(self) -> None:
        """Raise UserError if the settings of simulators do not fit each other."""
        if self.sim_least and not 1 <= self.sim_least <= self.sims:
            raise UserError(
                "roles.sim.least", self.sim_least, f"must be at least 1 and at most roles.sim.count={self.sims}"
            )
        if self.sims % self.size:
            raise UserError(
                "roles.sim.count",
                self.sims,
                f"must be a multiple of the {self.size} processes that learn (launcher.nodes= times launcher.ranks=)",
            )
        if self.sims and self.is_elastic:
            raise UserError(
                "launcher.min_nodes",
                self.min_nodes,
                f"of launcher.nodes={self.nodes} none may be missing with roles.sim.count=",
                "omit it, for roles.sim.least= lets simulators be missing",
            )
        engines = len(self.sim_engines)
        if engines and (not self.sims or self.sims % engines):
            raise UserError(
                "roles.sim.engines",
                _listed(self.sim_engines),
                f"has {engines} engines, which the simulators take in turn",
                f"roles.sim.count={self.sims} must be a multiple of them",
            )

    def _check_services(self) -> None:
        """Raise UserError if a service has a place that is not possible for it."""
        for name in (*SERVICES, "prior"):
            place = getattr(self, name)
            if place not in PLACES:
                raise UserError(f"roles.{name}", place, f"must be {' or '.join(PLACES)}")
        if self.prior != LEARNER:
            raise UserError(
                "roles.prior",
                self.prior,
                "its discriminator learns from each rollout, with the policy",
                "leave it at the learner",
            )
        for name in SERVICES:
            for kind in ("cpus", "gpus"):
                value = getattr(self, f"{name}_{kind}")
                if value and getattr(self, name) == LEARNER:
                    raise UserError(f"roles.{name}.{kind}={value:g}: is for roles.{name}=apart; add it")

    def _services(self) -> dict[str, dict[str, float]]:
        """Return the resources of each service that is apart, by Ray's names."""
        services = {}
        for name in SERVICES:
            if getattr(self, name) != LEARNER:
                gpus, cpus = (float(getattr(self, f"{name}_{kind}")) for kind in ("gpus", "cpus"))
                services[name] = {"CPU": cpus} | ({"GPU": gpus} if gpus else {})
        return services

    @property
    def is_elastic(self) -> bool:
        """Return whether a run may continue with fewer machines than it has."""
        return 0 < self.min_nodes < self.nodes

    @property
    def simulators(self) -> int:
        """Return the simulators of a run."""
        return self.sims

    @property
    def engines(self) -> Sequence[str]:
        """Return the engines that simulators have in the place of the run's own."""
        return self.sim_engines

    def check_settings(self, tree: Mapping[str, Any]) -> None:
        """Raise UserError if a run does not have the policy of a service that is apart, or has one that acts."""
        from robot_rl.learn.auxiliaries.frozen import ACTS

        for name in self._services():
            if name not in tree:
                raise UserError(f"roles.{name}=apart: learner={tree.get('learner')} does not have one; omit it")
            settings = tree[name] or {}
            if not (settings.get("run") or settings.get("policy")):
                raise UserError(f"roles.{name}=apart: the run has none; give {name}.run=<run>, or omit this")
            if settings.get("mix") or settings.get("takeover"):
                raise UserError(f"roles.{name}=apart: {ACTS}")

    def check(self) -> None:
        """Connect to the cluster; raise UserError if there is none, or it has too few GPUs or cores."""
        if "RANK" in os.environ:
            raise UserError("launcher=ray: this is one of several processes already; leave launcher= out")
        if jobs.is_job_address(self.address):
            jobs.client(self.address)
            return
        address = connect(self.address, SEGMENTS_BYTES if self.sims else STORE_BYTES)
        try:
            nodes = list_nodes()
            self._check_room(nodes)
        except BaseException:
            disconnect()
            raise
        where = "a Ray of this command on this machine" if address == "local" else f"the Ray cluster at {address}"
        to_stderr(f"{self.size} process{'es' * (self.size > 1)} on {where}, {_machines(nodes)}")

    def probe_nodes(self, cluster: Cluster, token: str) -> None:
        """Run a probe as a task on each node of the Ray cluster."""
        ask_ray(cluster, self.address, token)

    @classmethod
    def render(cls, job: ClusterJob, target: str) -> str:
        """Return the RayJob of a run."""
        return render_rayjob(job)

    def submit(self, runs: Sequence[FrozenRun], folder: Path) -> int:
        """Train the runs and return the exit code; or submit jobs, and return when they are submitted."""
        if jobs.is_job_address(self.address):
            return self._submit(runs)
        cfg = self._group(folder)
        connect(self.address)
        try:
            with _stopping(runs) as stop:
                codes = _train_all(runs, cfg, stop, self.at_once or len(runs))
        finally:
            disconnect()
        if stop.signal == signal.SIGINT and ExitCode.REQUEUE in codes:
            codes.append(int(ExitCode.INTERRUPTED))
        return exit_codes.combine(codes)

    def _group(self, folder: Path) -> GroupCfg:
        return GroupCfg(
            nodes=self.nodes,
            min_nodes=self.min_nodes or self.nodes,
            ranks=self.ranks_a_node,
            cpus=self.cpus or 1,
            gpus=self.gpus / self.ranks_a_node,
            max_failures=self.max_failures,
            sims=SimulatorsCfg(
                count=self.sims,
                cpus=self.sim_cpus,
                gpus=self.sim_gpus,
                least=self.sim_least,
                engines=tuple(self.sim_engines),
            ),
            evaluator=EvaluatorCfg(every=self.eval_every, episodes=self.eval_episodes, cpus=self.eval_cpus),
            services=self._services(),
            folder=folder / f"ray-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}",
        )

    def _check_room(self, nodes: list[Node]) -> None:
        """Raise UserError if the cluster, with nothing else on it, does not have room for the smallest group."""
        cfg = self._group(Path())
        least = cfg.min_nodes * cfg.ranks
        if room(nodes, cfg.need, total=True) >= least:
            self._check_roles(nodes, cfg)
            return
        for key, name in (("gpus", "GPU"), ("cpus", "CPU")):
            if name in cfg.need and sum(count(node.total, {name: cfg.need[name]}) for node in nodes) < least:
                has = sum(node.total.get(name, 0.0) for node in nodes)
                value = self.gpus if key == "gpus" else cfg.cpus
                processes = "a process" if least == 1 else f"each of {least} processes"
                raise UserError(
                    f"launcher.{key}",
                    f"{value:g}",
                    f"{processes} needs {cfg.need[name]:g} {name}, the cluster has {has:g}",
                    "give fewer, or launcher.nodes=",
                )
        raise UserError(
            "launcher.nodes", self.nodes, f"the cluster does not have room for {least} processes", "give fewer"
        )

    def _check_roles(self, nodes: list[Node], cfg: GroupCfg) -> None:
        """Raise UserError if all roles together need more than the cluster has."""
        size = cfg.min_nodes * cfg.ranks
        extra = {"eval.cpus": ("CPU", float(self.eval_cpus))}
        for name, need in cfg.services.items():
            extra |= {f"{name}.{'cpus' if key == 'CPU' else 'gpus'}": (key, size * n) for key, n in need.items()}
        for name, (key, amount) in extra.items():
            need = cfg.need.get(key, 0.0) * size + amount
            has = sum(node.total.get(key, 0.0) for node in nodes)
            if amount and need > has:
                raise UserError(
                    f"roles.{name}",
                    f"{amount / (1 if name == 'eval.cpus' else size):g}",
                    f"with it the run needs {need:g} {key}, the cluster has {has:g}",
                    "give fewer",
                )
        learners = "the learner" if self.size == 1 else f"{self.size} learners"
        learners += ", services and evaluation" if extra and cfg.services else ""
        for key, (need, has) in roles_room(nodes, cfg).items():
            if self.sims and need > has:
                sims, name = cfg.sims.fewest, "least" if self.sim_least else "count"
                raise UserError(
                    f"roles.sim.{name}",
                    sims,
                    f"{learners} and {sims} simulators need {need:g} {key}, the cluster has {has:g}",
                    "give fewer",
                )

    def _submit(self, runs: Sequence[FrozenRun]) -> int:
        used = {
            key: value for key, value in self.settings().items() if key not in ("name", "address", "at_once", "prior")
        }
        used["sim_engines"] = _listed(self.sim_engines)
        for run in runs:
            job = jobs.submit(self.address, run, used)
            write_job(run.run_dir, self.name, f"{self.address.partition('//')[2].strip('/')}:{job}")
            sys.stdout.write(f"job {job}: {run.run_dir.path}\n")
        sys.stdout.write(f"follow it: robot-rl watch {runs[0].run_dir.words}\n")
        return 0

    @classmethod
    def is_alive(cls, job: str) -> bool:
        """Return whether a job waits or runs, as far as its dashboard answers."""
        address, _, name = job.rpartition(":")
        return jobs.is_alive(f"http://{address}", name)

    @classmethod
    def cancel(cls, job: str) -> None:
        """End a job, whose processes save and exit."""
        address, _, name = job.rpartition(":")
        jobs.stop(f"http://{address}", name)


class Stop:
    """What the user's signals ask for.

    Attributes:
        signal: The first signal; 0 before.
    """

    def __init__(self) -> None:
        self.signal = 0

    def is_requested(self) -> bool:
        """Return whether a signal came."""
        return self.signal != 0


@contextlib.contextmanager
def _stopping(runs: Sequence[FrozenRun]) -> Iterator[Stop]:
    """Let a first signal ask the runs' processes to save and end, by a file in each directory; a second one kills."""
    stop, files = Stop(), [run.run_dir.path / STOP for run in runs]

    def handle(number: int, _: object) -> None:
        if stop.signal:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        stop.signal = number
        for file in files:
            with contextlib.suppress(OSError):
                file.touch()

    for file in files:
        file.unlink(missing_ok=True)
    before = take_signals(handle)
    try:
        yield stop
    finally:
        restore_signals(before)
        for file in files:
            file.unlink(missing_ok=True)


def _train_all(runs: Sequence[FrozenRun], cfg: GroupCfg, stop: Stop, most: int) -> list[int]:
    """Train runs, as many at once as there is room for and at most so many, and return their exit codes."""
    if len(runs) > 1 and cfg.size == 1 and not cfg.sims.count and not cfg.evaluator.every and not cfg.services:
        from robot_rl.cluster.ray_runs.sweep import train_each

        return train_each(runs, cfg, stop.is_requested, most)
    from robot_rl.cluster.ray_runs.group import train_run

    at_once = min(most, runs_at_once(list_nodes(), cfg))
    # In threads: the main one has to take signals.
    with ThreadPoolExecutor(max_workers=min(at_once, len(runs))) as pool:
        futures = [pool.submit(train_run, run, cfg, stop.is_requested) for run in runs]
        while not all(future.done() for future in futures):
            time.sleep(POLL_S)
        return [future.result() for future in futures]


def _listed(words: Sequence[str]) -> str:
    return f"[{','.join(words)}]"


def _machines(nodes: list[Node]) -> str:
    cores, gpus = (sum(node.total.get(name, 0.0) for node in nodes) for name in ("CPU", "GPU"))
    return f"{len(nodes)} machine{'s' * (len(nodes) > 1)} with {cores:g} cores and {gpus:g} GPUs"

"""One process of a run on Ray: it trains in the thread of a Ray Train worker, and watches for reasons to stop."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robot_rl.cluster.launchers.exit_codes import find_code
from robot_rl.cluster.ray_runs.cluster import count, is_leaving, list_nodes
from robot_rl.errors import ExitCode, Interrupted, PeerError, UserError
from robot_rl.learn.stores import listen

WATCH_S = 1.0
"""Time between two looks at the cluster [s]."""
LOCK_S = 20.0
"""How long a process of the group before may take to end, which holds the run's lock [s]."""
PEER_S = 1.0
"""How long a process that lost the others waits, so that one of them can say why it ended [s]."""
STOP = "stop"
"""The file of a run's directory that asks its processes to save and end."""
GROW = "a machine has joined the cluster"


class EndedError(RuntimeError):
    """A process ended in a way that another attempt of the same processes would not change.

    Attributes:
        code: The exit code.
        line: The reason.
    """

    def __init__(self, code: int, line: str) -> None:
        super().__init__(code, line)
        self.code, self.line = code, line


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCfg:
    """What each process of a group is given.

    Attributes:
        run: The run's directory.
        log: The file that the processes' output goes to.
        options: Names that are true, of `robot_rl.runs.training.train_frozen`.
        need: Resources of a process.
        step: Processes by which the group grows.
        missing: Processes that the group lacks to its full size.
        is_elastic: Whether the group may be of another size than the one before.
        sims: The fields of a `robot_rl.cluster.ray_runs.simulators.SimulatorsCfg`; empty: there are none.
        evaluations: Those of a `robot_rl.cluster.ray_runs.evaluator.EvaluatorCfg`; empty: there are none.
        services: What the processes of "reference" or "teacher" need, by Ray's names; empty: they are not apart.
    """

    run: str
    log: str
    options: tuple[str, ...] = ()
    need: Mapping[str, float] = field(default_factory=dict)
    step: int = 1
    missing: int = 0
    is_elastic: bool = False
    sims: Mapping[str, Any] = field(default_factory=dict)
    evaluations: Mapping[str, Any] = field(default_factory=dict)
    services: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


class Watcher:
    """A thread that looks for reasons to save and end: a notice for this machine, one that joined, a request.

    Attributes:
        reason: Why the training shall stop; empty: it shall not.
    """

    def __init__(self, cfg: RankCfg, node_id: str, *, is_first: bool) -> None:
        self.reason = ""
        self._cfg, self._node_id, self._is_first = cfg, node_id, is_first
        self._seen_room, self._end = 0, threading.Event()
        self._thread = threading.Thread(target=self._run, name="robot-rl-watch", daemon=True)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()

    def is_requested(self) -> bool:
        """Return whether the training shall stop."""
        return bool(self.reason)

    def look(self) -> str:
        """Return the reason to stop that there is now; empty if there is none."""
        if is_leaving(self._node_id):
            return "its machine is being taken away"
        if not self._is_first:
            return ""
        if (Path(self._cfg.run) / STOP).exists():
            return "it was asked to"
        if self._cfg.missing:
            free = max((count(node.free, self._cfg.need) for node in list_nodes()), default=0)
            # Twice: of a process that has just ended, or a task between two others, the room is not for us.
            self._seen_room = self._seen_room + 1 if free >= self._cfg.step else 0
            return GROW if self._seen_room >= 2 else ""
        return ""

    def _run(self) -> None:
        while not self.reason and not self._end.wait(WATCH_S):
            with contextlib.suppress(Exception):  # The cluster's head may be away for a while.
                self.reason = self.look()


def train_rank(settings: Mapping[str, Any]) -> int:
    """Train as one of the processes of a run; the function that Ray Train calls in each of its workers.

    Args:
        settings: The fields of a `RankCfg`.

    Raises:
        EndedError: It was stopped, or another attempt would not help.
        PeerError: Another process was lost.
    """
    import ray

    from robot_rl.metrics.rows import wait_for_lock
    from robot_rl.runs.run_dir import RunDir
    from robot_rl.runs.training import TrainHooks, train_frozen

    cfg = RankCfg(**settings)
    sys.argv = ["robot-rl", "worker", cfg.run]
    is_first = os.environ.get("RANK", "0") == "0"
    run_dir = RunDir(Path(cfg.run))
    options: dict[str, Any] = dict.fromkeys(cfg.options, True)
    node_id = ray.get_runtime_context().get_node_id()

    def work(watcher: Watcher) -> None:
        if is_first:
            wait_for_lock(run_dir.metrics_file, LOCK_S)
        make_env = _remote(cfg, watcher.is_requested) if cfg.sims else None
        with contextlib.closing(Helpers(cfg, is_first=is_first)) as callback:
            hooks = TrainHooks(make_env=make_env, callback=callback, stop=watcher.is_requested)
            train_frozen(run_dir, is_elastic=cfg.is_elastic, hooks=hooks, **options)
            callback.finish()

    with output_to(Path(cfg.log)), Watcher(cfg, node_id, is_first=is_first) as watcher:
        run_as_rank(lambda: work(watcher), lambda: watcher.reason)
    return int(ExitCode.DONE)


def find_place() -> tuple[str, int]:
    """Return the address of this process's machine in the cluster, and a port that is free there."""
    import ray

    address = ray.util.get_node_ip_address()
    with listen(address, 0) as probe:
        return address, probe.getsockname()[1]


def set_place(address: str, port: int) -> None:
    """Tell this process the group's meeting point, and which of its processes it is, as torchrun does."""
    import ray.train

    context = ray.train.get_context()
    place = {"RANK": context.get_world_rank(), "WORLD_SIZE": context.get_world_size()}
    place |= {"LOCAL_RANK": context.get_local_rank(), "LOCAL_WORLD_SIZE": context.get_local_world_size()}
    place |= {"MASTER_ADDR": address, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()})


class Helpers:
    """The other processes that have a part in a learner's training: services, and the evaluator."""

    def __init__(self, cfg: RankCfg, *, is_first: bool) -> None:
        """Start the evaluator; `is_first` says whether the learner is the first of its group."""
        from robot_rl.cluster.ray_runs.evaluator import EvaluatorCfg, RayEvaluator
        from robot_rl.runs.evaluations import Evaluations

        self._cfg, self._services = cfg, contextlib.ExitStack()
        self._evaluations: Evaluations | None = None
        if cfg.evaluations and is_first:
            evaluations = EvaluatorCfg(**cfg.evaluations)
            evaluator = RayEvaluator(evaluations, cfg.run, trust="trust" in cfg.options)
            self._evaluations = Evaluations(evaluator, evaluations.every, Path(cfg.run))

    def on_init(self, runner: Any) -> None:
        """Let the services that are apart evaluate for a runner's objectives."""
        from robot_rl.cluster.ray_runs.service import RayService

        for name, need in self._cfg.services.items():
            auxiliaries = getattr(getattr(runner, "algorithm", None), "auxiliaries", ())
            objective = next((part for part in auxiliaries if part.name == name), None)
            if objective is None:
                raise UserError(f"roles.{name}=apart: learner={runner.cfg.name} does not have one; omit it")
            service = RayService(objective.frozen, name, need)
            self._services.callback(service.close)
            objective.serve(service)

    def on_iteration_end(self, session: Any) -> Mapping[str, float]:
        """Return the values to add to the row of an iteration."""
        return {} if self._evaluations is None else self._evaluations.on_iteration_end(session)

    def finish(self) -> None:
        """Wait for the last evaluations."""
        if self._evaluations is not None:
            self._evaluations.finish()

    def close(self) -> None:
        """End the processes."""
        self._services.close()
        if self._evaluations is not None:
            self._evaluations.close()


def _remote(cfg: RankCfg, stop: Callable[[], bool]) -> Callable[[Any, Any], Any]:
    """Return a function that makes the worlds of a learner with simulators."""
    from robot_rl.cluster.ray_runs.simulators import SimulatorsCfg, make_worlds

    sims, trust = SimulatorsCfg(**cfg.sims), "trust" in cfg.options
    return lambda settings, ranks: make_worlds(settings, sims, ranks, trust=trust, run=cfg.run, stop=stop)


@contextlib.contextmanager
def output_to(log: Path) -> Iterator[None]:
    """Append Python's output to a file, in whole lines: Ray's own way adds lines of Ray's, and repeats some."""
    with log.open("a", buffering=1) as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        yield


def run_as_rank(work: Callable[[], None], reason: Callable[[], str]) -> None:
    """Call `work`, and raise the exception that ends it as an error that says whether another attempt helps.

    Raises:
        EndedError: It was stopped, or another attempt would not help.
        PeerError: Another process was lost.
    """
    try:
        work()
    except Interrupted as stop:
        raise EndedError(stop.exit_code, reason()) from None
    except PeerError:
        time.sleep(PEER_S)
        raise
    except Exception as error:
        code = find_code(error)
        if code is None or code == ExitCode.FAULT:
            traceback.print_exc()
            raise
        raise EndedError(code, " ".join(str(error).split())) from None

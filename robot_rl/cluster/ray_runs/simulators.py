"""Simulators as actors of Ray, each with a share of a run's worlds, on any machine of the cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robot_rl.cluster.ray_runs.cluster import last_line, make_actor, result
from robot_rl.cluster.ray_runs.roles import SimulatorsCfg
from robot_rl.errors import UserError
from robot_rl.learn.ranks import SINGLE_PROCESS, ProcessGroup
from robot_rl.learn.rollouts.source import StoppedError
from robot_rl.learn.simulators.pool import LostError, Pool, State
from robot_rl.learn.simulators.simulator import Segment, Share, Simulator
from robot_rl.metrics.rows import to_stderr

PATIENCE_S = 10.0
"""How long an actor may take to answer, and how long to wait before a line reports it [s]."""
POLL_S = 1.0
"""Time between two looks at other events, while nothing arrives [s]."""
NAMESPACE = "robot-rl"
"""Of the actors' names, by which a learner that was started again finds the simulators of the one before."""
ORPHAN_S = 120.0
"""How long a simulator waits for a learner before it ends [s]."""
BEAT_S = 10.0
"""Time between two signs of a learner's life [s]."""
THREADS = 3
"""Threads of an actor: one simulates, another takes weights, and one is spare."""
CHECKED = ("robot-rl", "torch", "mujoco", "mujoco-warp", "warp-lang", "numpy")
"""Packages that must have the same version in the learner and in each simulator."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatorSpec:
    """The specification that a simulator is built from.

    Attributes:
        run: The run's directory, which the simulator's machine also sees.
        index: Which simulator of the run it is.
        count: How many there are.
        cpus: Threads of its engine.
        task: The task's name.
        engine: Its engine.
        gpus: Its GPUs; with any it simulates on the first.
        trust: Whether the code that the settings name may be imported.
        settings: Hash of the run's settings.
    """

    run: str
    index: int
    count: int
    cpus: int
    task: str
    engine: str
    gpus: float = 0.0
    trust: bool = False
    settings: str = ""


def to_arrays(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Return tensors on the CPU as arrays, which Ray passes on without a copy."""
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def to_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Return arrays as tensors that share their memory, and must only be read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # The memory is Ray's, and cannot be written.
        return {name: torch.from_numpy(array) for name, array in arrays.items()}


class SimulatorProcess:
    """A simulator in its own process; each method is called by the learner through Ray."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        """Build the worlds of a run's settings; `order` has the fields of an `SimulatorSpec`."""
        from robot_rl.runs.inputs import resolve_inputs
        from robot_rl.runs.run_dir import RunDir
        from robot_rl.runs.settings import load

        self._order = SimulatorSpec(**order)
        self._is_free = threading.Lock()
        torch.set_num_threads(max(1, self._order.cpus))
        # Its own device: the run's is the learner's.
        changes = {"engine": self._order.engine, "device": device_of(self._order.engine, self._order.gpus)}
        cfg = resolve_inputs(load(RunDir(Path(self._order.run)), changes, trust=self._order.trust))
        if not cfg.num_threads:
            cfg = dataclasses.replace(cfg, num_threads=self._order.cpus)
        share = Share(self._order.index, self._order.count)
        self._env = cfg.make_env(ranks=share)
        self._env.quarantine_dir = Path(self._order.run) / "quarantine"
        self._simulator = Simulator(
            self._env,
            cfg.learner,
            seed=cfg.seed,
            index=self._order.index,
            count=self._order.count,
            staleness=cfg.learner.staleness.max,
        )
        self._cfg = cfg
        self._first = self._simulator.state()
        self._seen = time.monotonic()
        threading.Thread(target=self._end_orphaned, name="robot-rl-orphan", daemon=True).start()

    def _end_orphaned(self) -> None:
        """End the process if no learner has been heard of for long: its command was killed."""
        while time.monotonic() - self._seen < ORPHAN_S:
            time.sleep(BEAT_S)
        os._exit(0)

    def beat(self) -> None:
        """Take a sign of the learner's life."""
        self._seen = time.monotonic()

    def begin(self, order: Mapping[str, Any]) -> dict[str, Any] | None:
        """Be the simulator of a learner that was started again, as built; return its facts.

        None if it was built from another order.
        """
        self.beat()
        self._simulator.mailbox.abandon()
        with self._is_free:
            self._simulator.load(self._first)
        self._simulator.mailbox.allow()
        return self.facts() if _fields(self._order) == dict(order) else None

    def facts(self) -> dict[str, Any]:
        """Return the facts that have to be the same in all of them: task, engine, versions."""
        return {"task": self._cfg.task.name, "engine": self._cfg.engine, **_versions()}

    def state(self) -> dict[str, np.ndarray]:
        """Return the state of its worlds; not while a segment is simulated."""
        return to_arrays(self._simulator.state())

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a state."""
        self._simulator.load({name: tensor.clone() for name, tensor in to_tensors(state).items()})

    def segment(self, target: int, *, is_first: bool) -> dict[str, Any] | None:
        """Simulate a segment (`Simulator.segment`); its tensors are arrays."""
        self.beat()
        with self._is_free:
            segment = self._simulator.segment(target, is_first=is_first)
        if segment is None:
            return None
        plain = {item.name: getattr(segment, item.name) for item in dataclasses.fields(segment)}
        frozen = None if segment.frozen is None else segment.frozen.numpy()
        return plain | {"tensors": to_arrays(segment.tensors), "state": to_arrays(segment.state), "frozen": frozen}

    def publish(self, version: int, weights: np.ndarray) -> None:
        """Take newer weights."""
        self.beat()
        self._simulator.mailbox.put(version, torch.from_numpy(np.array(weights)))

    def abandon(self) -> None:
        """Give the segment up."""
        self._simulator.mailbox.abandon()

    def allow(self) -> None:
        """Work again."""
        self._simulator.mailbox.allow()


class RayPool(Pool):
    """Simulators that are actors; of several learners each has its own part of them."""

    def __init__(
        self,
        cfg: SimulatorsCfg,
        order: SimulatorSpec,
        stop: Callable[[], bool] = bool,
        ranks: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        """Start simulators, for which `wait` waits.

        Args:
            cfg: Their number, and the resources of each.
            order: The specification they are built from; the fields that differ are set for each.
            stop: Called while nothing arrives: whether the training shall stop.
            ranks: The learners.
        """
        count = cfg.count // ranks.size
        first = ranks.rank * count
        engines = [cfg.engine(first + index) or order.engine for index in range(count)]
        super().__init__(count, -(-cfg.fewest // ranks.size), engines)
        self.first, self.missing, self._ranks = first, set(range(count)), ranks
        self._stop, self._cfg, self._order = stop, cfg, order
        self._weights: tuple[int, Any] | None = None
        self._refs: dict[Any, int] = {}
        self._building: dict[Any, int] = {}
        self._beats: dict[int, Any] = {}
        self._actors: list[Any] = [None] * count
        for index in range(count):
            if not self._find(index):
                self._start(index)
        self._end = threading.Event()
        threading.Thread(target=self._beat, name="robot-rl-beat", daemon=True).start()

    def wait(self) -> None:
        """Wait until the least number of simulators is built.

        Raises:
            UserError: One has other versions than this process, or cannot be built.
            Interrupted: The training shall stop.
        """
        import ray

        begin, is_reported = time.monotonic(), False
        while len(self.present) < self.least:
            self._look()
            if time.monotonic() - begin > PATIENCE_S and not is_reported:
                is_reported = True
                to_stderr(f"waits for room for simulators, of which {self.least} are needed, or for them to be built")
            for ref in ray.wait(list(self._building), num_returns=1, timeout=POLL_S)[0]:
                try:
                    self._admit(ref)
                except BuildError as error:
                    raise UserError(f"roles.sim: a simulator cannot be built ({error.line})") from None
                except LostError as error:
                    self._lose_early(error)

    def _lose_early(self, error: LostError) -> None:
        """Start a simulator again that was lost before the training begins; raise UserError if that does not help."""
        try:
            self._lose(error)
        except LostError as last:
            raise UserError(
                "roles.sim.least", self.least, f"simulator {self.first + error.index} {last.line}"
            ) from None

    def _look(self) -> None:
        """Raise StoppedError if the training shall stop.

        Of several learners none ends before the iteration does, unless nothing can arrive.
        """
        if (self._ranks.size == 1 or not self.present) and self._stop():
            raise StoppedError(None, 0, signal.SIGTERM, saved=False)

    def _beat(self) -> None:
        import ray

        while not self._end.wait(BEAT_S):
            for index, actor in enumerate(list(self._actors)):
                last = self._beats.get(index)
                # One that waits for room must not get a queue of them.
                if last is None or ray.wait([last], timeout=0)[0]:
                    self._beats[index] = actor.beat.remote()

    def _order_of(self, index: int) -> SimulatorSpec:
        whole, engine = self.first + index, self.engines[index]
        return dataclasses.replace(self._order, index=whole, count=self._cfg.count, gpus=self._cfg.gpus, engine=engine)

    def _find(self, index: int) -> bool:
        """Look for the simulator of a learner before, which was lost; it is built once it has said whether it fits."""
        import ray

        order = self._order_of(index)
        try:
            actor = ray.get_actor(actor_name(order.run, order.index), namespace=NAMESPACE)
        except ValueError:
            return False
        self._actors[index] = actor
        self._building[actor.begin.remote(_fields(order))] = index
        return True

    def _free(self, name: str) -> None:
        """End the actor that has a name, if there is one, and wait until there is none."""
        import ray

        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            try:
                ray.kill(ray.get_actor(name, namespace=NAMESPACE))
            except ValueError:
                return
            time.sleep(0.05)

    def _start(self, index: int) -> None:
        """Create an actor, which begins as soon as there is room for it."""
        order, cpus = self._order_of(index), self._cfg.cpus
        name = actor_name(order.run, order.index)
        self._free(name)
        options = {"name": name, "namespace": NAMESPACE, "lifetime": "detached", "max_concurrency": THREADS}
        actor = make_actor(SimulatorProcess, cpus, self._cfg.gpus, max(1, cpus), **options)
        self._actors[index] = actor.remote(_fields(order))
        self._beats.pop(index, None)
        self._building[self._actors[index].facts.remote()] = index

    def _admit(self, ref: Any) -> None:
        """Let a simulator join that is built.

        Raises:
            LostError: It is gone; a BuildError if its worlds could not be built.
            UserError: It is another than requested.
        """
        import ray
        from ray import exceptions

        index = self._building.pop(ref)
        try:
            facts: Any = ray.get(ref)
        except exceptions.RayError as error:
            kind = BuildError if getattr(error, "actor_init_failed", False) else LostError
            raise kind(index, last_line(error)) from None
        if facts is None:  # The one of a learner before was built from other settings.
            self._start(index)
            return
        check_facts(self.first + index, facts, {"task": self._order.task, "engine": self.engines[index], **_versions()})
        if self._weights is not None:
            self._actors[index].publish.remote(*self._weights)
        try:
            self.join(index)
        except LostError:
            raise
        except (KeyError, ValueError) as error:
            line = f"simulator {self.first + index} cannot continue from its worlds ({error}); give fresh_worlds=true"
            raise UserError(line) from None

    def send(self, version: int, weights: Tensor) -> None:
        """Put the weights into the object store, from which every simulator takes them."""
        import ray

        self._weights = (version, ray.put(weights.numpy()))
        for index in self.present:  # One that waits for room would keep all of them in the store.
            self._actors[index].publish.remote(*self._weights)

    def read_state(self, index: int) -> State:
        """Return the state of a simulator's worlds."""
        return _owned(self._ask(index, "state"))

    def load_state(self, index: int, state: Mapping[str, Tensor]) -> None:
        """Let a simulator continue from a state."""
        self._ask(index, "load", to_arrays(state))

    def _ask(self, index: int, method: str, *arguments: Any) -> Any:
        """Call a method of a simulator and wait for it; raise LostError if it is gone, and its own errors."""
        ref = getattr(self._actors[index], method).remote(*arguments)
        return result(ref, lambda error: LostError(index, type(error).__name__))

    def submit(self, index: int, target: int, *, is_first: bool) -> None:
        """Let a simulator begin a segment."""
        self._refs[self._actors[index].segment.remote(target, is_first=is_first)] = index

    def receive(self) -> tuple[int, Segment | None]:
        """Wait for a segment, or for a simulator that joins."""
        import ray

        begin, is_reported = time.monotonic(), False
        while not (ready := ray.wait([*self._building, *self._refs], num_returns=1, timeout=POLL_S)[0]):
            self._look()
            if not self.present and time.monotonic() - begin > PATIENCE_S and not is_reported:
                is_reported = True
                to_stderr(f"waits for room for one of {self.count} simulators")
        index = self._building.get(ready[0])
        if index is None:
            return self._collect(ready[0])
        try:
            self._admit(ready[0])
        except UserError as error:
            self.leave_out(index, error)
            ray.kill(self._actors[index])
        return index, None

    def _collect(self, ref: Any) -> tuple[int, Segment | None]:
        """Return a segment that is there; None if it was abandoned."""
        index = self._refs.pop(ref)
        try:
            segment = result(ref, lambda error: LostError(index, type(error).__name__))
        except LostError:
            raise
        except Exception:
            self._working.discard(index)  # Nothing more comes of it.
            raise
        if segment is None:
            return index, None
        parts = {"tensors": to_tensors(segment["tensors"]), "state": _owned(segment["state"])}
        frozen = None if segment["frozen"] is None else torch.from_numpy(np.array(segment["frozen"]))
        return index, Segment(**{**segment, **parts, "frozen": frozen, "index": index})

    def restart(self, index: int) -> None:
        """Start a simulator in the place of a lost one, wherever there is room, or as soon as there is."""
        self._start(index)

    def give_up(self) -> None:
        """Let every simulator give up its segment; nothing is waited for."""
        for index in self.present:
            self._actors[index].abandon.remote()
        self._weights = None

    def allow(self) -> None:
        """Let the simulators work again; one that is lost is found out later."""
        import ray
        from ray import exceptions

        for index in self.present:
            with contextlib.suppress(exceptions.RayError):
                ray.get(self._actors[index].allow.remote(), timeout=PATIENCE_S)

    def close(self) -> None:
        """End the processes."""
        import ray

        self._end.set()
        for actor in self._actors:
            ray.kill(actor)


class BuildError(LostError):
    """A simulator's worlds could not be built."""


def check_facts(index: int, facts: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise UserError if a simulator is another than requested: its task, its engine, or a version.

    Args:
        index: Which simulator of the run.
        facts: What it says, by name.
        expected: What it has to say.
    """
    for name, value in expected.items():
        if facts.get(name) != value:
            line = f"roles.sim: {name} is {facts.get(name)} in simulator {index}, must be {value} as requested"
            raise UserError(line if name in ("task", "engine") else line.replace("as requested", "as in the learner"))


def actor_name(run: str, index: int) -> str:
    """Return the name of a run's simulator."""
    return f"simulate-{hashlib.sha256(run.encode()).hexdigest()[:16]}-{index}"


def kill_simulators(run: str, count: int) -> None:
    """End the simulators that are left of a run."""
    import ray

    for index in range(count):
        with contextlib.suppress(Exception):  # There is none, or the cluster is gone.
            ray.kill(ray.get_actor(actor_name(run, index), namespace=NAMESPACE))


def end_waiting(run: str, count: int) -> None:
    """End those of a run's simulators that wait for room: they would take that of a learner that starts again."""
    import ray

    actors: dict[Any, Any] = {}
    for index in range(count):
        with contextlib.suppress(ValueError):  # There is none.
            actor = ray.get_actor(actor_name(run, index), namespace=NAMESPACE)
            actors[actor.beat.remote()] = actor
    if actors:
        _, waiting = ray.wait(list(actors), num_returns=len(actors), timeout=POLL_S)
        for ref in waiting:
            ray.kill(actors[ref])


def _versions() -> dict[str, Any]:
    from robot_rl.machine import package_versions

    versions = package_versions()
    return {name: versions.get(name) for name in CHECKED}


def _fields(order: SimulatorSpec) -> dict[str, Any]:
    """Return the fields of an order."""
    return dataclasses.asdict(order)


def device_of(engine: str, gpus: float) -> str:
    """Return the device of a simulator: its GPU, unless the engine runs on CPUs only."""
    return "cuda" if gpus and engine != "mujoco" else "cpu"


def _owned(arrays: Mapping[str, np.ndarray]) -> State:
    """Return copies of arrays as tensors: the object store must not be kept full by them."""
    return {name: tensor.clone() for name, tensor in to_tensors(arrays).items()}


def make_worlds(
    cfg: Any, sims: SimulatorsCfg, ranks: Any, *, trust: bool, run: str, stop: Callable[[], bool] = bool
) -> Any:
    """Return the worlds of a learner, which simulators step.

    Args:
        cfg: The run's `robot_rl.runs.settings.TrainCfg`.
        sims: The simulators.
        ranks: The learners.
        trust: Whether the code that the settings name may be imported.
        run: The run's directory.
        stop: Called while nothing arrives: whether the training shall stop.
    """
    from robot_rl.learn.simulators.remote import RemoteWorlds
    from robot_rl.runs.run_dir import config_hash

    order = SimulatorSpec(
        run=run,
        index=0,
        count=sims.count,
        cpus=max(1, sims.cpus),
        task=cfg.task.name,
        engine=cfg.engine,
        trust=trust,
        settings=config_hash(cfg.tree),
    )
    num_envs = ranks.share(cfg.num_envs, "num_envs")
    pool = RayPool(sims, order, stop, ranks)
    try:
        template = cfg.make_env(num_envs=min(2, num_envs))  # While they are built.
        pool.wait()
    except BaseException:
        pool.close()
        raise
    return RemoteWorlds(template, num_envs, pool)

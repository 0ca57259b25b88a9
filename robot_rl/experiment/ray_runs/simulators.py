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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robot_rl.errors import Interrupted, UserError
from robot_rl.learn.simulators.pool import IDLE, LostError, Pool, State
from robot_rl.learn.simulators.simulator import Segment, Share, Simulator
from robot_rl.metrics.rows import to_stderr

PATIENCE_S = 10.0
"""How long an actor may take to answer, and how long to wait before a line reports it [s]."""
POLL_S = 1.0
"""Time between two looks at what else happens, while nothing arrives [s]."""
NAMESPACE = "robot-rl"
"""Of the actors' names, by which a learner that was started again finds the simulators of the one before."""
ORPHAN_S = 120.0
"""How long a simulator waits for a learner before it ends [s]."""
BEAT_S = 10.0
"""Time between two signs of a learner's life [s]."""
SHARED_CPU = 0.001
"""What a simulator without cores of its own asks for: a machine that takes work at all."""
THREADS = 3
"""Threads of an actor: one simulates, another takes weights, and one is spare."""
CHECKED = ("robot-rl", "torch", "mujoco", "mujoco-warp", "warp-lang", "numpy")
"""Packages that must have the same version in the learner and in each simulator."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatorsCfg:
    """The simulators of a run.

    Attributes:
        count: How many; 0: each learner simulates its worlds itself.
        cpus: Cores of each; 0: one that is not reserved, so that it shares a machine with whatever is there.
        gpus: GPUs of each.
    """

    count: int = 0
    cpus: int = 0
    gpus: float = 0.0

    @property
    def need(self) -> dict[str, float]:
        """Return the resources of a simulator, by Ray's names."""
        return {"CPU": float(self.cpus) or SHARED_CPU} | ({"GPU": self.gpus} if self.gpus else {})


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """What a simulator is built from.

    Attributes:
        run: The run's directory, which the simulator's machine sees, too.
        index: Which simulator of the run it is.
        count: How many there are.
        cpus: Threads of its engine.
        trust: Whether the code that the settings name may be imported.
        settings: Hash of the run's settings.
        state: State of its worlds to begin from; empty: as they are built.
    """

    run: str
    index: int
    count: int
    cpus: int
    trust: bool = False
    settings: str = ""
    state: Mapping[str, Any] = field(default_factory=dict)


def to_arrays(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Return tensors on the CPU as arrays, which Ray passes on without a copy."""
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def to_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Return arrays as tensors that share their memory, and must only be read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # The memory is Ray's, and cannot be written.
        return {name: torch.from_numpy(array) for name, array in arrays.items()}


class SimulatorProcess:
    """A simulator in a process of its own; each method is called by the learner through Ray."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        """Build the worlds of a run's settings; `order` has the fields of an `Order`."""
        from robot_rl.experiment.inputs import resolve_inputs
        from robot_rl.experiment.run_dir import RunDir
        from robot_rl.experiment.settings import load

        self._order = Order(**order)
        self._is_free = threading.Lock()
        torch.set_num_threads(max(1, self._order.cpus))
        cfg = resolve_inputs(load(RunDir(Path(self._order.run)), trust=self._order.trust))
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
        if self._order.state:
            self._simulator.load(to_tensors(self._order.state))
        self._seen = time.monotonic()
        threading.Thread(target=self._end_orphaned, name="robot-rl-orphan", daemon=True).start()

    def _end_orphaned(self) -> None:
        """End the process where no learner has been heard of for long: its command was killed."""
        while time.monotonic() - self._seen < ORPHAN_S:
            time.sleep(BEAT_S)
        os._exit(0)

    def beat(self) -> None:
        """Take a sign of the learner's life."""
        self._seen = time.monotonic()

    def begin(self, order: Mapping[str, Any]) -> bool:
        """Be the simulator of a learner that was started again: as built. Return whether it is built as requested."""
        self.beat()
        self._simulator.mailbox.abandon()
        with self._is_free:
            self._simulator.load(self._first)
        self._simulator.mailbox.allow()
        mine = (self._order.run, self._order.index, self._order.count, self._order.cpus, self._order.settings)
        return mine == tuple(order[name] for name in ("run", "index", "count", "cpus", "settings"))

    def facts(self) -> dict[str, Any]:
        """Return what has to be the same in all of them: task, engine, versions."""
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
            found = self._simulator.segment(target, is_first=is_first)
        if found is None:
            return None
        plain = {item.name: getattr(found, item.name) for item in dataclasses.fields(found)}
        frozen = None if found.frozen is None else found.frozen.numpy()
        return plain | {"tensors": to_arrays(found.tensors), "state": to_arrays(found.state), "frozen": frozen}

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

    def process(self) -> int:
        """Return the process's id."""
        return os.getpid()


class RayPool(Pool):
    """Simulators that are actors."""

    def __init__(self, cfg: SimulatorsCfg, order: Order, stop: Callable[[], bool] = bool) -> None:
        """Start simulators, for which `wait` waits.

        Args:
            cfg: How many, and what each needs.
            order: What they are built from; index and count are set for each.
            stop: Asked, while nothing arrives, whether the training shall stop.
        """
        super().__init__(cfg.count)
        self._stop = stop
        self._cfg, self._order = cfg, order
        self._weights: tuple[int, Any] | None = None
        self._refs: dict[Any, int] = {}
        self._gone: set[int] = set()
        self._actors = [self._find(index) or self._start(index, {}) for index in range(cfg.count)]
        self._end = threading.Event()
        threading.Thread(target=self._beat, name="robot-rl-beat", daemon=True).start()

    def wait(self) -> None:
        """Wait until all simulators are built.

        Raises:
            UserError: They have other versions than this process, or cannot be built.
            Interrupted: The training shall stop.
        """
        import ray

        begin, refs, is_reported = time.monotonic(), [actor.process.remote() for actor in self._actors], False
        while len(ray.wait(refs, num_returns=len(refs), timeout=POLL_S)[0]) < len(refs):
            self._look()
            if time.monotonic() - begin > PATIENCE_S and not is_reported:
                is_reported = True
                to_stderr(f"waits for room for {self.count} simulators, or for them to be built")
        self._check_facts()
        self.states = self.read_states()

    def _look(self) -> None:
        """Raise Interrupted where the training shall stop."""
        if self._stop():
            raise Interrupted(None, 0, signal.SIGTERM, saved=False)

    def _beat(self) -> None:
        while not self._end.wait(BEAT_S):
            for actor in list(self._actors):
                actor.beat.remote()

    def _find(self, index: int) -> Any:
        """Return the simulator of a learner before, which was lost; None where there is none that is alike."""
        import ray
        from ray import exceptions

        try:
            actor = ray.get_actor(actor_name(self._order.run, index), namespace=NAMESPACE)
        except ValueError:
            return None
        fields = _fields(dataclasses.replace(self._order, index=index, count=self._cfg.count))
        try:
            if ray.get(actor.begin.remote(fields), timeout=PATIENCE_S):
                return actor
        except exceptions.RayError:
            return None
        return None

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

    def _start(self, index: int, state: Mapping[str, Tensor]) -> Any:
        import ray

        order = dataclasses.replace(self._order, index=index, count=self._cfg.count, state=to_arrays(state))
        self._free(actor_name(order.run, index))
        options = {"num_cpus": self._cfg.need["CPU"], "num_gpus": self._cfg.gpus, "max_concurrency": THREADS}
        variables = {"OMP_NUM_THREADS": str(max(1, self._cfg.cpus))}
        actor = ray.remote(SimulatorProcess).options(
            **options,
            name=actor_name(order.run, index),
            namespace=NAMESPACE,
            lifetime="detached",
            runtime_env={"env_vars": variables},
            scheduling_strategy="SPREAD",
        )
        return actor.remote(_fields(order))

    def _check_facts(self) -> None:
        import ray
        from ray import exceptions

        try:
            found = ray.get([actor.facts.remote() for actor in self._actors])
        except exceptions.RayError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise UserError(f"roles.sim: a simulator cannot be built ({lines[-1] if lines else error})") from None
        own = {**found[0], **_versions()}
        for index, facts in enumerate(found):
            for name, value in facts.items():
                if value != own[name]:
                    line = f"roles.sim: {name} is {value} in simulator {index}, must be {own[name]} as elsewhere"
                    raise UserError(line)

    def publish(self, version: int, weights: Tensor) -> None:
        """Put the weights into the object store, from which every simulator takes them."""
        import ray

        self._weights = (version, ray.put(weights.numpy()))
        for actor in self._actors:
            actor.publish.remote(*self._weights)

    def read_states(self) -> list[State]:
        """Return the state of each simulator's worlds."""
        import ray

        return [_owned(state) for state in ray.get([actor.state.remote() for actor in self._actors])]

    def submit(self, index: int, target: int, *, is_first: bool) -> None:
        """Let a simulator begin a segment."""
        self._refs[self._actors[index].segment.remote(target, is_first=is_first)] = index

    def receive(self) -> tuple[int, Segment | None]:
        """Wait for a segment."""
        import ray
        from ray import exceptions

        while not (ready := ray.wait(list(self._refs), num_returns=1, timeout=POLL_S)[0]):
            self._look()
        index = self._refs.pop(ready[0])
        try:
            found = ray.get(ready[0])
        except exceptions.RayTaskError as error:
            self._targets[index] = IDLE  # It is not submitted again.
            raise error.as_instanceof_cause() from None
        except exceptions.RayError as error:
            self._gone.add(index)
            raise LostError(index, type(error).__name__) from None
        if found is None:
            return index, None
        parts = {"tensors": to_tensors(found["tensors"]), "state": _owned(found["state"])}
        frozen = None if found["frozen"] is None else torch.from_numpy(np.array(found["frozen"]))
        return index, Segment(**{**found, **parts, "frozen": frozen})

    def replace(self, index: int, state: Mapping[str, Tensor]) -> None:
        """Let a simulator go on from a state; in the place of a lost one a new one does, where there is room."""
        import ray
        from ray import exceptions

        if index not in self._gone:
            with contextlib.suppress(exceptions.RayError):  # It is lost, and another one begins.
                ray.get(self._actors[index].load.remote(to_arrays(state)))
                return
        self._gone.discard(index)
        self._actors[index] = self._start(index, state)
        if self._weights is not None:
            self._actors[index].publish.remote(*self._weights)

    def abandon(self) -> None:
        """Let every simulator give up its segment; nothing is waited for."""
        for actor in self._actors:
            actor.abandon.remote()
        self._weights = None

    def allow(self) -> None:
        """Let the simulators work again; one that is lost is found out later."""
        import ray
        from ray import exceptions

        for actor in self._actors:
            with contextlib.suppress(exceptions.RayError):
                ray.get(actor.allow.remote(), timeout=PATIENCE_S)

    def close(self) -> None:
        """End the processes."""
        import ray

        self._end.set()
        for actor in self._actors:
            ray.kill(actor)


def actor_name(run: str, index: int) -> str:
    """Return the name of a run's simulator."""
    return f"simulate-{hashlib.sha256(run.encode()).hexdigest()[:16]}-{index}"


def kill_simulators(run: str, count: int) -> None:
    """End what is left of a run's simulators."""
    import ray

    for index in range(count):
        with contextlib.suppress(Exception):  # There is none, or the cluster is gone.
            ray.kill(ray.get_actor(actor_name(run, index), namespace=NAMESPACE))


def _versions() -> dict[str, Any]:
    from robot_rl.machine import package_versions

    versions = package_versions()
    return {name: versions.get(name) for name in CHECKED}


def _fields(order: Order) -> dict[str, Any]:
    """Return the fields of an order; arrays stay as they are."""
    return {item.name: getattr(order, item.name) for item in dataclasses.fields(order)}


def _owned(arrays: Mapping[str, np.ndarray]) -> State:
    """Return copies of arrays as tensors: the object store must not be kept full by them."""
    return {name: tensor.clone() for name, tensor in to_tensors(arrays).items()}


def make_worlds(
    cfg: Any, sims: SimulatorsCfg, ranks: Any, *, trust: bool, run: str, stop: Callable[[], bool] = bool
) -> Any:
    """Return the worlds of a learner, which simulators step.

    Args:
        cfg: The run's `robot_rl.experiment.settings.TrainCfg`.
        sims: The simulators.
        ranks: The learners.
        trust: Whether the code that the settings name may be imported.
        run: The run's directory.
        stop: Asked, while nothing arrives, whether the training shall stop.
    """
    from robot_rl.experiment.run_dir import config_hash
    from robot_rl.learn.simulators.runner import RemoteWorlds

    if ranks.size > 1:
        raise UserError(f"launcher.ranks={ranks.size}: with roles.sim.count={sims.count} one process learns")
    settings = config_hash(cfg.tree)
    order = Order(run=run, index=0, count=sims.count, cpus=max(1, sims.cpus), trust=trust, settings=settings)
    pool = RayPool(sims, order, stop)
    try:
        template = cfg.make_env(num_envs=min(2, cfg.num_envs))  # While they are built.
        pool.wait()
    except BaseException:
        pool.close()
        raise
    return RemoteWorlds(template, cfg.num_envs, pool)

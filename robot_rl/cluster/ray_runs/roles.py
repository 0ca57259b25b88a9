"""What the roles of a run on Ray need: its learners, simulators, services and evaluator. Importable without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from robot_rl.cluster.ray_runs.cluster import SHARED_CPU, Node, room

EPISODES, MAX_EPISODES = 100, 65_536
"""Episodes of an evaluation by default, and at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatorsCfg:
    """The simulators of a run.

    Attributes:
        count: How many; 0: each learner simulates its worlds itself.
        cpus: Cores of each; 0: one that is not reserved, so that it shares a machine with any other work.
        gpus: GPUs of each.
        least: How many have to be built before the training begins; 0: all.
        engines: Their engines, in turn; none: the run's engine.
    """

    count: int = 0
    cpus: int = 0
    gpus: float = 0.0
    least: int = 0
    engines: Sequence[str] = ()

    @property
    def fewest(self) -> int:
        """Return how many have to be built before the training begins."""
        return self.least or self.count

    def engine(self, index: int) -> str:
        """Return a simulator's engine; empty: the run's engine."""
        return self.engines[index % len(self.engines)] if self.engines else ""

    @property
    def need(self) -> dict[str, float]:
        """Return the resources of a simulator, by Ray's names."""
        return {"CPU": float(self.cpus) or SHARED_CPU} | ({"GPU": self.gpus} if self.gpus else {})


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluatorCfg:
    """The evaluations of a run.

    Attributes:
        every: Iterations between two; 0: there are none.
        episodes: Episodes of each.
        cpus: Cores; 0: one that is not reserved.
    """

    every: int = 0
    episodes: int = EPISODES
    cpus: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupCfg:
    """The size of a group, and the resources that each of its processes needs.

    Attributes:
        nodes: Machines, at most.
        min_nodes: Machines, at least; the group is elastic if they are fewer.
        ranks: Processes on each.
        cpus: Cores of each process.
        gpus: GPUs of each process.
        max_failures: How often processes may be lost.
        folder: Where Ray Train keeps its own files while the run is trained.
        sims: Its simulators.
        evaluator: The evaluator of its policy.
        services: The resources of each service that is apart, by Ray's names.
    """

    nodes: int
    min_nodes: int
    ranks: int
    cpus: int
    gpus: float
    max_failures: int
    folder: Path
    sims: SimulatorsCfg = field(default_factory=SimulatorsCfg)
    evaluator: EvaluatorCfg = field(default_factory=EvaluatorCfg)
    services: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Return the processes of the whole group."""
        return self.nodes * self.ranks

    @property
    def is_elastic(self) -> bool:
        """Return whether the group may be smaller than whole."""
        return self.min_nodes < self.nodes

    @property
    def need(self) -> dict[str, float]:
        """Return the resources of a process, by Ray's names."""
        return {"CPU": float(self.cpus)} | ({"GPU": self.gpus} if self.gpus else {})

    def fitting(self, nodes: list[Node]) -> int:
        """Return the largest size for which machines have room; 0 if it is less than the least."""
        whole = min(room(nodes, self.need) // self.ranks, self.nodes)
        return whole * self.ranks if whole >= self.min_nodes else 0


def roles_room(nodes: list[Node], cfg: GroupCfg, *, whole: bool = False) -> dict[str, tuple[float, float]]:
    """Return by resource how much the roles of a run need, and how much a cluster has if nothing else ran on it.

    Args:
        nodes: The cluster's machines.
        cfg: The run's processes.
        whole: With all simulators, not only as many as a training needs to begin.
    """
    sims = cfg.sims.count if whole else cfg.sims.fewest
    evaluator = {"CPU": float(cfg.evaluator.cpus) if cfg.evaluator.every else 0.0}
    rooms = {}
    for key in ("CPU", "GPU"):
        services = sum(need.get(key, 0.0) for need in cfg.services.values())
        need = (
            cfg.size * (cfg.need.get(key, 0.0) + services)
            + sims * cfg.sims.need.get(key, 0.0)
            + evaluator.get(key, 0.0)
        )
        rooms[key] = (need, sum(node.total.get(key, 0.0) for node in nodes))
    return rooms


def runs_at_once(nodes: list[Node], cfg: GroupCfg) -> int:
    """Return for how many runs at once a cluster has room, with all that belongs to them; at least 1."""
    if not cfg.sims.count and not cfg.services and not cfg.evaluator.cpus:
        return max(1, room(nodes, cfg.need, total=True) // cfg.size)
    counts = [int(has // need) for need, has in roles_room(nodes, cfg, whole=True).values() if need]
    return max(1, min(counts))

"""The finding of a check, and the facts of the nodes that checks look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from robot_rl.cluster.preflight.facts import NodeFacts
from robot_rl.errors import UserError

OK, WARN, FAIL = "ok", "warn", "fail"
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """The outcome of a check.

    Attributes:
        status: "ok", "warn" (it costs speed, or may cost a run) or "fail" (a run would not start, or be lost).
        found: One line about the facts found.
        right: One line about the correct state; "" if all is right.
    """

    status: str = OK
    found: str
    right: str = ""


def ok(found: str) -> Finding:
    """Return the finding that all is right."""
    return Finding(found=found)


def warn(found: str, right: str) -> Finding:
    """Return the finding of a problem that costs speed, or may cost a run."""
    return Finding(status=WARN, found=found, right=right)


def fail(found: str, right: str) -> Finding:
    """Return the finding of a problem that would stop a run, or lose it."""
    return Finding(status=FAIL, found=found, right=right)


def refused(error: object, right: str = "") -> Finding:
    """Return the finding of a UserError, whose last part says how to correct it; without one, `right` does."""
    found, semicolon, last = str(error).rpartition("; ")
    return fail(found, last) if semicolon else fail(last, right)


def check_request(check: Callable[[], None], accepted: str) -> Finding:
    """Return the finding on a launcher's own check, which raises UserError; `accepted` is the text if it does not."""
    try:
        check()
    except UserError as error:
        return refused(error)
    return ok(accepted)


class Request(Protocol):
    """What a run requests of each node: a `robot_rl.cluster.launchers.launcher.Launcher`."""

    nodes: int
    gpus: Any
    cpus: int

    @property
    def ranks_a_node(self) -> int:
        """Return the processes on each machine."""
        ...

    def cluster_checks(self, root: Path) -> Sequence[tuple[str, Finding]]:
        """Return the findings about the cluster itself, before a node is asked."""
        ...

    def probe_nodes(self, cluster: Cluster, token: str) -> None:
        """Ask the nodes, and add their answers to the cluster."""
        ...


@dataclass(kw_only=True, slots=True)
class Cluster:
    """What the nodes answered.

    Attributes:
        launcher: The launcher with its settings.
        root: The directory of runs.
        wanted: Nodes that should answer.
        nodes: The facts of each node that answered.
        offsets_s: Least and greatest difference of a node's clock from the submitter's, by name [s].
        error: Why nodes did not answer; "" if they did.
        unseen: Nodes whose file below the root the submitter does not see.
        root_error: Why the submitter cannot write to the root; "" if it can.
    """

    launcher: Request
    root: Path
    wanted: int = 1
    nodes: list[NodeFacts] = field(default_factory=list)
    offsets_s: dict[str, tuple[float, float]] = field(default_factory=dict)
    error: str = ""
    unseen: list[str] = field(default_factory=list)
    root_error: str = ""


def join(names: Sequence[str], most: int = 4) -> str:
    """Return names with commas, those after some of them counted."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def odd_ones(values: Mapping[str, T]) -> tuple[T | None, dict[str, T]]:
    """Return the most frequent of the nodes' values (of several the first node's), and the nodes with another one."""
    every = list(values.values())
    common = max(every, key=every.count, default=None)
    return common, {name: value for name, value in values.items() if value != common}


def differing(values: Mapping[str, str], verb: str) -> list[str]:
    """Return a line for each node with another value than most: `verb` is "has torch", for example."""
    common, others = odd_ones(values)
    return [f"{name} {verb} {value}, not {common}" for name, value in others.items()]

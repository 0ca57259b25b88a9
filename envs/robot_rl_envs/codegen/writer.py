"""The calls of terms, the parameters and the random streams in the text of kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from robot_rl_envs.agents import Crew
from robot_rl_envs.codegen.layout import TaskLayout
from robot_rl_envs.rng import salt_of
from robot_rl_envs.task import TorchTerm

CREW_SEED = 7919
"""Distance of the seeds of two crews: the same row of both draws differently."""


class KernelWriter:
    """Writes expressions for one task, and collects the functions that they call and the parameters that they read.

    Attributes:
        layout: gets the parameters.
        crew: the robots of the scene, in a team.
        functions: functions of terms by the name that the text calls them.
        aliases: path of a term -> that name.
        sensors: functions of sensors by their own names.
    """

    def __init__(self, layout: TaskLayout, crew: Crew | None = None):
        self.layout, self.crew = layout, crew
        self.functions: dict[str, Any] = {}
        self.aliases: dict[str, str] = {}
        self.sensors: dict[str, Any] = {}

    def call(self, path: str, term: Any, arguments: str, fn: Any = None, part: str = "update") -> str:
        """Return an expression that calls ``term`` (or ``fn``, its ``part``) with its parameters from the array."""
        key = path if fn is None else f"{path}.{part}"
        alias = self.aliases.setdefault(key, f"t{len(self.aliases)}_{key.replace('.', '_')}")
        self.functions[alias] = term.fn if fn is None else fn
        params = [self.layout.param(f"{path}.{name}", value) for name, value in term.params.items()]
        return f"{alias}({', '.join([arguments, *params])})"

    def calls(
        self, section: str, terms: Mapping[str, Any], attribute: str, part: str = "update", arguments: str = "s, i"
    ) -> str:
        """Return the lines that call a further function of these terms, the ``attribute`` of a term's info."""
        lines = []
        for name, term in terms.items():
            fn = None if isinstance(term, TorchTerm) else getattr(term.info, attribute)
            if fn is not None:
                lines.append(self.call(f"{section}.{name}", term, arguments, fn, part) + "\n")
        return "".join(lines)

    def runs(self, functions: Iterable[Any], arguments: str = "s, i") -> str:
        """Return the lines that run functions of sensors."""
        lines = []
        for function in functions:
            self.sensors[function.key] = function
            lines.append(f"{function.key}({arguments})\n")
        return "".join(lines)

    def params(self, path: str, values: Iterable[float]) -> list[str]:
        """Reserve places for the elements of a parameter; return the expressions that read them."""
        return [self.layout.param(f"{path}.{n}", value) for n, value in enumerate(values)]

    def rng(self, path: str, *, team: bool = False) -> str:
        """Return the random stream of a term; with ``team`` it is that of the world's robots."""
        row, seed = "i + s.world_offset", "s.seed"
        if self.crew is not None and team:
            row = f"(i + s.world_offset) / {self.crew.size}"
        elif self.crew is not None and self.crew.index:
            seed = f"s.seed + {self.crew.index * CREW_SEED}"
        return f"stream({seed}, {row}, s.counter[i], {salt_of(path)})"

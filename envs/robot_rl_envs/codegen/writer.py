"""Fills the template of the step's kernels, `step_kernels.py.txt`; the rules of its syntax are at its beginning."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from robot_rl_envs.agents import Crew
from robot_rl_envs.codegen.layout import TaskLayout
from robot_rl_envs.rng import salt_of
from robot_rl_envs.task import TorchTerm

TEMPLATE = Path(__file__).with_name("step_kernels.py.txt")
CREW_SEED = 7919
"""Distance of the seeds of two crews: the same row of both draws differently."""


@cache
def read_sections() -> dict[str, list[str]]:
    """Return the lines of the template's sections by name, without comments."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in TEMPLATE.read_text().splitlines():
        if line.startswith("## "):
            lines = sections[line[3:]] = []
        elif line and not line.lstrip().startswith("#"):
            lines.append(line)
    return sections


def fill_section(section: str, values: Mapping[str, Any]) -> str:
    """Return the text of a section with its slots filled; KeyError if a value is missing."""
    lines, skipped = [], None
    for line in read_sections()[section]:
        text, _, condition = line.partition("  # if ")
        body = text.lstrip()
        indent = text[: len(text) - len(body)]
        if skipped is not None and len(indent) > skipped:
            continue
        skipped = None if _is_true(condition, values) else len(indent)
        if skipped is None and (slot := re.fullmatch(r"\{(\w+)\}", body)):
            block = values[slot[1]] if slot[1] in values else fill_section(slot[1], values)
            lines += [indent + inner for inner in block.splitlines()]
        elif skipped is None:
            lines.append(re.sub(r"\{(\w+)\}", lambda match: str(values[match[1]]), text))
    return "\n".join(lines)


def fill_each(section: str, rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the texts of a section filled with each of these values, one below the other."""
    return "\n".join(fill_section(section, row) for row in rows)


def _is_true(condition: str, values: Mapping[str, Any]) -> bool:
    terms = condition.split(" and ") if condition else []
    return all(bool(values[term.removeprefix("not ")]) != term.startswith("not ") for term in terms)


class KernelWriter:
    """Fills sections for one task, and collects the functions that they call and the parameters that they read.

    Attributes:
        layout: gets the parameters.
        crew: the robots of the scene, in a team.
        functions: functions of terms by the name that the text calls them.
        aliases: path of a term -> that name.
    """

    def __init__(self, layout: TaskLayout, crew: Crew | None = None):
        self.layout, self.crew = layout, crew
        self.functions: dict[str, Any] = {}
        self.aliases: dict[str, str] = {}

    def call(self, path: str, term: Any, arguments: str, fn: Any = None, part: str = "update") -> str:
        """Return an expression that calls ``term`` (or ``fn``, its ``part``) with its parameters from the array."""
        key = path if fn is None else f"{path}.{part}"
        alias = self.aliases.setdefault(key, f"t{len(self.aliases)}_{key.replace('.', '_')}")
        self.functions[alias] = term.fn if fn is None else fn
        params = [self.layout.param(f"{path}.{name}", value) for name, value in term.params.items()]
        return f"{alias}({', '.join([arguments, *params])})"

    def calls(self, section: str, terms: Mapping[str, Any], attribute: str, part: str = "update") -> str:
        """Return the lines that call a further function of these terms, the ``attribute`` of a term's info."""
        lines = []
        for name, term in terms.items():
            fn = None if isinstance(term, TorchTerm) else getattr(term.info, attribute)
            if fn is not None:
                lines.append(self.call(f"{section}.{name}", term, "s, i", fn, part) + "\n")
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

"""Collects the lines of generated source, the functions they call and the parameters they read."""

from __future__ import annotations

from typing import Any

from robot_rl_envs.fuse.layout import Layout
from robot_rl_envs.rng import salt_of


class Writer:
    """Collects source lines, the functions they call and the parameters they read."""

    def __init__(self, layout: Layout):
        self.layout = layout
        self.lines: list[str] = []
        self.functions: dict[str, Any] = {}
        self.aliases: dict[str, str] = {}

    def add(self, indent: int, *lines: str) -> None:
        """Add lines of one indent."""
        self.lines += ["    " * indent + line for line in lines]

    def call(self, path: str, term: Any, arguments: str, fn: Any = None) -> str:
        """An expression that calls ``term`` (or ``fn`` in its place), its parameters read from the parameter array."""
        key = path if fn is None else f"{path}.update"
        alias = self.aliases.setdefault(key, f"t{len(self.aliases)}_{key.replace('.', '_')}")
        self.functions[alias] = term.fn if fn is None else fn
        params = [self.layout.param(f"{path}.{name}", value) for name, value in term.params.items()]
        return f"{alias}({', '.join([arguments, *params])})"

    def rng(self, indent: int, path: str) -> None:
        """Add the line that opens the random stream of a term."""
        self.add(indent, f"rng = stream(s.seed, i + s.world_offset, s.counter[i], {salt_of(path)})")

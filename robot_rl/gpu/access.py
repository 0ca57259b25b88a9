"""Which arrays a Warp kernel reads and writes, found in its text and in that of the functions it calls."""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import warp as wp

ROW = math.inf
"""How many elements a thread takes in a loop or a tile: up to all of its row."""
RARE = ("fresh", "faults", "quarantined", "slot", "dirty")
"""Where a condition reads one of these names, what follows is for worlds whose episode ends, and is left out."""
_LOADS, _STORES = ("tile_load", "tile_load_indexed"), ("tile_store", "tile_atomic_add")
_NO_DATA = ("shape", "size", "ndim", "ptr", "strides")

Path = str
"""A parameter of a kernel, or `parameter.field` of a struct."""


@dataclass(slots=True)
class Access:
    """How many elements of an array a thread reads and writes: one for each place in the text, or ROW."""

    read: float = 0
    written: float = 0


def find_accesses(kernel: Any) -> dict[Path, Access]:
    """Return how a kernel takes its arrays, by parameter; what it does not touch is left out."""
    return _analyze(kernel.adj, {})


def _analyze(adj: Any, seen: dict[int, dict[Path, Access]]) -> dict[Path, Access]:
    if id(adj) not in seen:
        seen[id(adj)] = {}  # A function that calls itself finds what is known so far.
        definition = next(node for node in ast.walk(adj.tree) if isinstance(node, ast.FunctionDef))
        reader = _Reader(adj, [arg.arg for arg in definition.args.args], seen)
        for statement in definition.body:
            reader.visit(statement)
        seen[id(adj)] = reader.found
    return seen[id(adj)]


class _Reader(ast.NodeVisitor):
    """Goes through a function; `found` has the arrays that it takes."""

    def __init__(self, adj: Any, parameters: list[str], seen: dict[int, dict[Path, Access]]) -> None:
        self.found: dict[Path, Access] = {}
        self._paths: dict[str, Path | None] = {name: name for name in parameters}
        self._seen, self._loops = seen, 0
        variables = inspect.getclosurevars(adj.func)
        self._names: Mapping[str, Any] = {**adj.func.__globals__, **variables.nonlocals}

    def visit_If(self, node: ast.If) -> None:
        """Leave out what is rare."""
        self.visit(node.test)
        names = {one.id for one in ast.walk(node.test) if isinstance(one, ast.Name)}
        names |= {one.attr for one in ast.walk(node.test) if isinstance(one, ast.Attribute)}
        for statement in [*([] if names.intersection(RARE) else node.body), *node.orelse]:
            self.visit(statement)

    def visit_For(self, node: ast.For) -> None:
        """Note that what follows is in a loop."""
        self._visit_loop(node)

    def visit_While(self, node: ast.While) -> None:
        """Note that what follows is in a loop; the one of `observe` goes over the beginning and the end of episodes."""
        names = {one.id for one in ast.walk(node.test) if isinstance(one, ast.Name)}
        if "looking" in names:
            self.generic_visit(node)
        else:
            self._visit_loop(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Note what is written, and other names of arrays."""
        self.visit(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._paths[target.id] = self._path(node.value)
            else:
                self._write(target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Note what is read and written."""
        self.visit(node.value)
        if not isinstance(node.target, ast.Name):
            self._note(self._path(node.target), read=self._much)
            self._write(node.target)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Note what is read."""
        self._note(self._path(node.value), read=self._much)
        self.visit(node.slice)
        if not isinstance(node.value, (ast.Name, ast.Attribute)):
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        """Note what a function of Warp's or of the kernel's own does with the arrays that it is given."""
        called = self._resolve(node.func)
        adj = getattr(called, "adj", None)
        if isinstance(called, wp.Function) and adj is not None and not called.is_builtin():
            parameters = list(called.input_types)
            inner = _analyze(adj, self._seen)
            for name, argument in zip(parameters, node.args, strict=False):
                self._pass_on(name, argument, inner)
        else:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if node.args and name.startswith("atomic_"):
                self._note(self._path(node.args[0]), read=self._much, written=self._much)
            elif node.args and name in _LOADS:
                self._note(self._path(node.args[0]), read=ROW)
            elif node.args and name in _STORES:
                self._note(self._path(node.args[0]), written=ROW)
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            self.visit(argument)

    @property
    def _much(self) -> float:
        return ROW if self._loops else 1

    def _visit_loop(self, node: ast.For | ast.While) -> None:
        self._loops += 1
        self.generic_visit(node)
        self._loops -= 1

    def _write(self, target: ast.expr) -> None:
        if isinstance(target, ast.Tuple):
            for one in target.elts:
                self._write(one)
        elif isinstance(target, ast.Subscript):
            self._note(self._path(target.value), written=self._much)
            self.visit(target.slice)

    def _pass_on(self, name: str, argument: ast.expr, inner: Mapping[Path, Access]) -> None:
        path = self._path(argument)
        if path is None:
            return
        for own, access in inner.items():
            if own == name or own.startswith(f"{name}."):
                read, written = (one * self._much if one else 0 for one in (access.read, access.written))
                self._note(path + own.removeprefix(name), read=read, written=written)

    def _note(self, path: Path | None, *, read: float = 0, written: float = 0) -> None:
        if path is not None:
            access = self.found.setdefault(path, Access())
            access.read, access.written = access.read + read, access.written + written

    def _path(self, node: ast.expr) -> Path | None:
        if isinstance(node, ast.Name):
            return self._paths.get(node.id)
        if isinstance(node, ast.Subscript):
            return self._path(node.value)
        if isinstance(node, ast.Attribute) and node.attr not in _NO_DATA:
            path = self._path(node.value)
            return None if path is None or "." in path else f"{path}.{node.attr}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "where":
            return self._path(node.args[-1])  # One of two arrays: they are alike.
        return None

    def _resolve(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            return self._names.get(node.id)
        if isinstance(node, ast.Attribute):
            return getattr(self._resolve(node.value), node.attr, None)
        return None

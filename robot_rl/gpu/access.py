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
        self._types = {arg.label: arg.type for arg in adj.args}
        self._seen, self._times = seen, 1.0
        self._places: set[tuple[Path, str, bool]] = set()
        variables = inspect.getclosurevars(adj.func)
        self._names: Mapping[str, Any] = {**adj.func.__globals__, **variables.nonlocals}

    def visit_If(self, node: ast.If) -> None:
        """Leave out what is rare."""
        self.visit(node.test)
        body, orelse = node.body, node.orelse
        if _names(node.test).intersection(RARE):
            usual = any(_is_zero(one) and _names(one).intersection(RARE) for one in ast.walk(node.test))
            body, orelse = (body, []) if usual else ([], orelse)
        for statement in [*body, *orelse]:
            self.visit(statement)

    def visit_For(self, node: ast.For) -> None:
        """Note that what follows is in a loop, of as many turns as the text says."""
        times = ROW
        loop = node.iter
        if isinstance(loop, ast.Call) and _names(loop.func) == {"range"}:
            turns = [one.value for one in loop.args if isinstance(one, ast.Constant) and isinstance(one.value, int)]
            if len(turns) == len(loop.args):
                times = float(len(range(*turns)))
        self._visit_loop(node, times)

    def visit_While(self, node: ast.While) -> None:
        """Note that what follows is in a loop; the one of `observe` goes over the beginning and the end of episodes."""
        if "looking" in _names(node.test):
            self.generic_visit(node)
        else:
            self._visit_loop(node, ROW)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Note what is written, and other names of arrays."""
        self.visit(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._paths[target.id] = self._path(node.value) if self._is_array(node.value) else None
            else:
                self._write(target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Note what is read and written."""
        self.visit(node.value)
        if not isinstance(node.target, ast.Name):
            self._note(self._path(node.target), read=self._times)
            self._write(node.target)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Note what is read."""
        if isinstance(node.value, (ast.Name, ast.Attribute)):
            self._note(self._path(node.value), read=self._times, place=ast.dump(node))
        else:
            self.visit(node.value)
        self.visit(node.slice)

    def visit_Call(self, node: ast.Call) -> None:
        """Note what a function of Warp's or of the kernel's own does with the arrays that it is given."""
        called = self._resolve(node.func)
        adj = getattr(called, "adj", None)
        if isinstance(called, wp.Function) and adj is not None and not called.is_builtin():
            parameters = list(called.input_types)
            inner = _analyze(adj, self._seen)
            given = [*zip(parameters, node.args, strict=False)]
            given += [(str(keyword.arg), keyword.value) for keyword in node.keywords]
            for name, argument in given:
                self._pass_on(name, argument, inner)
        else:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if node.args and name.startswith("atomic_"):
                self._note(self._path(node.args[0]), read=self._times, written=self._times)
            elif node.args and name in _LOADS:
                self._note(self._path(node.args[0]), read=ROW)
            elif node.args and name in _STORES:
                self._note(self._path(node.args[0]), written=ROW)
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            self.visit(argument)

    def _visit_loop(self, node: ast.For | ast.While, times: float) -> None:
        before, self._times = self._times, self._times * max(times, 1.0)
        self.generic_visit(node)
        self._times = before

    def _is_array(self, node: ast.expr) -> bool:
        """Return whether an expression is an array, or a row of one, and no element."""
        if isinstance(node, ast.Subscript):
            path = self._path(node.value)
            indices = len(node.slice.elts) if isinstance(node.slice, ast.Tuple) else 1
            return path is not None and self._ndim(path) > indices
        return True

    def _ndim(self, path: Path) -> int:
        name, _, field = path.partition(".")
        kind = self._types.get(name)
        if field:
            kind = getattr(getattr(kind, "vars", {}).get(field), "type", None)
        return int(getattr(kind, "ndim", 0))

    def _write(self, target: ast.expr) -> None:
        if isinstance(target, ast.Tuple):
            for one in target.elts:
                self._write(one)
        elif isinstance(target, ast.Subscript):
            self._note(self._path(target.value), written=self._times, place=ast.dump(target))
            self.visit(target.slice)

    def _pass_on(self, name: str, argument: ast.expr, inner: Mapping[Path, Access]) -> None:
        path = self._path(argument)
        if path is None:
            return
        for own, access in inner.items():
            if own == name or own.startswith(f"{name}."):
                read, written = (one * self._times if one else 0 for one in (access.read, access.written))
                self._note(path + own.removeprefix(name), read=read, written=written)

    def _note(self, path: Path | None, *, read: float = 0, written: float = 0, place: str = "") -> None:
        """Add what is read and written; a place that the text names again comes from a register or the cache."""
        if path is not None and (not place or (path, place, written > 0) not in self._places):
            self._places.add((path, place, written > 0))
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


def _names(node: ast.AST) -> set[str]:
    """Return the names of variables and fields in an expression."""
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return names | {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}


def _is_zero(node: ast.AST) -> bool:
    """Return whether an expression compares something with 0 for equality."""
    return (
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.Eq)
        and isinstance(node.comparators[0], ast.Constant)
        and node.comparators[0].value == 0
    )

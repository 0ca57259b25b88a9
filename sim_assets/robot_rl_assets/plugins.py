"""Plug-ins: what other packages add to a registry, by an entry point or as `module:name`.

An installed package declares entry points in one of `GROUPS`; what is not installed is named by its module, which is
looked for in the current directory as well. Nothing is imported before it is used, and a plug-in that cannot be used is
one line that names its distribution: the others go on working. Standard library only.
"""

import difflib
import importlib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from typing import Any, TypeVar

TASKS, ROBOTS, ALGORITHMS = "robot_rl.tasks", "robot_rl.robots", "robot_rl.algorithms"
SOURCES, LAUNCHERS = "robot_rl.sources", "robot_rl.launchers"
GROUPS = (TASKS, ROBOTS, ALGORITHMS, SOURCES, LAUNCHERS)
NAME = re.compile(r"[A-Za-z_][\w.-]*")
REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
"""How `module:name` is written."""

T = TypeVar("T")


class PluginError(ValueError):
    """A plug-in that is not there or cannot be used: one line."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """An entry point.

    Attributes:
        name: What it is called by.
        packages: The distributions that declare it; more than one is a conflict.
        target: The `module:name` that it stands for.
    """

    name: str
    packages: tuple[str, ...]
    target: str

    def load(self, what: str) -> Any:
        """Import it and return what it stands for.

        Args:
            what: The setting that names it, for errors.

        Raises:
            PluginError: Two packages declare it, its name cannot be written, or it cannot be imported.
        """
        line = f"{what}={self.name}: the plug-in of {' and of '.join(self.packages)}"
        if len(self.packages) > 1:
            raise PluginError(f"{line} have the same name; uninstall one of them")
        if not NAME.fullmatch(self.name):
            raise PluginError(f"{line} must be called by letters, digits, _, - and .")
        return _import(self.target, f"{line} cannot be used", "repair or uninstall that package")


def find_plugins(group: str) -> dict[str, Plugin]:
    """Return the plug-ins of a group by name; none of them is imported."""
    found: dict[str, Plugin] = {}
    for entry in sorted(metadata.entry_points(group=group), key=lambda entry: (entry.name, entry.value)):
        package = "a package without a name" if entry.dist is None else entry.dist.name
        packages = (*(found[entry.name].packages if entry.name in found else ()), package)
        found[entry.name] = Plugin(entry.name, packages, entry.value.partition("[")[0].strip())
    return found


def list_names(group: str) -> list[str]:
    """Return the names of a group's plug-ins that can be written, sorted; whether each can be used is not tried."""
    return sorted(name for name in find_plugins(group) if NAME.fullmatch(name))


def is_reference(name: str) -> bool:
    """Return whether a name is written `module:name`."""
    return REFERENCE.fullmatch(name) is not None


def load(group: str, name: str, what: str, own: Iterable[str] = ()) -> Any:
    """Return the object that a name stands for: a plug-in, or `module:name` where that is written.

    Args:
        group: One of `GROUPS`.
        name: The name.
        what: The setting that names it, for errors.
        own: Names that the registry knows by itself, for the suggestion.

    Raises:
        PluginError: There is none of that name (the line offers the nearest), or it cannot be imported.
    """
    if ":" in name:
        if not is_reference(name):
            raise PluginError(f"{what}={name}: must be written module:name, such as {what}=my_package.{what}s:make")
        if os.getcwd() not in sys.path:  # As with python -m.
            sys.path.append(os.getcwd())
        return _import(name, f"{what}={name}", "install it, or start where its file is")
    found = find_plugins(group)
    if name not in found:
        known = sorted({*own, *found})
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise PluginError(f"{what}={name!r}: must be one of {', '.join(known)}, or module:name{hint}")
    return found[name].load(what)


def make(found: Any, kind: type[T], line: str, right: str, *arguments: Any) -> T:
    """Return what a plug-in's function returns; without arguments, the found object itself if it is of the kind.

    A function that does not accept the arguments is not called.

    Args:
        found: The object that `load` returned.
        kind: The required class.
        line: The setting and its value, for errors.
        right: What the plug-in must be, for errors.
        arguments: Those of the function.

    Raises:
        PluginError: The function does not accept the arguments, it raised, or the result is of another class.
    """
    made = found
    if callable(found) and (arguments or not isinstance(found, kind)):
        given = f"with {len(arguments)} argument{'s' * (len(arguments) > 1)}" if arguments else "without arguments"
        try:
            inspect.signature(found).bind(*arguments)
        except (TypeError, ValueError) as error:  # ValueError: it is compiled and does not say.
            raise PluginError(f"{line}: {right}, {found!r} cannot be called {given} ({error})") from error
        try:
            made = found(*arguments)
        except (Exception, SystemExit) as error:  # Whatever somebody's function does.
            why = str(error) if isinstance(error, ValueError) else describe_failure(error)
            raise PluginError(f"{line}: {_place(found, error)}{why}") from error
    if not isinstance(made, kind):
        raise PluginError(f"{line}: {right}, found {made!r}")
    return made


def _place(function: Any, error: BaseException) -> str:
    """Return "file:line: " of the last line of a function's file that an error came through; empty for none."""
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{file}:{lines[-1]}: " if lines else ""


def describe_failure(error: BaseException) -> str:
    """Return an error of somebody's code in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _import(reference: str, line: str, right: str) -> Any:
    module, _, path = reference.partition(":")
    try:
        node = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # Whatever somebody's module does.
        is_missing = isinstance(error, ModuleNotFoundError)
        why = (
            f"cannot import {error.name}" if is_missing else f"{module} fails at its import ({describe_failure(error)})"
        )
        raise PluginError(f"{line}: {why}; {right}") from error
    for part in filter(None, path.split(".")):
        if not hasattr(node, part):
            known = [key for key in vars(node) if not key.startswith("_")] if hasattr(node, "__dict__") else []
            near = difflib.get_close_matches(part, known, n=1)
            raise PluginError(f"{line}: {module} has no '{part}'" + (f"; did you mean '{near[0]}'?" if near else ""))
        node = getattr(node, part)
    return node

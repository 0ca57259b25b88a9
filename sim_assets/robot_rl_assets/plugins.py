"""Registries of objects that a setting may name, of a package's folder, of a plug-in, or as `module:name`.

An installed package declares entry points in one of `GROUPS`, and so does the project in the working folder
(`robot_rl_assets.project`); other code is named by its module, also looked for in that folder. Nothing is imported
before it is used, and a plug-in that cannot be used is one line that names its distribution: the others keep working.
Standard library only.
"""

import ast
import difflib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from robot_rl_assets import authored
from robot_rl_assets.project import find_project, normalized

TASKS, ROBOTS, ALGORITHMS = "robot_rl.tasks", "robot_rl.robots", "robot_rl.algorithms"
SOURCES, LAUNCHERS = "robot_rl.sources", "robot_rl.launchers"
GROUPS = (TASKS, ROBOTS, ALGORITHMS, SOURCES, LAUNCHERS)
NAME = re.compile(r"[A-Za-z_][\w.-]*")
REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
"""How `module:name` is written."""
_REQUIRES = re.compile(r'^REQUIRES = "(\w+)"$', re.MULTILINE)

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
        folder: The folder of its module, if the project in the working folder declares it and is not installed.
    """

    name: str
    packages: tuple[str, ...]
    target: str
    folder: str = ""

    def load(self, what: str) -> Any:
        """Import it and return the named object.

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
        if self.folder and self.folder not in sys.path:
            sys.path.append(self.folder)
        right = "correct the project in this folder" if self.folder else "repair or uninstall that package"
        return _import(self.target, f"{line} cannot be used", right, self.folder)


@dataclass(frozen=True, slots=True)
class Registry:
    """What a setting may name: files of one package, the plug-ins of a group, and `module:name`.

    A file with a line `REQUIRES = "package"` counts only if that package is installed; the extra of that name brings
    it.

    Attributes:
        group: The group of its plug-ins, one of `GROUPS`; empty for none.
        what: The setting that names one of them, such as "task".
        package: The package of the own files.
        folder: That package's folder.
        pattern: Its own files, named by the first part: "*/robot.py" or "*.py".
        use: Returns the listed object of an own module.
        shared: Names of files that fit the pattern and are not listed.
    """

    group: str
    what: str
    package: str
    folder: Path
    pattern: str
    use: Callable[[ModuleType], Any]
    shared: tuple[str, ...] = ()

    def files(self) -> dict[str, Path]:
        """Return the package's own files by name, sorted; the packages that they require are installed."""
        return {name: path for name, path in self._all().items() if not _missing(path)}

    def names(self) -> list[str]:
        """Return all names, also those of plug-ins that can be written, sorted; none is tried."""
        return sorted({*self.files(), *filter(NAME.fullmatch, find_plugins(self.group))})

    def get(self, name: str) -> Any:
        """Return the object of a name: `use` of an own file, or the object of a plug-in or of `module:name`.

        Raises:
            PluginError: There is none of that name (the line offers the nearest), a package that it requires is not
                installed, or it cannot be imported; for an own file, the line gives the place.
        """
        path = self._all().get(name)
        if path is None:
            return load(self.group, name, self.what, self.files())
        if package := _missing(path):
            raise PluginError(f"{self.what}={name}: needs the package {package}; pip install 'robot-rl[{package}]'")
        parts = [part for part in path.relative_to(self.folder).with_suffix("").parts if part != "__init__"]
        try:
            return authored.run(f"{self.what}={name}", ".".join([self.package, *parts]), self.use)
        except ValueError as error:
            raise PluginError(error) from error

    def describe(self) -> dict[str, str]:
        """Return a line for each by name, sorted: the first of its docstring, or why a plug-in cannot be used.

        Own files are not imported; plug-ins are.
        """
        own = {name: first_line(path) for name, path in self.files().items()}
        return dict(sorted({**own, **describe_plugins(self.group, self.what, own)}.items()))

    def _all(self) -> dict[str, Path]:
        found = {
            path.relative_to(self.folder).parts[0].removesuffix(".py"): path for path in self.folder.glob(self.pattern)
        }
        return {name: found[name] for name in sorted(found) if name not in (*self.shared, "__init__")}


def find_plugins(group: str) -> dict[str, Plugin]:
    """Return the plug-ins of a group by name, those of the project in the working folder among them; none is imported.

    A project that is also installed adds the entry points that it had not at its installation. Its sources need one:
    they are imported to ask which tasks they have, and code of a folder runs only if it is named.
    """
    project = find_project()
    entries = [
        (entry.name, entry.value, "a package without a name" if entry.dist is None else entry.dist.name, "")
        for entry in metadata.entry_points(group=group)
    ]
    known = {name for name, _, package, _ in entries if normalized(package) == project.name}
    own = project.groups.get(group, {}) if group != SOURCES else {}
    entries += [(name, target, project.name, project.folder) for name, target in own.items() if name not in known]
    found: dict[str, Plugin] = {}
    for name, target, package, folder in sorted(entries):
        packages = (*(found[name].packages if name in found else ()), package)
        found[name] = Plugin(name, packages, target.partition("[")[0].strip(), folder)
    return found


def describe_plugins(group: str, what: str, own: Iterable[str] = ()) -> dict[str, str]:
    """Return a line for each plug-in of a group: its description, or why it cannot be used.

    Those that are installed are loaded, those of the project in the working folder read.

    Args:
        group: The group.
        what: The setting that names one.
        own: Names that a plug-in cannot have.
    """
    lines = {}
    for name, plugin in find_plugins(group).items():
        packages = " and of ".join(plugin.packages)
        if name in own:
            lines[f"{name} of {packages}"] = "cannot be used: robot-rl has one of this name"
            continue
        if plugin.folder and len(plugin.packages) == 1:
            lines[name] = f"{_describe(plugin)} (of {packages}, in this folder)"
            continue
        try:
            plugin.load(what)
        except PluginError as error:
            lines[name] = f"cannot be used: {error}"
        else:
            text = sys.modules[plugin.target.partition(":")[0]].__doc__ or ""
            lines[name] = f"{text.strip().partition(chr(10))[0].rstrip('.')} (of {packages})"
    return lines


def _describe(plugin: Plugin) -> str:
    """Return the first line of the docstring of a plug-in's module, which is not imported."""
    path = Path(plugin.folder, *plugin.target.partition(":")[0].split("."))
    return first_line(path / "__init__.py" if path.is_dir() else path.with_name(f"{path.name}.py"))


def named_here(group: str, name: object, own: Iterable[str] = ()) -> list[str]:
    """Return the code of the working folder that a name stands for, as a list of one; empty for any other name.

    Args:
        group: One of `GROUPS`.
        name: The name, of any type.
        own: Names that the registry knows by itself.
    """
    if str(name) in own or str(name) not in find_project().groups.get(group, {}):
        return []
    plugin = find_plugins(group).get(str(name))
    return [plugin.target] if plugin is not None and plugin.folder else []


def first_line(path: Path) -> str:
    """Return the first line of a module's docstring, read without importing it; empty without one."""
    try:
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        return f"cannot be read: {error}"
    return text.split("\n")[0].rstrip(".")


def _missing(path: Path) -> str:
    """Return the package that a file requires and that is not installed; empty if none is missing."""
    found = _REQUIRES.search(path.read_text(encoding="utf-8", errors="replace"))
    return found[1] if found and importlib.util.find_spec(found[1]) is None else ""


def is_reference(name: str) -> bool:
    """Return whether a name is written `module:name`."""
    return REFERENCE.fullmatch(name) is not None


def load(group: str, name: str, what: str, own: Iterable[str] = ()) -> Any:
    """Return the object that a name stands for: a plug-in, or `module:name` if that is written.

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
        return _import(name, f"{what}={name}", "install it, or start in the folder of its file")
    found = find_plugins(group)
    if name not in found:
        known = sorted({*own, *found})
        near = difflib.get_close_matches(name, known, n=1) or [key for key in known if len(name) > 2 and name in key]
        hint = f"; did you mean {near[0]!r}?" if near else ""
        hint += f"; {problem}" if (problem := find_project().problem) else ""
        raise PluginError(f"{what}={name}: must be one of {', '.join(known)}, or module:name{hint}")
    return found[name].load(what)


def make(found: Any, kind: type[T], line: str, right: str, *arguments: Any) -> T:
    """Return the result of a plug-in's function; without arguments, the found object itself if it is of the kind.

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


def _place_in(module: str, folder: str, error: BaseException) -> str:
    """Return "file:line: " of the last line of a module's package, or of a project's folder, that an error is from."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        spec = None
    own = [] if spec is None else list(spec.submodule_search_locations or filter(None, [spec.origin]))
    places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        places.append((error.filename or "", error.lineno))
    roots = [Path(part) for part in (*own, folder) if part]
    found = [
        f"{file}:{line}: "
        for file, line in places
        for root in roots
        if Path(file).is_relative_to(root) and "site-packages" not in Path(file).relative_to(root).parts
    ]
    return found[-1] if found else ""


def _import(reference: str, line: str, right: str, folder: str = "") -> Any:
    module, _, path = reference.partition(":")
    try:
        node = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # Whatever somebody's module does.
        place = _place_in(module, folder, error)
        if isinstance(error, ModuleNotFoundError):
            why = f"{place}cannot import {error.name}"
        else:
            why = f"{module} fails at its import ({place}{describe_failure(error)})"
        raise PluginError(f"{line}: {why}; {right}") from error
    for part in filter(None, path.split(".")):
        if not hasattr(node, part):
            known = [key for key in vars(node) if not key.startswith("_")] if hasattr(node, "__dict__") else []
            near = difflib.get_close_matches(part, known, n=1)
            raise PluginError(f"{line}: {module} has no '{part}'" + (f"; did you mean '{near[0]}'?" if near else ""))
        node = getattr(node, part)
    return node

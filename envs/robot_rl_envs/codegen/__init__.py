"""Generate a task's terms as flat Warp kernels: act, after-physics, observe (and one for startup events).

`step_kernels.py.txt` is their source, a template: `step_kernels.py` fills its slots, with one call of each term. The
kernels are compiled once; Warp caches them by their content. Weights, parameters, scales and ranges are not in the text
but in one device array, so a sweep or a curriculum changes them without a recompile or a new CUDA graph.
"""

from __future__ import annotations

import ast
import hashlib
import linecache
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import warp as wp

from robot_rl_envs import rng
from robot_rl_envs.actuation import drive as actuation
from robot_rl_envs.codegen.actuating import Drive
from robot_rl_envs.codegen.layout import TaskLayout
from robot_rl_envs.codegen.observing import GROUP
from robot_rl_envs.codegen.step_kernels import fill_step
from robot_rl_envs.codegen.writer import KernelWriter
from robot_rl_envs.entity import crews, derive
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.launch import BLOCK_THREADS
from robot_rl_envs.recorder import flight
from robot_rl_envs.task import Task
from robot_rl_envs.terms.checks import nearest

MAX_UNROLL = 4
"""Longest loop that Warp unrolls in a stage: over 12 joints, a Go2's observe takes twice as long to compile."""
STAGES = ("act", "after_physics", "observe", "startup", "actuate", "observe_reset", "sense", "share")
"""Stages of a step; not every task has the last four."""
LAUNCH_BOUNDS = (BLOCK_THREADS, 6)
"""Threads of a block, and blocks that a multiprocessor must hold: at most 168 registers a thread, without spills."""


@wp.struct
class Numbers:
    """What a stage reads and adds to, other than the state.

    A struct, since Warp compiles a CPU kernel twice if all its arguments are arrays of one dimension.

    Attributes:
        params: weights, parameters, scales and ranges; `TaskLayout.params` says where.
        log: (width,) sums of a chunk of worlds.
    """

    params: wp.array(dtype=wp.float32)  # pyright: ignore[reportInvalidTypeForm]
    log: wp.array(dtype=wp.float64)  # pyright: ignore[reportInvalidTypeForm]


@dataclass(slots=True)
class Kernels:
    """The compiled stages of one task."""

    act: wp.Kernel
    after_physics: wp.Kernel
    observe: wp.Kernel
    startup: wp.Kernel
    source: str
    paths: dict[str, str]
    """Path of the term ("rewards.track") behind each function that the source calls."""
    keys: dict[str, str]
    """Name of the Warp function behind each of them."""
    actuate: Any = None
    observe_reset: Any = None
    sense: Any = None
    share: Any = None

    def stages(self) -> list[wp.Kernel]:
        """Return the kernels that there are."""
        return [kernel for name in STAGES if (kernel := getattr(self, name)) is not None]

    def load(self, device: str) -> None:
        """Compile the stages side by side, or take them from the cache."""
        modules = [kernel.module for kernel in self.stages()]
        wp.force_load(device, modules, block_dim=BLOCK_THREADS, max_workers=len(modules))

    def path_of(self, function: str) -> str:
        """Return the path of the first term that a Warp function computes; empty if it computes none."""
        return next((self.paths[alias] for alias, key in self.keys.items() if key == function), "")

    def blame(self, error: Exception, fields: Iterable[str], model_fields: Iterable[str]) -> Exception:
        """Return a line for Warp's error about a term that it cannot compile; ``error`` itself if it is another.

        ``fields`` are the names of the state's fields, ``model_fields`` those of the model's.
        """
        text = str(error.args[0] if error.args else error)
        steps = list(re.finditer(r'Error while parsing function "(\w+)" at (.+?):(\d+):\n(.*)\n;', text))
        if not steps:
            return error
        path = next((self.paths[name] for name in re.findall(r"\bt\d+_\w+", text) if name in self.paths), "a term")
        function, file, number, line = steps[-1].groups()
        where = "" if file.startswith("<") else f" in {function}, {file}:{_line_in_file(file, function, number, line)}"
        reason = " ".join(text[steps[-1].end() :].removeprefix("Error, ").split())
        attribute = re.match(r"`(\w+)` is not an attribute of 's'", reason)
        if attribute is None:
            return ValueError(f"{path}: Warp does not compile it{where}: {reason}")
        name = attribute[1]
        hint = nearest(name, fields)
        if name.startswith("engine_"):
            hint = f"declare data=({name.removeprefix('engine_')!r},) at the term"
        elif name.removesuffix("_nominal") in model_fields:
            hint = f"declare model_fields=({name.removesuffix('_nominal')!r},) at the event"
        return ValueError(f"{path}: reads s.{name}, which the state does not have,{where}; {hint}")


def _line_in_file(file: str, function: str, number: str, line: str) -> int:
    """Return the number of a line in its file; Warp counts those of a generic function from its first decorator."""
    try:
        nodes = ast.walk(ast.parse(Path(file).read_text(encoding="utf-8")))
    except (OSError, ValueError, SyntaxError):
        return int(number)
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == function]
    begins = [min([node.lineno, *(one.lineno for one in node.decorator_list)]) for node in functions]
    counted = [begin + int(number) for begin in begins]
    return next((at for at in counted if linecache.getline(file, at).strip() == line.strip()), int(number))


def find_functions(text: str, modules: Iterable[ModuleType]) -> dict[str, Any]:
    """Return the Warp functions of these modules that a text calls by their own names."""
    names = set(re.findall(r"\b(\w+)\(", text))
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if name in names and isinstance(value, wp.Function)
    }


def load_source(
    body: str,
    title: str,
    functions: Mapping[str, Any],
    types: Mapping[str, Any],
    *,
    prefix: str,
    groups: Iterable[str],
    precision: str = "",
) -> tuple[str, dict[str, Any]]:
    """Execute generated source; return its text, with unique names, and its namespace.

    Args:
        body: The source.
        title: The task's name, or further words.
        functions: Functions that it calls, by the names that it calls them.
        types: Structs that it names.
        prefix: Beginning of the names of the functions of observation groups.
        groups: Names of the functions that begin with `GROUP` in the text.
        precision: Hash of the arrays' types, if they differ between engines.
    """
    names = "".join(f"{alias}={fn.module.name}.{fn.key};" for alias, fn in sorted(functions.items()))
    digest = hashlib.sha256((body + names + precision).encode()).hexdigest()[:12]
    filename = f"<robot_rl {title} {digest}>"
    source = body.replace(GROUP, f"{prefix}_{digest}_")
    namespace: dict[str, Any] = {"wp": wp, **types, **functions}
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), namespace)
    module = wp.get_module(f"robot_rl_{title.replace(' ', '_')}_{digest}")
    for name in groups:
        full = f"{prefix}_{digest}_{name}"
        namespace[full] = wp.func(namespace[full], module=module)
    return source, namespace


def make_kernels(
    task: Task, scene: Scene, layout: TaskLayout, struct: Any, chain: Any, *, drive: Drive, fields: list[str]
) -> Kernels:
    """Generate the source for ``task``, fill ``layout``'s parameters and register the kernels (compiled on launch).

    ``fields`` are the randomized model fields of ``s``.
    """
    writer = KernelWriter(layout, scene.crew)
    body = fill_step(writer, scene, task, drive, fields)
    functions = find_functions(body, (actuation, crews, derive, flight, rng)) | writer.sensors | writer.functions
    types = {"SceneState": struct, "Chain": chain, "Numbers": Numbers, "Flight": flight.Flight, **drive.namespace}
    # The arrays of an engine have its own precision: the same text on another engine is another kernel.
    precision = struct.hash.hex() if scene.mujoco_fields else ""
    source, namespace = load_source(
        body, task.name, functions, types, prefix="observe", groups=task.vectors, precision=precision
    )
    options = {"enable_backward": False, "max_unroll": MAX_UNROLL}
    kernels: dict[str, Any] = {
        name: wp.kernel(
            namespace[name], module="unique", enable_backward=False, module_options=options, launch_bounds=LAUNCH_BOUNDS
        )
        for name in STAGES
        if name in namespace
    }
    keys = {alias: fn.key for alias, fn in writer.functions.items()}
    paths = {alias: path for path, alias in writer.aliases.items()}
    return Kernels(**kernels, source=source, paths=paths, keys=keys)

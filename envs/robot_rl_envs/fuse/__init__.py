"""Generate a task's terms as flat Warp kernels: act, after-physics, observe (and one for startup events).

The kernels are generated as text, one call a term, and compiled once; Warp caches them by their content. Weights,
parameters, scales and ranges are not in the text but in one device array, so a sweep or a curriculum changes them
without a recompile or a new CUDA graph.
"""

from __future__ import annotations

import hashlib
import linecache
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import warp as wp

from robot_rl_envs.entity import derive as derive_module
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.fuse.actuating import Drive
from robot_rl_envs.fuse.layout import TaskLayout, Writer
from robot_rl_envs.fuse.observing import GROUP, write_group
from robot_rl_envs.fuse.stages import write_act, write_after, write_observe, write_share, write_startup
from robot_rl_envs.launch import BLOCK_THREADS
from robot_rl_envs.recorder import flight as flight_module
from robot_rl_envs.rng import stream
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

    It is a struct since Warp compiles a CPU kernel with only arrays of one dimension twice: once for contiguous ones.

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
        """Compile, or take from the cache, what the stages need, side by side."""
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
        steps = list(re.finditer(r'Error while parsing function "(\w+)" at (.+?):(\d+):\n.*\n;', text))
        if not steps:
            return error
        path = next((self.paths[name] for name in re.findall(r"\bt\d+_\w+", text) if name in self.paths), "a term")
        function, file, line = steps[-1].groups()
        where = "" if file.startswith("<") else f" in {function}, {file}:{line}"
        reason = " ".join(text[steps[-1].end() :].removeprefix("Error, ").split())
        found = re.match(r"`(\w+)` is not an attribute of 's'", reason)
        if found is None:
            return ValueError(f"{path}: Warp does not compile it{where}: {reason}")
        name = found[1]
        hint = nearest(name, fields)
        if name.startswith("engine_"):
            hint = f"declare data=({name.removeprefix('engine_')!r},) at the term"
        elif name.removesuffix("_nominal") in model_fields:
            hint = f"declare model_fields=({name.removesuffix('_nominal')!r},) at the event"
        return ValueError(f"{path}: reads s.{name}, which the state does not have,{where}; {hint}")


def make_kernels(
    task: Task, scene: Scene, layout: TaskLayout, struct: Any, chain: Any, *, drive: Drive, fields: list[str]
) -> Kernels:
    """Generate the source for ``task``, fill ``layout``'s parameters and register the kernels (compiled on launch).

    ``fields`` are the randomized model fields of ``s``.
    """
    writer = Writer(layout, scene.crew)
    write_act(writer, scene, task)
    write_after(writer, scene, task)
    for name, group in task.vectors.items():
        write_group(writer, name, group)
    write_observe(writer, scene, task, fields)
    write_startup(writer, task)
    if scene.crew is not None:
        write_share(writer, scene, task)
    drive.write(writer)
    body = "\n".join(writer.lines)
    names = "".join(f"{alias}={fn.module.name}.{fn.key};" for alias, fn in sorted(writer.functions.items()))
    # The arrays of an engine have its own precision: the same text on another engine is another kernel.
    own = struct.hash.hex() if scene.watched else ""
    digest = hashlib.sha256((body + names + own).encode()).hexdigest()[:12]
    filename = f"<robot_rl {task.name} {digest}>"
    namespace: dict[str, Any] = {"wp": wp, "SceneState": struct, "Chain": chain, "Numbers": Numbers, "stream": stream}
    namespace |= writer.functions
    for name in ("derive", "update_contacts", "clear_world", "place_on_terrain", "world_faults", "park_world"):
        namespace[name] = getattr(derive_module, name)
    for name in ("Flight", "record_start", "record_action", "record_control", "record_end", "dump", "reason_of"):
        namespace[name] = getattr(flight_module, name)
    namespace |= drive.namespace
    renamed = body.replace(GROUP, f"observe_{digest}_")
    linecache.cache[filename] = (len(renamed), None, renamed.splitlines(keepends=True), filename)
    exec(compile(renamed, filename, "exec"), namespace)
    for name in task.vectors:
        full = f"observe_{digest}_{name}"
        namespace[full] = wp.func(namespace[full], module=wp.get_module(f"robot_rl_{task.name}_{digest}"))
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
    return Kernels(**kernels, source=renamed, paths=paths, keys=keys)

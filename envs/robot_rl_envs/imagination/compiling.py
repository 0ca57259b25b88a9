"""Kernels of generated text, with their adjoint."""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Mapping, Sequence
from typing import Any

import warp as wp

from robot_rl_envs.codegen import Numbers
from robot_rl_envs.codegen.layout import TaskLayout
from robot_rl_envs.codegen.observing import GROUP
from robot_rl_envs.codegen.writer import KernelWriter
from robot_rl_envs.rng import stream


class LineWriter(KernelWriter):
    """Collects a kernel's lines and the functions that they call."""

    def __init__(self, layout: TaskLayout):
        super().__init__(layout)
        self.lines: list[str] = []

    def add(self, indent: int, *lines: str) -> None:
        """Add lines with one indent."""
        self.lines += ["    " * indent + line for line in lines]

    def run(self, indent: int, fn: Any, arguments: str = "s, i") -> None:
        """Add the line that calls a Warp function."""
        self.functions[fn.key] = fn
        self.add(indent, f"{fn.key}({arguments})")


def compile_kernel(
    task: str,
    lines: Sequence[str],
    struct: Any,
    functions: Mapping[str, Any],
    *,
    groups: Sequence[str] = (),
    backward: bool = True,
) -> Any:
    """Compile a text, the last function of which is a kernel; Warp keeps it by its content.

    Args:
        task: The task's name.
        lines: The text.
        struct: The type of ``s``.
        functions: What it calls, by the names that it calls them.
        groups: What has a function of its own in the text, as observation groups do.
        backward: With the adjoint.
    """
    body = "\n".join(lines)
    entry = [line for line in lines if line.startswith("def ")][-1].removeprefix("def ").partition("(")[0]
    names = "".join(f"{alias}={fn.module.name}.{fn.key};" for alias, fn in sorted(functions.items()))
    digest = hashlib.sha256((body + names).encode()).hexdigest()[:12]
    filename = f"<robot_rl {task} {entry} {digest}>"
    body = body.replace(GROUP, f"look_{digest}_")
    namespace: dict[str, Any] = {"wp": wp, "SceneState": struct, "Numbers": Numbers}
    namespace |= {"stream": stream, **functions}
    linecache.cache[filename] = (len(body), None, body.splitlines(keepends=True), filename)
    exec(compile(body, filename, "exec"), namespace)
    for group in groups:
        full = f"look_{digest}_{group}"
        namespace[full] = wp.func(namespace[full], module=wp.get_module(f"robot_rl_{task}_{entry}_{digest}"))
    options = {"enable_backward": backward, "max_unroll": 1}  # An adjoint is as quick in a loop, and compiles sooner.
    return wp.kernel(namespace[entry], module="unique", enable_backward=backward, module_options=options)

"""Kernels of generated text, with their adjoint."""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Mapping, Sequence
from typing import Any

import warp as wp

from robot_rl_envs.fuse import Numbers
from robot_rl_envs.fuse.observing import GROUP
from robot_rl_envs.rng import stream


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
        functions: The functions that it calls, by their names in it.
        groups: The parts with their own function in the text, such as observation groups.
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

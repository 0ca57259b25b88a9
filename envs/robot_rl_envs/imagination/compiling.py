"""Kernels of generated text, with their adjoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import warp as wp

from robot_rl_envs import rng
from robot_rl_envs.codegen import Numbers, find_functions, load_source
from robot_rl_envs.codegen.template import Template
from robot_rl_envs.entity import derive
from robot_rl_envs.imagination import advance

IMAGINED = Template(Path(__file__).with_name("imagined_step.py.txt"))
"""The kernels of imagined steps."""


def compile_kernel(
    task: str,
    entry: str,
    body: str,
    struct: Any,
    functions: Mapping[str, Any],
    *,
    groups: Sequence[str] = (),
    backward: bool = True,
) -> Any:
    """Compile a text; Warp keeps it by its content.

    Args:
        task: The task's name.
        entry: Name of the kernel in the text.
        body: The text.
        struct: The type of ``s``.
        functions: Functions of terms, by the names that the text calls them.
        groups: Names of further functions in the text, such as those of observation groups.
        backward: With the adjoint.
    """
    functions = find_functions(body, (advance, derive, rng)) | dict(functions)
    types = {"SceneState": struct, "Numbers": Numbers}
    _, namespace = load_source(body, f"{task} {entry}", functions, types, prefix="look", groups=groups)
    options = {"enable_backward": backward, "max_unroll": 1}  # An adjoint is as quick in a loop, and compiles sooner.
    return wp.kernel(namespace[entry], module="unique", enable_backward=backward, module_options=options)

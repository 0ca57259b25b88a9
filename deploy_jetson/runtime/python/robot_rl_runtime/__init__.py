"""The robot binary's C++ core in Python, and the binary itself: the only implementation of everything on the robot."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from robot_rl_runtime._core import *  # noqa: F403

LIBRARY = "ROBOT_RL_ONNXRUNTIME"
"""Tells the core, here and in the binary, which library to load; set below if it is not set."""


def binary() -> Path:
    """Return the path of `robot-rl-infer`."""
    return Path(__file__).parent / "bin" / "robot-rl-infer"


def onnxruntime_library() -> Path | None:
    """Find ONNX Runtime's library in this Python's package, which is not imported; None without one."""
    spec = find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        return None
    found = sorted((Path(spec.origin).parent / "capi").glob("libonnxruntime.so*"))
    return found[-1] if found else None


def main() -> None:
    """Replace this process by `robot-rl-infer`."""
    os.execv(binary(), ["robot-rl-infer", *sys.argv[1:]])


if LIBRARY not in os.environ and (_found := onnxruntime_library()):
    os.environ[LIBRARY] = str(_found)

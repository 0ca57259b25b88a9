"""The robot binary's C++ core in Python, and the binary itself: the one implementation of everything on the robot."""

import os
import sys
from pathlib import Path

from robot_rl_runtime._core import *  # noqa: F403


def binary() -> Path:
    """Give the path of `robot-rl-infer`."""
    return Path(__file__).parent / "bin" / "robot-rl-infer"


def main() -> None:
    """Become `robot-rl-infer`, with the ONNX Runtime of this Python where none is named."""
    if "ROBOT_RL_ONNXRUNTIME" not in os.environ:
        import onnxruntime

        found = sorted((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"))
        if found:
            os.environ["ROBOT_RL_ONNXRUNTIME"] = str(found[-1])
    os.execv(binary(), ["robot-rl-infer", *sys.argv[1:]])

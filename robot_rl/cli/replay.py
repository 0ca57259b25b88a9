"""Feed a robot's log through its binary again; it must give every command again, bit for bit.

usage: robot-rl replay LOG [key=value ...]

{Options}

The log contains contract, network and settings, so it needs no bundle. On another processor, or with another version
of the library, the network's last bits may differ: then the log's actions are used, and the largest difference is
reported.
Exit code 3 if a command differs: the line names the first, its joint and both values.
"""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from robot_rl.cli.options import option, read_all
from robot_rl.errors import UserError


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl replay."""

    log: str = option("", "a log (*.mcap) that robot-rl-infer --log wrote")
    backend: str = option("auto", "onnxruntime or tensorrt; auto: that of the log")


def run(arguments: Sequence[str]) -> int:
    """Run robot-rl-infer --replay."""
    options = read_all(Options, arguments, first="log")
    if not options.log:
        raise UserError("log: is missing; write robot-rl replay <file>.mcap")
    from robot_rl.sim2sim.binary import load_runtime

    command = [str(load_runtime().binary()), "--replay", str(Path(options.log)), "--backend", options.backend]
    sys.stdout.flush()
    return subprocess.run(command, check=False).returncode

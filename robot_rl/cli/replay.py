"""robot-rl replay: feeds a robot's log back through the robot's binary."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from robot_rl.cli.options import describe, option, read_all
from robot_rl.errors import UserError


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl replay."""

    log: str = option("", "a log (*.mcap) that robot-rl-infer --log wrote")
    backend: str = option("auto", "onnxruntime or tensorrt; auto: that of the log")


HELP = f"""\
robot-rl replay: feed a log back through robot-rl-infer, which must give every command again, bit for bit

usage: robot-rl replay LOG [key=value ...]

{describe(Options)}

The log holds contract, network and settings, so it needs no bundle. On another processor, or with another version of
the library, the network's last bits may differ: then the log's actions are taken, and the largest difference is said.
Exit code 3 where a command differs: the line names the first, its joint and both values.
"""


def run(arguments: Sequence[str]) -> int:
    """Runs robot-rl-infer --replay."""
    options = read_all(Options, arguments, first="log")
    if not options.log:
        raise UserError("log: which one? Write robot-rl replay <file>.mcap")
    from robot_rl.sim2sim.binary import load_runtime

    command = [str(load_runtime().binary()), "--replay", str(Path(options.log)), "--backend", options.backend]
    sys.stdout.flush()
    return subprocess.run(command, check=False).returncode

"""How often the robot's binary is delayed by other programs on its cores, with SCHED_FIFO and without.

    python benchmarks/stall.py out=benchmarks/stall.json runs=6 seconds=4 busy=0,2,4

The binary runs the Go2 policy that comes with the project, against a robot that stands still, with a state every 2 ms
over UDP and so many endless loops of the same niceness. A run counts as stalled where the watchdog took over, that is
where no command was sent for 10 ms. Needs the right to SCHED_FIFO; without it the first kind is as the second.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import robot_rl_tasks
from harness import facts, write
from runtime_speed import PERIOD_S, StillRobot
from words import read_words, run_script

from robot_rl.errors import UserError

BUNDLE = Path(robot_rl_tasks.__file__).parent / "go2_flat" / "policy"
KINDS = {"SCHED_FIFO": [], "normal": ["--fifo-writer", "0", "--fifo-policy", "0"]}
KNOWN = {"runs": "6", "seconds": "4", "busy": "0,2,4", "out": ""}
START_S = 20.0


def run_once(arguments: list[str], seconds: float) -> dict[str, Any]:
    """Run the binary for so long and return the watchdog's part of its report."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "out"
        robot = stack.enter_context(contextlib.closing(StillRobot(BUNDLE, folder, "udp", arguments)))
        end = time.monotonic() + START_S
        while robot.link.phase not in ("DAMPING", "STAND", "POLICY") and time.monotonic() < end:
            robot.tick()
        for _ in range(round(seconds / PERIOD_S)):
            robot.tick()
        robot.binary.stop()
        report = robot.binary.report()
    watchdog = report["watchdog"]
    faults = [change["fault"] for change in report["changes"] if change["fault"] not in ("none", "operator_stop")]
    return {
        "takeovers": watchdog["takeovers"],
        "longest_silence_ms": round(watchdog["longest_silence_s"] * 1e3, 2),
        "first_fault": faults[0] if faults else None,
    }


def measure(busy: int, kind: str, runs: int, seconds: float) -> dict[str, Any]:
    """Return the runs of one kind with so many endless loops."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
    try:
        found = [run_once(KINDS[kind], seconds) for _ in range(runs)]
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    row = {"busy": busy, "kind": kind, "stalled": sum(run["takeovers"] > 0 for run in found), "runs": runs}
    row["longest_silence_ms"] = max(run["longest_silence_ms"] for run in found)
    print(row, flush=True)
    return row | {"each": found}


def main(arguments: list[str]) -> None:
    """Measure every kind with every number of loops."""
    options = read_words(arguments, KNOWN, whole=("runs", "seconds"))
    counts = options["busy"].split(",")
    if not all(text.isdecimal() for text in counts):
        raise UserError(f"busy={options['busy']}: must be whole numbers, such as 0,2,4")
    load = round(os.getloadavg()[0], 2)
    rows = [
        measure(int(busy), kind, int(options["runs"]), float(options["seconds"])) for busy in counts for kind in KINDS
    ]
    write(options["out"], facts("stall") | {"load_before": load, "seconds": float(options["seconds"]), "rows": rows})


if __name__ == "__main__":
    run_script(main)

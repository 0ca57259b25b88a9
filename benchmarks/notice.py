"""Time from a scheduler's notice to a saved checkpoint, and from a new process to its first step.

    python benchmarks/notice.py [task=go2_flat] [num_envs=4096] [rounds=5] [out=benchmarks/notice.json] [key=value ...]

A run goes on in a process of its own, gets SIGTERM at a random moment, and goes on in another. The iteration in hand is
finished, or given up after `notice_s`; then the state, or the copy of the one before, is written and synced, and the
process ends. Every process but the first is a warm start: Warp's kernels are compiled, the files are in memory. The
processor time until the first step is what the start would take on an idle machine; the load is kept with the figures.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import facts, middle, write
from words import read_words, run_script

from robot_rl.drill import Training
from robot_rl.errors import ExitCode
from robot_rl.learn.checkpoints.checkpoint import latest_checkpoint
from robot_rl.processes import name_end
from robot_rl.runs.run_dir import RunDir
from robot_rl.runs.run_index import last_row

PATIENCE_S = 900.0
ENDLESS = 10**6
PARTS = (
    "start to stepping",
    "start to stepping, processor time",
    "start to the first iteration done",
    "an iteration",
    "notice to the checkpoint",
    "notice to the end of the process",
)
KNOWN = {"task": "go2_flat", "num_envs": "4096", "rounds": "5", "out": "benchmarks/notice.json"}


def begin(given: dict[str, str], root: Path) -> RunDir:
    """Train the run for two iterations."""
    words = [f"{key}={value}" for key, value in given.items()]
    command = [sys.executable, "-m", "robot_rl.cli.main", "train", *words, f"root={root}", "max_iterations=2"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return RunDir.find("latest", root)


def processor_s(pid: int) -> float:
    """Return the processor's time that a process has had, all its threads together [s]."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def notice(run: RunDir, draw: random.Random) -> dict[str, float]:
    """Go on with the run for a few iterations, give notice, and return what took how long [s]."""
    settings = {"max_iterations": ENDLESS, "save_interval": ENDLESS}
    with Training(run, settings) as training:
        training.wait_for(lambda: " -> " in "".join(training.lines) or None, "its first step", PATIENCE_S)
        worked_s = processor_s(training.pid)
        first = training.wait_first(PATIENCE_S)
        row = training.wait_iteration(first.iteration + 1, PATIENCE_S)
        later = training.wait_iteration(row["iteration"] + 1, PATIENCE_S)
        iteration_s = (later["time_s"] - row["time_s"]) / (later["iteration"] - row["iteration"])
        time.sleep(draw.uniform(0.0, iteration_s))
        at = time.time()
        training.send(signal.SIGTERM)
        code = training.wait(PATIENCE_S)
        ended = time.time()
    if code != ExitCode.REQUEUE:
        raise SystemExit(f"{name_end(code)}: {training.lines[-1]}")
    durable = run.checkpoints.stat().st_mtime
    assert durable > at
    assert int(latest_checkpoint(run.path).name) == last_row(run.metrics_file)["iteration"]
    values = (
        first.stepping_s,
        worked_s,
        first.done_s,
        iteration_s,
        durable - at,
        ended - at,
    )
    return dict(zip(PARTS, values, strict=True))


def main(arguments: list[str]) -> None:
    """Measure, print and write it down."""
    given = read_words(arguments, KNOWN, whole=("rounds", "num_envs"), free=True)
    rounds, out = int(given.pop("rounds")), given.pop("out")
    draw = random.Random(1)
    with tempfile.TemporaryDirectory(prefix=".notice-", dir=".") as folder:
        run = begin(given, Path(folder) / "runs")
        taken = [notice(run, draw) for _ in range(rounds)]
        size = sum(file.stat().st_size for file in latest_checkpoint(run.path).iterdir())
    result = facts("notice and going on") | {
        "settings": given,
        "rounds": rounds,
        "load": os.getloadavg()[0],
        "checkpoint_mb": size / 1e6,
        "seconds": {part: middle([one[part] for one in taken]) for part in PARTS},
    }
    for part, values in result["seconds"].items():
        print(f"{part:<40}{values['median']:8.2f} s  ({values['least']:.2f} to {values['most']:.2f})")
    write(out, result)


if __name__ == "__main__":
    run_script(main)

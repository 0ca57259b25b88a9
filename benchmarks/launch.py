"""What launcher=torchrun and a sweep cost: the start, a killed process, and eight runs on this machine.

    python benchmarks/launch.py [repeats=5] [parts=start,kill,sweep] [out=benchmarks/launch.json]

start: the whole command for a cartpole of two iterations, without a launcher and with launcher=torchrun and one
process, in turn. kill: from SIGKILL of one of two processes to the first row that is written after it. sweep: eight
cartpole runs one after another in one command, and two at a time, against the sum of the eight runs by themselves. A
process has one thread.
"""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import facts, in_turn, middle, write
from words import read_words, run_script

from robot_rl.errors import UserError

KNOWN = {"repeats": "5", "parts": "start,kill,sweep", "out": "benchmarks/launch.json"}
SETTINGS = ("task=cartpole", "num_threads=1", "device=cpu")
RUNS, SWEEP_ITERATIONS = 8, 100


def start(root: Path, name: str, *words: str) -> subprocess.Popen[bytes]:
    """Start a training in a session of its own."""
    command = [sys.executable, "-m", "robot_rl.cli.main", "train", *words, *SETTINGS, f"root={root}", f"run_id={name}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet, start_new_session=True)


def timed(root: Path, name: str, *words: str) -> float:
    """Return the seconds of a whole training."""
    begun = time.perf_counter()
    if code := start(root, name, *words).wait():
        raise SystemExit(f"{name}: exit code {code}")
    return time.perf_counter() - begun


def measure_start(root: Path, repeats: int) -> dict[str, Any]:
    """Return the seconds of a command of two iterations, without a launcher and with one."""
    words, numbers = ("num_envs=64", "max_iterations=2"), itertools.count()

    def measure() -> tuple[float, float]:
        k = next(numbers)
        return timed(root, f"w{k}", *words), timed(root, f"t{k}", *words, "launcher=torchrun")

    found = in_turn(("without", "torchrun"), measure, repeats)  # The first of each warms the caches.
    pairs = [b - a for a, b in zip(*found.values(), strict=True)]
    return {name: middle(values) for name, values in found.items()} | {"overhead_s": middle(pairs)}


def measure_kill(root: Path, repeats: int) -> dict[str, Any]:
    """Return the seconds from the end of a process to the first row after it, and whether each iteration is there."""
    taken, whole = [], True
    for k in range(repeats):
        words = ("num_envs=256", "max_iterations=150", "save_interval=5", "launcher=torchrun", "launcher.ranks=2")
        process = start(root, f"k{k}", *words)
        rows = root / "cartpole" / f"k{k}" / "metrics.jsonl"
        while len(read(rows)) < 32:
            time.sleep(0.02)
        victim = children(process.pid)[k % 2]
        killed = time.time()
        os.kill(victim, signal.SIGKILL)
        last = killed + 0.5
        time.sleep(0.5)  # Rows of the iteration in hand.
        before = rows.stat().st_mtime
        while rows.stat().st_mtime in (before,) or rows.stat().st_mtime < last:
            time.sleep(0.01)
        taken.append(rows.stat().st_mtime - killed)
        if code := process.wait():
            raise SystemExit(f"k{k}: exit code {code}")
        whole = whole and read(rows) == list(range(1, 151))
    return {"killed_to_stepping_s": middle(taken), "each_iteration_once": whole}


def measure_sweep(root: Path) -> dict[str, Any]:
    """Return the seconds of eight runs by themselves, in one command, and two at a time."""
    words = ("num_envs=256", f"max_iterations={SWEEP_ITERATIONS}")
    single = [timed(root, f"a{k}", *words, f"seed={k}") for k in range(1, RUNS + 1)]
    seeds = f"seed={','.join(map(str, range(1, RUNS + 1)))}"
    one = timed(root, "b${seed}", "-m", *words, seeds)
    two = timed(root, "c${seed}", "-m", *words, seeds, "launcher=local", "launcher.at_once=2")
    total = sum(single)
    return {"sum_s": total, "one_after_another": one / total, "two_at_a_time": two / total}


def children(pid: int) -> list[int]:
    """Return the processes of the run, which a server forks, in the order of their start."""
    import psutil

    found = [child for child in psutil.Process(pid).children(recursive=True) if child.ppid() != pid]
    return [child.pid for child in sorted(found, key=lambda child: child.create_time())]


def read(rows: Path) -> list[int]:
    """Return the iterations in a file of metrics."""
    with contextlib.suppress(OSError, ValueError):
        return [json.loads(line)["iteration"] for line in rows.read_bytes().splitlines()]
    return []


def main(arguments: list[str]) -> None:
    """Measure, print and write it down."""
    given = read_words(arguments, KNOWN, whole=("repeats",))
    repeats, parts = int(given["repeats"]), given["parts"].split(",")
    for part in parts:
        if part not in KNOWN["parts"].split(","):
            raise UserError(f"parts={part}: must be of {KNOWN['parts']}")
    result = facts("launchers") | {"settings": given, "load": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix=".launch-", dir=".") as folder:
        root = Path(folder)
        if "start" in parts:
            result["start"] = measure_start(root, repeats)
        if "kill" in parts:
            result["kill"] = measure_kill(root, repeats)
        if "sweep" in parts:
            result["sweep"] = measure_sweep(root)
    result["load_after"] = os.getloadavg()[0]
    print(json.dumps({part: result[part] for part in parts}, indent=1))
    write(given["out"], result)


if __name__ == "__main__":
    run_script(main)

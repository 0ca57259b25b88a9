"""What Ray costs, and how soon a run steps again after a loss: launcher=ray against launcher=torchrun, in turn.

    python benchmarks/ray_launch.py [task=go2_flat] [num_envs=256] [iterations=12] [rounds=3]
                                    [out=benchmarks/ray_launch.json] [key=value ...]

A Ray cluster on loopback (a head, and two nodes of one core each) trains a run of two processes; torchrun trains the
same with two. Both start from the command line; the time to the first row of metrics is that of the whole command.
Then a process is killed, and a node with all of its processes, and the time to the next row is taken.
"""

import itertools
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import facts, in_turn, medians, write
from words import read_words, run_script

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 300.0
SKIPPED = 3
"""First iterations that do not count: caches are cold."""
KNOWN = {
    "task": "go2_flat",
    "num_envs": "256",
    "iterations": "12",
    "rounds": "3",
    "out": "benchmarks/ray_launch.json",
}


class Training:
    """A training by a launcher, in a directory of its own, with the rows it writes."""

    def __init__(self, cluster: Any, root: Path, name: str, words: list[str]) -> None:
        """Start it."""
        task = next(word.partition("=")[2] for word in words if word.startswith("task="))
        self.path = root / "runs" / task / name
        self.begin = time.monotonic()
        self.process = cluster.run(root, "train", *words, f"run_id={name}")

    def wait(self, condition: Callable[[], bool]) -> float:
        """Wait for a condition and return the time since the start [s]."""
        end = time.monotonic() + PATIENCE_S
        while not condition():
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                raise SystemExit(self.process.communicate()[0])
            time.sleep(0.02)
        return time.monotonic() - self.begin

    def rows(self) -> list[dict[str, float]]:
        """Return the rows so far."""
        from tests.cluster.ray_cluster import rows

        return rows(self.path)

    def finish(self) -> None:
        """Wait for its end."""
        output, _ = self.process.communicate(timeout=PATIENCE_S)
        if self.process.returncode != 0:
            raise SystemExit(output)


def measure(cluster: Any, root: Path, name: str, words: list[str]) -> dict[str, float]:
    """Train once, and return the seconds to the first row, and of an iteration in the median."""
    training = Training(cluster, root, name, words)
    first = training.wait(lambda: len(training.rows()) > 0)
    training.finish()
    times = [row["time_s"] for row in training.rows()]
    steps = [after - before for before, after in zip(times[SKIPPED:-1], times[SKIPPED + 1 :], strict=True)]
    return {"first_row_s": first, "iteration_s": statistics.median(steps)}


def recover(cluster: Any, root: Path, name: str, words: list[str], what: str) -> float:
    """Kill a process or a node of a training, and return the seconds until it steps again."""
    training = Training(cluster, root, name, [*words, "max_iterations=1000000", "save_interval=5"])
    training.wait(lambda: len(training.rows()) >= 12)
    before = {worker.pid for worker in cluster.workers().values()}
    at = time.time()
    if what == "process":
        os.kill(min(before), signal.SIGKILL)
    else:
        cluster.kill_node(cluster.raylets[-1])

    def is_stepping() -> bool:
        now = {worker.pid for worker in cluster.workers().values()}
        is_new = bool(now) and not now & before
        return is_new and _written(training.path) > at and training.rows()[-1]["iteration"] % 5 != 0

    training.wait(is_stepping)
    seconds = time.time() - at
    training.process.terminate()
    training.process.communicate(timeout=PATIENCE_S)
    if what == "node":
        cluster.add_node()
    return seconds


def _written(path: Path) -> float:
    return (path / "metrics.jsonl").stat().st_mtime


def main(arguments: list[str]) -> None:
    """Measure, and write the file."""
    sys.path.insert(0, str(ROOT))
    from tests.cluster.ray_cluster import RayCluster

    given = read_words(arguments, KNOWN, whole=("num_envs", "iterations", "rounds"), free=True)
    rounds, out = int(given.pop("rounds")), given.pop("out")
    last = f"max_iterations={given.pop('iterations')}"
    settings = ["num_threads=1", *(f"{key}={value}" for key, value in given.items())]
    root, folder = Path(tempfile.mkdtemp(prefix="bench")), Path(tempfile.mkdtemp(prefix="ray"))
    cluster = RayCluster(folder)
    on_ray = ["launcher=ray", "launcher.nodes=2", f"launcher.address={cluster.address}"]
    ways = {"torchrun": ["launcher=torchrun", "launcher.ranks=2"], "ray": on_ray}
    numbers = itertools.count()
    again: dict[str, list[float]] = {"process": [], "node": []}

    def measure_both() -> list[dict[str, float]]:
        number = next(numbers)
        found = [measure(cluster, root, f"{name}-{number}", [*settings, last, *ways[name]]) for name in ways]
        print(dict(zip(ways, found, strict=True)), flush=True)
        return found

    try:
        results = in_turn(ways, measure_both, rounds)  # The first, which does not count, fills the caches.
        for number in range(rounds):
            for what, seconds in again.items():
                words = [*settings, *on_ray, "launcher.min_nodes=1"]
                seconds.append(recover(cluster, root, f"{what}-{number}", words, what))
                print(f"{what} killed: stepping again after {seconds[-1]:.1f} s", flush=True)
    finally:
        cluster.stop()
        shutil.rmtree(root, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
    result = summary(results, again) | {"settings": given, "rounds": rounds}
    write(out, result)


def summary(results: dict[str, Any], again: dict[str, list[float]]) -> dict[str, Any]:
    """Return what the file has."""
    median = {name: medians(many) for name, many in results.items()}
    return facts("runs on Ray") | {
        "launch_overhead_s": median["ray"]["first_row_s"] - median["torchrun"]["first_row_s"],
        "iteration_overhead": median["ray"]["iteration_s"] / median["torchrun"]["iteration_s"] - 1.0,
        "median": median,
        "stepping_again_s": {name: statistics.median(seconds) for name, seconds in again.items()},
        "each": {**results, "stepping_again_s": again},
        "load": os.getloadavg()[0],
        "ray": subprocess.check_output([sys.executable, "-c", "import ray; print(ray.__version__)"], text=True).strip(),
    }


if __name__ == "__main__":
    run_script(main)
